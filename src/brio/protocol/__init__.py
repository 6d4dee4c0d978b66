"""Protocols: folds, metrics and statistics over sites."""

from .calibration import RocBand, brier_decomposition, calibration_error, reliability, roc_band
from .folds import (
    PROTOCOLS,
    Fold,
    ProtocolSettings,
    leave_one_site_out,
    make_folds,
    site_stratified_kfold,
    training_fold,
)
from .metrics import auc, bootstrap_interval, scores
from .splitters import LeaveOneSiteOut, SiteStratifiedKFold
from .statistics import (
    Difference,
    compare,
    compare_folds,
    corrected_resampled_t,
    holm,
    paired_difference,
    signed_rank_p,
    smallest_p,
)

__all__ = [
    "PROTOCOLS",
    "Difference",
    "Fold",
    "LeaveOneSiteOut",
    "ProtocolSettings",
    "RocBand",
    "SiteStratifiedKFold",
    "auc",
    "bootstrap_interval",
    "brier_decomposition",
    "calibration_error",
    "compare",
    "compare_folds",
    "corrected_resampled_t",
    "holm",
    "leave_one_site_out",
    "make_folds",
    "paired_difference",
    "reliability",
    "roc_band",
    "scores",
    "signed_rank_p",
    "site_stratified_kfold",
    "smallest_p",
    "training_fold",
]

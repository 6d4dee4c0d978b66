"""Protocols: folds, metrics, calibration and statistics over sites."""

from .calibration import RocBand, calibration_error, reliability_curve, roc_band
from .folds import (
    PROTOCOLS,
    Fold,
    ProtocolSettings,
    leave_one_site_out,
    make_folds,
    make_training_fold,
    site_stratified_kfold,
)
from .metrics import auc, bootstrap_interval, score_predictions
from .paired_tests import (
    Difference,
    adjust_holm,
    compare_by_corrected_t,
    compare_by_signed_rank,
    signed_rank_p,
    smallest_reachable_p,
)
from .splitters import LeaveOneSiteOut, SiteStratifiedKFold
from .statistics import compare_over_folds, compare_over_sites

__all__ = [
    "PROTOCOLS",
    "Difference",
    "Fold",
    "LeaveOneSiteOut",
    "ProtocolSettings",
    "RocBand",
    "SiteStratifiedKFold",
    "adjust_holm",
    "auc",
    "bootstrap_interval",
    "calibration_error",
    "compare_by_corrected_t",
    "compare_by_signed_rank",
    "compare_over_folds",
    "compare_over_sites",
    "leave_one_site_out",
    "make_folds",
    "make_training_fold",
    "reliability_curve",
    "roc_band",
    "score_predictions",
    "signed_rank_p",
    "site_stratified_kfold",
    "smallest_reachable_p",
]

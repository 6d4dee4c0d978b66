"""Protocols: folds, metrics and statistics over sites."""

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

__all__ = [
    "PROTOCOLS",
    "Fold",
    "LeaveOneSiteOut",
    "ProtocolSettings",
    "SiteStratifiedKFold",
    "auc",
    "bootstrap_interval",
    "leave_one_site_out",
    "make_folds",
    "scores",
    "site_stratified_kfold",
    "training_fold",
]

"""Protocols: folds, metrics and statistics over sites."""

from .folds import Fold, ProtocolSettings, leave_one_site_out, make_folds, site_stratified_kfold
from .metrics import auc, bootstrap_interval, scores

__all__ = [
    "Fold",
    "ProtocolSettings",
    "auc",
    "bootstrap_interval",
    "leave_one_site_out",
    "make_folds",
    "scores",
    "site_stratified_kfold",
]

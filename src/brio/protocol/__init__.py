"""Protocols: folds, metrics, calibration and statistics over sites."""

from .folds import (
    FOLD_RULE,
    LEAST_SITES,
    PROTOCOLS,
    USUAL_VALIDATION_SITES,
    Fold,
    ProtocolSettings,
    assign_inner_folds,
    count_inner_folds,
    find_two_class_sites,
    leave_one_site_out,
    list_fold_names,
    make_folds,
    make_inner_folds,
    make_training_fold,
    settle_protocol,
)
from .metrics import (
    PeopleEstimate,
    auc,
    average_margins,
    calibrate_margins,
    count_participants,
    score_predictions,
)
from .statistics import (
    EQUIVALENCE_MARGIN,
    FoldOverlap,
    adjust_holm,
    compare_by_corrected_t,
    compare_family,
    fold_correction,
    new_site_interval,
    t_interval,
)

__all__ = ["EQUIVALENCE_MARGIN", "FOLD_RULE", "LEAST_SITES", "PROTOCOLS", "USUAL_VALIDATION_SITES", "Fold"]
__all__ += ["FoldOverlap", "PeopleEstimate", "ProtocolSettings", "adjust_holm", "assign_inner_folds", "auc"]
__all__ += ["average_margins", "calibrate_margins", "compare_by_corrected_t", "compare_family"]
__all__ += ["count_inner_folds", "count_participants", "find_two_class_sites", "fold_correction"]
__all__ += ["leave_one_site_out", "list_fold_names", "make_folds", "make_inner_folds", "make_training_fold"]
__all__ += ["new_site_interval", "score_predictions", "settle_protocol", "t_interval"]

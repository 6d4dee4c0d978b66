"""Protocols: folds, metrics, calibration and statistics over sites."""

from .folds import (
    FOLD_RULE,
    LEAST_SITES,
    PROTOCOLS,
    USUAL_VALIDATION_SITES,
    Fold,
    ProtocolSettings,
    count_inner_folds,
    find_two_class_sites,
    leave_one_site_out,
    list_fold_names,
    make_folds,
    make_inner_folds,
    make_training_fold,
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
    adjust_holm,
    compare_family,
    explain_few_sites,
    new_site_interval,
    t_interval,
)

__all__ = ["EQUIVALENCE_MARGIN", "FOLD_RULE", "LEAST_SITES", "PROTOCOLS", "USUAL_VALIDATION_SITES", "Fold"]
__all__ += ["PeopleEstimate", "ProtocolSettings", "adjust_holm", "auc", "average_margins"]
__all__ += ["calibrate_margins", "compare_family", "count_inner_folds", "count_participants"]
__all__ += ["explain_few_sites", "find_two_class_sites", "leave_one_site_out", "list_fold_names", "make_folds"]
__all__ += ["make_inner_folds", "make_training_fold", "new_site_interval", "score_predictions", "t_interval"]

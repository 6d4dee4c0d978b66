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
    describe_allowed_protocols,
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
    SiteAreas,
    assess_over_people,
    auc,
    average_margins,
    bootstrap_interval,
    calibrate_margins,
    count_participants,
    delong_covariance,
    equal_weights,
    pair_weights,
    placement_values,
    score_predictions,
)
from .statistics import (
    EQUIVALENCE_MARGIN,
    Difference,
    FoldOverlap,
    adjust_holm,
    compare_by_corrected_t,
    compare_family,
    compare_groups,
    degrees_of_freedom,
    detectable_difference,
    fold_correction,
    new_site_interval,
    standard_error,
    t_interval,
)

__all__ = ["EQUIVALENCE_MARGIN", "FOLD_RULE", "LEAST_SITES", "PROTOCOLS", "USUAL_VALIDATION_SITES", "Difference"]
__all__ += ["Fold", "FoldOverlap", "PeopleEstimate", "ProtocolSettings", "SiteAreas", "adjust_holm"]
__all__ += ["assess_over_people", "assign_inner_folds", "auc", "average_margins", "bootstrap_interval"]
__all__ += ["calibrate_margins", "compare_by_corrected_t", "compare_family", "compare_groups"]
__all__ += ["count_inner_folds", "count_participants", "degrees_of_freedom"]
__all__ += ["delong_covariance", "describe_allowed_protocols", "detectable_difference", "equal_weights"]
__all__ += ["find_two_class_sites", "fold_correction", "leave_one_site_out", "list_fold_names", "make_folds"]
__all__ += ["make_inner_folds", "make_training_fold", "new_site_interval", "pair_weights", "placement_values"]
__all__ += ["score_predictions", "settle_protocol", "standard_error", "t_interval"]

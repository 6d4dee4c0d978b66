"""Protocols: folds, metrics, calibration and statistics over sites."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import export_lazily
from .calibration import RocBand, calibration_error, reliability_curve, roc_band
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
    site_stratified_kfold,
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
    compare_groups,
    compare_over_folds,
    compare_over_sites,
    degrees_of_freedom,
    detectable_difference,
    fold_correction,
    new_site_interval,
    site_correction,
    standard_error,
    t_interval,
)

if TYPE_CHECKING:
    from .splitters import LeaveOneSiteOut, SiteStratifiedKFold

__all__ = ["RocBand", "calibration_error", "reliability_curve", "roc_band"]
__all__ += ["FOLD_RULE", "LEAST_SITES", "PROTOCOLS", "USUAL_VALIDATION_SITES", "Fold", "ProtocolSettings"]
__all__ += ["assign_inner_folds", "count_inner_folds", "describe_allowed_protocols", "find_two_class_sites"]
__all__ += ["leave_one_site_out", "list_fold_names", "make_folds", "make_inner_folds", "make_training_fold"]
__all__ += ["settle_protocol", "site_stratified_kfold"]
__all__ += ["PeopleEstimate", "SiteAreas", "assess_over_people", "auc", "average_margins", "bootstrap_interval"]
__all__ += ["calibrate_margins", "count_participants", "delong_covariance", "equal_weights", "pair_weights"]
__all__ += ["placement_values", "score_predictions"]
__all__ += ["EQUIVALENCE_MARGIN", "Difference", "FoldOverlap", "adjust_holm", "compare_by_corrected_t"]
__all__ += ["compare_groups", "compare_over_folds", "compare_over_sites", "degrees_of_freedom"]
__all__ += ["detectable_difference", "fold_correction", "new_site_interval", "site_correction", "standard_error"]
__all__ += ["LeaveOneSiteOut", "SiteStratifiedKFold", "t_interval"]

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "splitters": ("LeaveOneSiteOut", "SiteStratifiedKFold"),
    },
)

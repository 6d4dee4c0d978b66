"""All methods on scans of sites that they were trained on."""

from __future__ import annotations

from .comparison import list_compared_arms, rank_arms
from .context import Arm, StudyContext
from .study import Finding, register_study


def _list_arms(context: StudyContext) -> list[Arm]:
    return list_compared_arms(context, "kfold")


@register_study(
    "in-distribution",
    "All methods at sites they were trained on",
    "BRIO ranks first or second in AUC and ACC in all settings. It has the highest mean AUC on ABIDE in both atlases. "
    "BrainNetTF (AAL116) and DeCI (CC200) have the highest ACC there.",
    _list_arms,
    kfold=True,
)
def compare_methods_in_distribution(context: StudyContext) -> Finding:
    """Compare all methods in ten folds stratified by site and class: mean and SD of AUC and ACC over test folds."""
    return rank_arms(context, _list_arms(context))

"""The same methods on scans of sites they know."""

from __future__ import annotations

from .arms import Arm
from .comparison import compared, ranked
from .context import StudyContext
from .study import Finding, study

__all__ = ["in_distribution"]


def _arms(context: StudyContext) -> list[Arm]:
    return compared(context, "kfold")


@study(
    "in-distribution",
    "All methods at sites they know",
    "BRIO ranks first or second on both metrics in all settings, with the highest mean AUC on ABIDE in both atlases; "
    "BrainNetTF (AAL116) and DeCI (CC200) have the highest ACC there.",
    _arms,
)
def in_distribution(context: StudyContext) -> Finding:
    """Ten folds stratified by site and class, 7:2:1, mean and SD over test folds."""
    return ranked(context, _arms(context))

"""The same methods on scans of sites they know."""

from __future__ import annotations

from .arms import Arm
from .bench import Bench
from .comparison import compared, ranked
from .study import Finding, study

__all__ = ["in_distribution"]


def _arms(bench: Bench) -> list[Arm]:
    return compared(bench, "kfold")


@study(
    "in-distribution",
    "All methods at sites they know",
    "BRIO ranks first or second on both metrics in all settings, with the highest mean AUC on ABIDE in both atlases; "
    "BrainNetTF (AAL116) and DeCI (CC200) have the highest ACC there.",
    _arms,
)
def in_distribution(bench: Bench) -> Finding:
    """Ten folds stratified by site and class, 7:2:1, mean and SD over test folds."""
    return ranked(bench, _arms(bench))

"""The same methods on scans of sites they know."""

from __future__ import annotations

from .arms import Arm
from .bench import Bench
from .comparison import compared, reference_of, without
from .study import Finding, study
from .summaries import arm_summary, draw_arms, in_words, tidy

__all__ = ["in_distribution"]


def _arms(bench: Bench) -> list[Arm]:
    return compared(bench, "kfold")


@study(
    "in-distribution",
    "All methods at sites they know",
    "BRIO ranks first or second on both metrics in all settings, with the highest mean AUC on ABIDE in both "
    "atlases; BrainNetTF "
    "(AAL116) and DeCI (CC200) have the highest ACC there.",
    _arms,
)
def in_distribution(bench: Bench) -> Finding:
    """Ten folds stratified by site and class, 7:2:1, mean and SD over test folds."""
    arms = _arms(bench)
    reference = reference_of(arms)
    rows = bench.rows(arms)
    summary = arm_summary(rows, reference).sort_values("AUC", ascending=False).reset_index(drop=True)
    best = summary.iloc[0]
    spread = f", SD {best['SD']:.1f} over test folds" if best["SD"] == best["SD"] else ""
    text = [f"Highest mean AUC: {best['arm']}, {best['AUC']:.1f}{spread}."]
    text += in_words(summary, reference) if len(arms) > 1 else []
    text += without(bench)
    return Finding(tidy(rows), summary, text, lambda: draw_arms(summary, reference))

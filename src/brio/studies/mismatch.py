"""How often sites look alike while predictions move."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ..diagnostics import DELTA_AUC, mark_mismatches, mismatch_rates
from ..drawing import make_panels, series_style
from ..results.format import format_p
from .agreement import OVERLAP, diagnosed
from .alignment import sweep
from .arms import Arm, arm
from .context import StudyContext
from .study import Finding, study
from .summaries import FACTS, describe_differences, pair_with_reference

__all__ = ["mismatch"]


def _arms(context: StudyContext) -> list[Arm]:
    return [*sweep(context).values(), arm("brio")]


@study(
    "mismatch",
    "Runs whose sites agree and whose predictions do not hold",
    "BRIO has lower total and AUC-preserved mismatch rates than the evaluated w/o QG settings.",
    _arms,
)
def mismatch(context: StudyContext) -> Finding:
    """Total and AUC-preserved mismatch rates (appendix); the tolerance on validation AUC is ours."""
    rows = diagnosed(context, _arms(context))
    named = rows.rename(columns={"arm": "method"})
    table = mark_mismatches(named, "backbone").rename(columns={"method": "arm"})
    summary = mismatch_rates(named, "backbone").rename(columns={"method": "arm"})
    summary[["mismatch_rate", "auc_preserved_mismatch_rate"]] *= 100
    summary = summary.merge(rows.groupby("arm", sort=False)[FACTS].first().astype("Int64").reset_index(), on="arm")
    kinds = ("mismatch", "auc_preserved_mismatch")
    total, preserved = (pair_with_reference(table.assign(rate=100 * table[kind]), "rate", "brio") for kind in kinds)
    told = {"to brio": "total to BRIO"}
    shown = summary.merge(total.rename(columns=told).drop(columns="warning"), on="arm", how="left")
    rates = summary.set_index("arm")["mismatch_rate"]
    others = rates.drop("brio")
    text = [
        f"Mismatches: {rates['brio']:.0f} % of the runs of BRIO; of those of w/o QG {others.mean():.0f} % over the "
        f"strengths tried, {others.min():.0f} % at the best and {others.max():.0f} % at the worst. Medians are "
        f"pooled over all {len(rows)} runs.",
        f"A validation AUC counts as preserved at no more than {100 * DELTA_AUC:g} point below that of the backbone "
        "in the same fold and seed.",
        " ".join(["Total rates in points, paired over folds.", *describe_differences(total, "brio")]),
        " ".join(["AUC-preserved rates.", *describe_differences(preserved, "brio")]),
        OVERLAP,
    ]
    labels = {a.name: f"w/o QG,\n{v:g}" for v, a in sweep(context).items()} | {"brio": "BRIO"}
    p = {kind: found.set_index("arm")["p"] for kind, found in zip(kinds, (total, preserved), strict=True)}
    return Finding(table, shown, text, lambda: _draw(summary, labels, p))


def _draw(summary: pd.DataFrame, labels: dict[str, str], p: dict[str, pd.Series]) -> Any:
    figure, (axis,) = make_panels(1, 7.4, 3.6)
    x = np.arange(len(summary))
    for k, (kind, label) in enumerate((("mismatch", "total"), ("auc_preserved_mismatch", "AUC-preserved"))):
        look = {"color": series_style(k)["color"], "label": label} | (
            {"hatch": "//", "edgecolor": "white"} if k else {}
        )
        bars = axis.bar(x + 0.36 * (k - 0.5), summary[f"{kind}_rate"], 0.34, **look)
        told = [format_p(p[kind][name]) if name in p[kind] else "" for name in summary["arm"]]
        axis.bar_label(bars, told, padding=2, fontsize=7, color="0.3")
    axis.set_xticks(x, [labels[str(name)] for name in summary["arm"]], fontsize=8)
    axis.set_ylabel("mismatches, % of runs", fontsize=9)
    axis.set_xlabel("alignment without qualification at each lambda_env, and BRIO", fontsize=9)
    axis.set_title("above bars: corrected p against BRIO", fontsize=9, loc="left")
    axis.legend(fontsize=8, frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
    return figure

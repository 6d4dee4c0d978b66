"""How often sites look alike while predictions move."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ..diagnostics import DELTA_AUC, mismatch_rates, mismatches
from ..drawing import panels, style
from .agreement import diagnosed
from .alignment import sweep
from .arms import Arm, arm
from .bench import Bench
from .study import Finding, study
from .summaries import FACTS

__all__ = ["mismatch"]


def _arms(bench: Bench) -> list[Arm]:
    return [*sweep(bench).values(), arm("brio")]


@study(
    "mismatch",
    "Runs whose sites agree and whose predictions do not hold",
    "BRIO has lower total and AUC-preserved mismatch rates than the evaluated w/o QG settings.",
    _arms,
)
def mismatch(bench: Bench) -> Finding:
    """Total and AUC-preserved mismatch rates (appendix); the tolerance on validation AUC is ours."""
    rows = diagnosed(bench, _arms(bench))
    named = rows.rename(columns={"arm": "method"})
    table = mismatches(named, "backbone").rename(columns={"method": "arm"})
    summary = mismatch_rates(named, "backbone").rename(columns={"method": "arm"})
    summary[["mismatch_rate", "auc_preserved_mismatch_rate"]] *= 100
    summary = summary.merge(rows.groupby("arm", sort=False)[FACTS].first().astype("Int64").reset_index(), on="arm")
    rates = summary.set_index("arm")["mismatch_rate"]
    others = rates.drop("brio")
    text = [
        f"Mismatches: {rates['brio']:.0f} % of the runs of BRIO; of those of w/o QG {others.mean():.0f} % over the "
        f"strengths tried, {others.min():.0f} % at the best and {others.max():.0f} % at the worst. Medians are "
        f"pooled over all {len(rows)} runs.",
        f"A validation AUC counts as preserved at no more than {100 * DELTA_AUC:g} point below that of the backbone "
        "in the same fold and seed.",
    ]
    labels = {a.name: f"w/o QG,\n{v:g}" for v, a in sweep(bench).items()} | {"brio": "BRIO"}
    return Finding(table, summary, text, lambda: _draw(summary, labels))


def _draw(summary: pd.DataFrame, labels: dict[str, str]) -> Any:
    figure, (axis,) = panels(1, 6.4, 3.4)
    x = np.arange(len(summary))
    for k, (column, label) in enumerate((("mismatch_rate", "total"), ("auc_preserved_mismatch_rate", "AUC-preserved"))):
        hatch = {"hatch": "//", "edgecolor": "white"} if k else {}
        axis.bar(x + 0.36 * (k - 0.5), summary[column], 0.34, color=style(k)["color"], label=label, **hatch)
    axis.set_xticks(x, [labels[str(name)] for name in summary["arm"]], fontsize=8)
    axis.set_ylabel("mismatches, % of runs", fontsize=9)
    axis.set_xlabel("alignment without qualification at each lambda_env, and BRIO", fontsize=9)
    axis.legend(fontsize=8, frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
    return figure

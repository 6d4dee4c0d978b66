"""How often sites agree while predictions are unstable under re-estimation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ..diagnostics import DELTA_AUC, mark_mismatches, mismatch_rates
from ..drawing import make_panels, series_style
from ..formatting import format_p
from .agreement import OVERLAP, diagnose_arms
from .alignment import make_strength_arms
from .context import Arm, StudyContext, make_arm
from .study import Finding, register_study
from .summaries import FACTS, describe_differences, pair_with_reference

KINDS = {"mismatch": "total", "auc_preserved_mismatch": "AUC-preserved"}
"""Columns of the table, and their names in the figure."""

_HEADERS = {"mismatch_rate": "mismatches, %", "auc_preserved_mismatch_rate": "AUC-preserved mismatches, %"}


def _list_arms(context: StudyContext) -> list[Arm]:
    return [*make_strength_arms(context).values(), make_arm("brio")]


@register_study(
    "mismatch",
    "Runs whose sites agree while predictions are unstable",
    "BRIO has lower total and AUC-preserved mismatch rates than w/o QG at every lambda_env that was evaluated.",
    _list_arms,
)
def count_mismatches(context: StudyContext) -> Finding:
    """Count runs with low site discrepancy and high predictive variation (appendix).

    The paper does not give its tolerance on validation AUC; :data:`~brio.diagnostics.DELTA_AUC` is ours.
    """
    rows = diagnose_arms(context, _list_arms(context))
    by_method = rows.rename(columns={"arm": "method"})
    table = mark_mismatches(by_method, "backbone").rename(columns={"method": "arm"})
    summary = mismatch_rates(by_method, "backbone").rename(columns={"method": "arm"})
    summary[["mismatch_rate", "auc_preserved_mismatch_rate"]] *= 100
    summary = summary.merge(rows.groupby("arm", sort=False)[FACTS].first().astype("Int64").reset_index(), on="arm")
    total, preserved = (pair_with_reference(table.assign(rate=100 * table[kind]), "rate", "brio") for kind in KINDS)
    differences = total.rename(columns={"minus brio": "total minus BRIO"}).drop(columns="warning")
    rates = summary.set_index("arm")["mismatch_rate"]
    others = rates.drop("brio")
    text = [
        f"Mismatches are {rates['brio']:.0f} % of the runs of BRIO, and {others.mean():.0f} % of the runs of w/o QG "
        f"({others.min():.0f} to {others.max():.0f} %, depending on lambda_env).",
        f"The medians that define a mismatch are those of all {len(rows)} runs.",
        f"Validation AUC counts as preserved if it is at most {100 * DELTA_AUC:g} point below that of the backbone in "
        "the same fold and seed.",
        "Rates are compared fold by fold. " + " ".join(describe_differences(total, "brio", "total mismatch rate")),
        " ".join(describe_differences(preserved, "brio", "AUC-preserved mismatch rate")),
        OVERLAP,
    ]
    labels = {a.name: f"w/o QG,\n{value:g}" for value, a in make_strength_arms(context).items()} | {"brio": "BRIO"}
    p = {kind: tests.set_index("arm")["p"] for kind, tests in zip(KINDS, (total, preserved), strict=True)}
    shown = summary.rename(columns=_HEADERS).merge(differences, on="arm", how="left")
    return Finding(table, shown, text, lambda: _draw(summary, labels, p))


def _draw(summary: pd.DataFrame, labels: dict[str, str], p: dict[str, pd.Series]) -> Any:
    figure, (axis,) = make_panels(1, 7.4, 3.6)
    x = np.arange(len(summary))
    for k, (kind, label) in enumerate(KINDS.items()):
        hatch = {"hatch": "//", "edgecolor": "white"} if k else {}
        color = series_style(k)["color"]
        bars = axis.bar(x + 0.36 * (k - 0.5), summary[f"{kind}_rate"], 0.34, color=color, label=label, **hatch)
        p_texts = [format_p(p[kind][name]) if name in p[kind] else "" for name in summary["arm"]]
        axis.bar_label(bars, p_texts, padding=2, fontsize=7, color="0.3")
    axis.set_xticks(x, [labels[str(name)] for name in summary["arm"]], fontsize=8)
    axis.set_ylabel("mismatches, % of runs", fontsize=9)
    axis.set_xlabel("BRIO w/o QG at each lambda_env, and BRIO", fontsize=9)
    axis.set_title("above bars: p compared with BRIO, after Holm's correction", fontsize=9, loc="left")
    axis.legend(fontsize=8, frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
    return figure

"""Does agreement between sites mean that predictions hold when the connectome is estimated again?"""

from __future__ import annotations

from typing import Any

import pandas as pd

from ..diagnostics import discordance_rate, spearman
from ..drawing import panels, style
from .arms import Arm, arm, printed
from .bench import Bench
from .comparison import without
from .study import Finding, study
from .summaries import FACTS

__all__ = ["agreement", "diagnosed", "means"]

METHODS = ("coral", "irm", "gsat", "brainood", "core", "backbone", "brio")
"""The paper's set; BRIO w/o QG at lambda_env = 0 is the backbone."""


def diagnosed(bench: Bench, arms: list[Arm]) -> pd.DataFrame:
    """One row a run: D_site, predictive variation, validation and test AUC, and what the runs are made of."""
    parts = [bench.discrepancies(a).assign(**bench.trained(a).facts) for a in arms]
    return pd.concat(parts, ignore_index=True).rename(columns={"method": "arm"})


def means(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over the runs of each arm, AUC in percent."""
    table = rows.groupby("arm", sort=False).agg(
        runs=("fold", "size"),
        D_site=("D_site", "mean"),
        D_re_pred=("D_re_pred", "mean"),
        AUC=("auc", "mean"),
        validation=("validation_auc", "mean"),
    )
    table[["AUC", "validation"]] *= 100
    facts = rows.groupby("arm", sort=False)[FACTS].first().astype("Int64")
    return table.join(facts).reset_index()


def _arms(bench: Bench) -> list[Arm]:
    return [arm(name) for name in bench.methods or bench.fed(METHODS)]


@study(
    "agreement",
    "Agreement of sites and re-estimation, across methods",
    "lower site discrepancy does not consistently go with lower predictive variation across methods on ABIDE, so "
    "agreement between sites alone does not imply stable predictions within a subject.",
    _arms,
)
def agreement(bench: Bench) -> Finding:
    """D_site and normalised predictive variation (appendix) over methods, Spearman's rho over runs, discordance."""
    rows = diagnosed(bench, _arms(bench))
    named = rows.rename(columns={"arm": "method"})
    rho, discord = spearman(named), discordance_rate(named)
    summary = means(rows)
    steady, alike = summary.loc[summary["D_re_pred"].idxmin()], summary.loc[summary["D_site"].idxmin()]
    text = (
        [f"Spearman's rho of D_site and predictive variation over {len(rows)} runs: {rho:.2f}."] if rho == rho else []
    )
    if discord == discord:
        text += [
            "Pairs of methods in a fold and seed in which the smaller D_site has the larger variation: "
            f"{100 * discord:.0f} %.",
            f"Sites look most alike under {printed(alike['arm'])}; predictions move least under "
            f"{printed(steady['arm'])}.",
        ]
    text += without(bench, METHODS)
    return Finding(rows, summary, text, lambda: _draw(rows, summary, rho, discord))


def _draw(rows: pd.DataFrame, summary: pd.DataFrame, rho: float, discord: float) -> Any:
    figure, (axis,) = panels(1, 6.4, 4.2)
    for k, row in summary.iterrows():
        look, mine = style(int(str(k))), rows[rows["arm"] == row["arm"]]
        axis.scatter(mine["D_site"], mine["D_re_pred"], s=9, alpha=0.25, linewidths=0, **look)
        axis.scatter(
            row["D_site"], row["D_re_pred"], s=80, edgecolors="white", label=printed(row["arm"]), zorder=3, **look
        )
    axis.set_xlabel("site discrepancy D_site of source sites", fontsize=9)
    axis.set_ylabel("normalised predictive variation", fontsize=9)
    axis.set_xscale("log")
    axis.set_yscale("log")
    title = [f"rho = {rho:.2f} over runs"] if rho == rho else []
    title += [f"discordant pairs {100 * discord:.0f} %"] if discord == discord else []
    axis.set_title("; ".join(["large: means; small: runs", *title]), fontsize=9, loc="left")
    axis.legend(fontsize=8, frameon=False, bbox_to_anchor=(1.01, 1), loc="upper left")
    return figure

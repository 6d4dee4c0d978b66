"""Does agreement between sites mean that predictions hold when the connectome is estimated again?"""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd

from ..diagnostics import discordance_interval, discordance_rate, spearman, spearman_interval
from ..drawing import make_panels, series_style
from ..results.format import format_signed
from .arms import Arm, arm, display_name
from .comparison import without
from .context import StudyContext
from .study import Finding, study
from .summaries import FACTS, describe_differences, pair_with_reference

__all__ = ["OVERLAP", "agreement", "diagnosed", "means", "steadiness"]

METHODS = ("coral", "irm", "gsat", "brainood", "core", "backbone", "brio")
"""The paper's set; BRIO w/o QG at lambda_env = 0 is the backbone."""

OVERLAP = (
    "Discrepancy and variation are measured on source scans, most of which folds share: what is said of folds holds "
    "for other folds and seeds of these scans, not for other people."
)


def diagnosed(context: StudyContext, arms: list[Arm]) -> pd.DataFrame:
    """One row a run: D_site, predictive variation, validation and test AUC, and what the runs are made of."""
    parts = [context.discrepancies(a).assign(**context.trained_results(a).facts) for a in arms]
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


def steadiness(rows: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Predictive variation of each arm against that of BRIO, paired over folds, and what may be said of it."""
    found = pair_with_reference(rows, "D_re_pred", "brio")
    compared = describe_differences(found, "brio", write=partial(format_signed, digits=3))
    table = found.rename(columns={"to brio": "variation to BRIO"}).drop(columns="warning")
    return table, " ".join(["Predictive variation, paired over folds.", *compared])


def _arms(context: StudyContext) -> list[Arm]:
    return [arm(name) for name in context.methods or context.runnable_methods(METHODS)]


@study(
    "agreement",
    "Agreement of sites and re-estimation, across methods",
    "lower site discrepancy does not consistently go with lower predictive variation across methods on ABIDE, so "
    "agreement between sites alone does not imply stable predictions within a subject.",
    _arms,
)
def agreement(context: StudyContext) -> Finding:
    """D_site and normalised predictive variation (appendix) over methods, Spearman's rho over runs, discordance."""
    rows = diagnosed(context, _arms(context))
    named = rows.rename(columns={"arm": "method"})
    rho, discord = spearman(named), discordance_rate(named)
    summary = means(rows)
    steady, alike = summary.loc[summary["D_re_pred"].idxmin()], summary.loc[summary["D_site"].idxmin()]
    text, title = [], []
    if rho == rho:
        told = f"{rho:.2f}{_between(*spearman_interval(named), '.2f')}"
        text += [f"Spearman's rho of D_site and predictive variation over {len(rows)} runs: {told}."]
        title += [f"rho = {told}"]
    if discord == discord:
        low, high = discordance_interval(named)
        told = f"{100 * discord:.0f} %{_between(100 * low, 100 * high, '.0f')}"
        text += [
            f"Pairs of methods in a fold and seed in which the smaller D_site has the larger variation: {told}.",
            f"Sites look most alike under {display_name(alike['arm'])}; predictions move least under "
            f"{display_name(steady['arm'])}.",
        ]
        title += [f"discordant pairs {told}"]
    if "brio" in set(rows["arm"]) and len(summary) > 1:
        against, told = steadiness(rows)
        summary = summary.merge(against, on="arm", how="left")
        text += [told]
    if any("(" in told for told in title):
        text += [f"In brackets: 95 % intervals, folds drawn with replacement. {OVERLAP}"]
    text += without(context, METHODS)
    return Finding(rows, summary, text, lambda: _draw(rows, summary, title))


def _between(low: float, high: float, form: str) -> str:
    return f" ({low:{form}} to {high:{form}})" if low == low else ""


def _draw(rows: pd.DataFrame, summary: pd.DataFrame, title: list[str]) -> Any:
    figure, (axis,) = make_panels(1, 6.4, 4.2)
    for k, row in summary.iterrows():
        look, mine = series_style(int(str(k))), rows[rows["arm"] == row["arm"]]
        axis.scatter(mine["D_site"], mine["D_re_pred"], s=9, alpha=0.25, linewidths=0, **look)
        axis.scatter(
            row["D_site"], row["D_re_pred"], s=80, edgecolors="white", label=display_name(row["arm"]), zorder=3, **look
        )
    axis.set_xlabel("site discrepancy D_site of source sites", fontsize=9)
    axis.set_ylabel("normalised predictive variation", fontsize=9)
    axis.set_xscale("log")
    axis.set_yscale("log")
    if rows["D_re_pred"].max() < 10 * rows["D_re_pred"].min():  # within a decade the ticks between have room for words
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter("{x:g}")
    axis.set_title("\n".join(["large: means; small: runs", "; ".join(title)]).strip(), fontsize=9, loc="left")
    axis.legend(fontsize=8, frameon=False, bbox_to_anchor=(1.01, 1), loc="upper left")
    return figure

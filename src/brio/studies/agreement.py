"""Whether methods whose sites look alike also have predictions that are stable under re-estimation."""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd

from ..diagnostics import discordance_interval, discordance_rate, spearman, spearman_interval
from ..drawing import make_panels, series_style
from ..formatting import format_signed
from .comparison import describe_left_out
from .context import Arm, StudyContext, display_name, make_arm
from .study import Finding, register_study
from .summaries import FACTS, describe_differences, label_log_ticks, pair_with_reference

METHODS = ("coral", "irm", "gsat", "brainood", "core", "backbone", "brio")
"""The methods of the paper. BRIO w/o QG at lambda_env = 0 is the backbone."""

OVERLAP = (
    "Site discrepancy and predictive variation are measured on source scans, most of which the folds share. The "
    "results hold for other folds and seeds of these scans, not for other participants."
)


def diagnose_arms(context: StudyContext, arms: list[Arm]) -> pd.DataFrame:
    """Measure site discrepancy and predictive variation of every run of some arms.

    Returns one row per run: arm, fold, seed, ``D_site``, ``D_re_pred``, validation and test AUC, and
    :data:`~brio.studies.summaries.FACTS`.
    """
    parts = [context.measure_discrepancies(a).assign(**context.trained_results(a).facts) for a in arms]
    return pd.concat(parts, ignore_index=True).rename(columns={"method": "arm"})


def average_runs(rows: pd.DataFrame) -> pd.DataFrame:
    """Average the rows of :func:`diagnose_arms` over the runs of each arm; AUC is in percent."""
    table = rows.groupby("arm", sort=False).agg(
        runs=("fold", "size"),
        D_site=("D_site", "mean"),
        D_re_pred=("D_re_pred", "mean"),
        AUC=("auc", "mean"),
        **{"validation AUC": ("validation_auc", "mean")},
    )
    table[["AUC", "validation AUC"]] *= 100
    facts = rows.groupby("arm", sort=False)[FACTS].first().astype("Int64")
    return table.join(facts).reset_index()


def compare_variation(rows: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Compare the predictive variation of each arm with that of BRIO, paired over folds.

    Returns table: One row per other arm: its difference to BRIO with interval and p.
    """
    differences = pair_with_reference(rows, "D_re_pred", "brio")
    sentences = describe_differences(
        differences, "brio", quantity="predictive variation", write=partial(format_signed, digits=3)
    )
    table = differences.rename(columns={"minus brio": "variation minus BRIO"}).drop(columns="warning")
    return table, " ".join(["Predictive variation is compared fold by fold.", *sentences])


def _list_arms(context: StudyContext) -> list[Arm]:
    return [make_arm(name) for name in context.methods or context.select_runnable_methods(METHODS)]


@register_study(
    "agreement",
    "Agreement of sites and stability under re-estimation",
    "On ABIDE, methods with a lower site discrepancy do not consistently have a lower predictive variation. Agreement "
    "between sites alone therefore does not imply stable predictions within a subject.",
    _list_arms,
)
def relate_discrepancy_to_variation(context: StudyContext) -> Finding:
    """Relate site discrepancy D_site to predictive variation across methods (appendix)."""
    rows = diagnose_arms(context, _list_arms(context))
    by_method = rows.rename(columns={"arm": "method"})
    rho, discordance = spearman(by_method), discordance_rate(by_method)
    summary = average_runs(rows)
    text, statistics = [], []
    if rho == rho:
        rho_text = f"{rho:.2f}{_format_bracket(*spearman_interval(by_method), '.2f')}"
        text += [f"Spearman's rho of D_site and predictive variation over {len(rows)} runs is {rho_text}."]
        statistics += [f"rho = {rho_text}"]
    if discordance == discordance:
        low, high = discordance_interval(by_method)
        rate_text = f"{100 * discordance:.0f} %{_format_bracket(100 * low, 100 * high, '.0f')}"
        least_site, least_re = (summary.loc[summary[column].idxmin(), "arm"] for column in ("D_site", "D_re_pred"))
        text += [
            "Discordant pairs of methods (the one with the smaller D_site has the larger variation in the same fold "
            f"and seed): {rate_text}.",
            f"D_site is lowest for {display_name(least_site)}. Predictive variation is lowest for "
            f"{display_name(least_re)}.",
        ]
        statistics += [f"discordant pairs: {rate_text}"]
    if "brio" in set(rows["arm"]) and len(summary) > 1:
        differences, sentence = compare_variation(rows)
        summary = summary.merge(differences, on="arm", how="left")
        text += [sentence]
    if any("(" in statistic for statistic in statistics):
        text += [f"Brackets hold 95 % bootstrap intervals over folds. {OVERLAP}"]
    text += describe_left_out(context, METHODS)
    return Finding(rows, summary, text, lambda: _draw(rows, summary, statistics))


def _format_bracket(low: float, high: float, form: str) -> str:
    return f" ({low:{form}} to {high:{form}})" if low == low else ""


def _draw(rows: pd.DataFrame, summary: pd.DataFrame, statistics: list[str]) -> Any:
    figure, (axis,) = make_panels(1, 6.4, 4.2)
    for k, row in summary.iterrows():
        style, runs = series_style(int(str(k))), rows[rows["arm"] == row["arm"]]
        axis.scatter(runs["D_site"], runs["D_re_pred"], s=9, alpha=0.25, linewidths=0, **style)
        axis.scatter(
            row["D_site"], row["D_re_pred"], s=80, edgecolors="white", label=display_name(row["arm"]), zorder=3, **style
        )
    axis.set_xlabel("site discrepancy D_site of source sites", fontsize=9)
    axis.set_ylabel("normalised predictive variation", fontsize=9)
    axis.set_xscale("log")
    axis.set_yscale("log")
    label_log_ticks(axis.xaxis)
    label_log_ticks(axis.yaxis)
    title = "\n".join(["large markers: means; small markers: runs", "; ".join(statistics)])
    axis.set_title(title.strip(), fontsize=9, loc="left")
    axis.legend(fontsize=8, frameon=False, bbox_to_anchor=(1.01, 1), loc="upper left")
    return figure

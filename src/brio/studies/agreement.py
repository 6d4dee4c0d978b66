"""Whether sites that look alike also have stable predictions: agreement, alignment and mismatch."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from ..drawing import ABOVE, OUTSIDE, label_axis, make_panels, series_style
from ..formatting import bracket_interval, format_p, format_signed, state_p
from .context import Arm, StudyContext, display_name, make_arm
from .study import Finding, register_study
from .summaries import collect_facts, describe_differences, describe_left_out, pair_with_reference, stack_arms

METHODS = ("coral", "irm", "gsat", "brainood", "core", "backbone", "brio")
"""The methods of the paper. BRIO w/o QG at lambda_env = 0 is the backbone."""

_OVERLAP = (
    "Site discrepancy and predictive variation are measured on source scans, which overlap between folds. "
    "The results apply to other folds and seeds of these scans, not to other participants."
)


def _diagnose_arms(context: StudyContext, arms: list[Arm]) -> pd.DataFrame:
    """Measure ``D_site``, ``D_re_pred``, validation and test AUC of some arms, one row per run."""
    return stack_arms({a: context.measure_discrepancies(a) for a in arms}, context.trained_results)


def _average_runs(rows: pd.DataFrame, shares: dict[str, str], *measures: str) -> pd.DataFrame:
    """Average columns over the runs of each arm: measures as they are, shares in percent and under a name."""
    groups = rows.groupby("arm", sort=False)
    means = groups[[*measures, *shares]].mean()
    means[list(shares)] *= 100
    means.insert(0, "runs", groups.size())
    return means.rename(columns=shares).join(collect_facts(rows)).reset_index()


def _average_measures(rows: pd.DataFrame) -> pd.DataFrame:
    return _average_runs(rows, {"auc": "AUC", "validation_auc": "validation AUC"}, "D_site", "D_re_pred")


def _compare_variation(rows: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Compare the predictive variation of each arm with that of BRIO, paired over folds: a row each, and a sentence."""
    differences = pair_with_reference(rows, "D_re_pred", "brio")
    sentences = describe_differences(differences, "brio", "predictive variation", partial(format_signed, digits=3))
    table = differences.rename(columns={"minus brio": "variation minus BRIO"}).drop(columns="warning")
    return table, " ".join(["Predictive variation is compared fold by fold.", *sentences])


def _list_methods(context: StudyContext) -> list[Arm]:
    return [make_arm(name) for name in context.methods or context.select_runnable_methods(METHODS)]


@register_study("agreement", _list_methods)
def relate_discrepancy_to_variation(context: StudyContext, arms: list[Arm]) -> Finding:
    """Relate site discrepancy D_site to predictive variation across methods (appendix)."""
    from ..diagnostics import discordance, spearman

    rows = _diagnose_arms(context, arms)
    summary = _average_measures(rows)
    (rho, *rho_ends), (rate, *rate_ends) = spearman(rows), 100 * np.array(discordance(rows))
    text, statistics = [], []
    brackets = [bracket_interval(rho_ends, "{:.2f}".format, whole=2)]
    brackets.append(bracket_interval(rate_ends, "{:.0f}".format, whole=100))
    if rho == rho:
        text.append(
            f"Spearman's rho between D_site and predictive variation over {len(rows)} runs is {rho:.2f}{brackets[0]}."
        )
        statistics.append(f"rho = {rho:.2f}{brackets[0]}")
    if rate == rate:
        least_site, least_re = (summary.loc[summary[column].idxmin(), "arm"] for column in ("D_site", "D_re_pred"))
        text += [
            f"{rate:.0f}%{brackets[1]} of the pairs of methods in the same fold and seed are discordant, that is, the "
            "method with the smaller D_site has the larger predictive variation.",
            f"Mean D_site is lowest for {display_name(least_site)}. Mean predictive variation is lowest for "
            f"{display_name(least_re)}.",
        ]
        statistics.append(f"discordant pairs: {rate:.0f}%{brackets[1]}")
    if "brio" in set(rows["arm"]) and len(summary) > 1:
        differences, sentence = _compare_variation(rows)
        summary = summary.merge(differences, on="arm", how="left")
        text.append(sentence)
    if any(brackets):
        text.append(f"Brackets show 95% bootstrap intervals over folds. {_OVERLAP}")
    text += describe_left_out(context, METHODS)
    return Finding(rows, summary, text, lambda: _draw_methods(rows, summary, statistics))


def _label_measures(axis: Any, title: str, log: str, **legend: Any) -> None:
    """Label the axes of a figure of predictive variation against D_site."""
    x, y = "site discrepancy D_site (source sites)", "normalised predictive variation"
    label_axis(axis, x, y, title=title, log=log, legend=OUTSIDE | legend)


def _draw_methods(rows: pd.DataFrame, summary: pd.DataFrame, statistics: list[str]) -> Any:
    figure, (axis,) = make_panels(1, 6.4, 4.2)
    for k, (_, row) in enumerate(summary.iterrows()):
        style, runs = series_style(k), rows[rows["arm"] == row["arm"]]
        axis.scatter(runs["D_site"], runs["D_re_pred"], s=9, alpha=0.25, linewidths=0, **style)
        large = {"s": 80, "edgecolors": "white", "zorder": 3, "label": display_name(row["arm"])}
        axis.scatter(row["D_site"], row["D_re_pred"], **large, **style)
    _label_measures(axis, f"large markers: means; small markers: runs\n{'; '.join(statistics)}".strip(), "xy")
    return figure


LAMBDAS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
MATCHED = "matched w/o QG"


def make_strength_arms(context: StudyContext) -> dict[float, Arm]:
    """Make an arm of BRIO w/o QG for each lambda_env.

    Zero is the backbone and the default is the plain variant, so that their runs are shared with other studies.
    """
    default = context.settings_of("brio-wo-qg").lambda_env
    shared = {default: make_arm("brio-wo-qg"), 0.0: make_arm("backbone")}
    return {value: shared.get(value, make_arm("brio-wo-qg", lambda_env=value)) for value in LAMBDAS}


def _list_strengths(context: StudyContext) -> list[Arm]:
    return [*make_strength_arms(context).values(), make_arm("brio")]


def select_matched_runs(rows: pd.DataFrame) -> pd.DataFrame:
    """Select the run with the best validation AUC among those with positive lambda_env, for each fold and seed.

    Of runs with the same AUC, the one with the smallest lambda_env is selected.
    """
    aligned = rows[rows["lambda_env"] > 0]
    best = aligned.sort_values("lambda_env").groupby(["fold", "seed"])["validation_auc"].idxmax()
    return aligned.loc[best].assign(arm=MATCHED)


@register_study("alignment", _list_strengths)
def vary_alignment(context: StudyContext, arms: list[Arm]) -> Finding:
    """Vary lambda_env without qualification, and compare D_site and predictive variation with those of BRIO.

    The matched setting is chosen for each fold and seed on its own validation scans.
    """
    by_strength = make_strength_arms(context)
    strengths = {a.name: value for value, a in by_strength.items()}
    rows = _diagnose_arms(context, arms)
    rows = rows.assign(lambda_env=rows["arm"].map(strengths))
    rows = pd.concat([rows, select_matched_runs(rows)], ignore_index=True)
    summary = _average_measures(rows)
    summary.insert(1, "lambda_env", summary["arm"].map(strengths))
    differences, sentence = _compare_variation(rows)
    by_arm = summary.set_index("arm")
    described = {f"w/o QG at lambda_env {value:g}": by_strength[value].name for value in (LAMBDAS[0], LAMBDAS[-1])}
    text = []
    for name, arm in (described | {"BRIO": "brio", "Matched w/o QG": MATCHED}).items():
        D_site, D_re_pred, auc = by_arm.loc[arm, ["D_site", "D_re_pred", "AUC"]]
        text.append(
            f"{name}: mean D_site {D_site:.3g}, mean predictive variation {D_re_pred:.3g}, mean AUC {auc:.1f}%."
        )
    shown = summary.merge(differences, on="arm", how="left")
    return Finding(rows, shown, [*text, sentence, _OVERLAP], lambda: _draw_strengths(summary, differences))


def _draw_strengths(summary: pd.DataFrame, differences: pd.DataFrame) -> Any:
    figure, (axis,) = make_panels(1, 7.4, 4.0)
    p = differences.set_index("arm")["p"]
    line = summary[summary["lambda_env"].notna() & (summary["arm"] != MATCHED)].sort_values("lambda_env")
    least, most = (state_p(f(p[line["arm"]])) for f in (min, max))
    label = f"w/o QG\n({least if least == most else f'{least} to {most}'})"
    axis.plot(line["D_site"], line["D_re_pred"], "-", linewidth=1.2, markersize=6, label=label, **series_style(0))
    for _, row in line.iterrows():
        beside = {"xytext": (-4, 6), "textcoords": "offset points", "fontsize": 8, "ha": "right"}
        axis.annotate(f"{row['lambda_env']:g}", (row["D_site"], row["D_re_pred"]), **beside)
    for k, name in enumerate(("brio", MATCHED), 1):
        row = summary[summary["arm"] == name].iloc[0]
        label = "\n".join([display_name(name), *(f"({state_p(value)})" for value in p[p.index == name])])
        axis.scatter(row["D_site"], row["D_re_pred"], s=80, zorder=3, label=label, **series_style(k))
    title = "means over runs; alignment arms are labelled with lambda_env\n"
    title += "p: difference in variation from BRIO, adjusted (Holm)"
    _label_measures(axis, title, "x", labelspacing=1.0)
    return figure


KINDS = {"mismatch": "total", "auc_preserved_mismatch": "AUC-preserved"}
"""Kinds of mismatches: columns of the table, and their names."""

_RATES = {"mismatch": "mismatches, %", "auc_preserved_mismatch": "AUC-preserved mismatches, %"}


@register_study("mismatch", _list_strengths)
def count_mismatches(context: StudyContext, arms: list[Arm]) -> Finding:
    """Count runs with low site discrepancy and high predictive variation (appendix).

    The paper does not give its tolerance on validation AUC; :data:`~brio.diagnostics.DELTA_AUC` is ours.
    """
    from ..diagnostics import DELTA_AUC, mark_mismatches

    table = mark_mismatches(_diagnose_arms(context, arms), "backbone")
    summary = _average_runs(table, _RATES)
    tests = {kind: pair_with_reference(table.assign(rate=100 * table[kind]), "rate", "brio") for kind in KINDS}
    total = summary.set_index("arm")[_RATES["mismatch"]]
    others = total.drop("brio")
    text = [
        f"{total['brio']:.0f}% of the runs of BRIO are mismatches, compared with {others.mean():.0f}% of the runs of "
        f"w/o QG ({others.min():.0f} to {others.max():.0f}%, depending on lambda_env).",
        f"A run is a mismatch if its D_site is below and its predictive variation above the median of all {len(table)} "
        f"runs. The validation AUC of a run counts as preserved if it is at most {100 * DELTA_AUC:g} point below "
        "that of the backbone in the same fold and seed. Rates are compared fold by fold.",
        *(" ".join(describe_differences(tests[kind], "brio", f"{KINDS[kind]} mismatch rate")) for kind in KINDS),
        _OVERLAP,
    ]
    differences = tests["mismatch"].rename(columns={"minus brio": "total minus BRIO"}).drop(columns="warning")
    shown = summary.merge(differences, on="arm", how="left")
    labels = {a.name: f"w/o QG,\n{value:g}" for value, a in make_strength_arms(context).items()} | {"brio": "BRIO"}
    return Finding(table, shown, text, lambda: _draw_rates(summary, labels, tests))


def _draw_rates(summary: pd.DataFrame, labels: dict[str, str], tests: dict[str, pd.DataFrame]) -> Any:
    figure, (axis,) = make_panels(1, 7.4, 3.6)
    x = np.arange(len(summary))
    for k, (kind, label) in enumerate(KINDS.items()):
        hatching = {"hatch": "//", "edgecolor": "white"} if k else {}
        look = {"color": series_style(k)["color"], "label": label} | hatching
        bars = axis.bar(x + 0.36 * (k - 0.5), summary[_RATES[kind]], 0.34, **look)
        p = tests[kind].set_index("arm")["p"]
        p_texts = [format_p(p[name]) if name in p else "" for name in summary["arm"]]
        axis.bar_label(bars, p_texts, padding=2, fontsize=7, color="0.3")
    axis.set_xticks(x, [labels[str(name)] for name in summary["arm"]], fontsize=8)
    title = "above bars: p of the comparison with BRIO, after Holm's correction"
    x_label, legend = "BRIO w/o QG at each lambda_env, and BRIO", ABOVE | {"ncols": 2}
    label_axis(axis, x_label, "mismatches, % of runs", title=title, legend=legend)
    return figure

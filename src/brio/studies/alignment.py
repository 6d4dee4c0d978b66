"""What stronger alignment without qualification does, compared with BRIO."""

from __future__ import annotations

from typing import Any

import pandas as pd

from ..drawing import make_panels, series_style
from ..formatting import state_p
from .agreement import OVERLAP, average_runs, compare_variation, diagnose_arms
from .context import Arm, StudyContext, display_name, make_arm
from .study import Finding, register_study
from .summaries import label_log_ticks

LAMBDAS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
MATCHED = "matched w/o QG"


def make_strength_arms(context: StudyContext) -> dict[float, Arm]:
    """Make an arm of BRIO w/o QG for each lambda_env.

    Zero is the backbone and the default is the plain variant, so that their runs are shared with other studies.
    """
    default = context.settings_of("brio-wo-qg").lambda_env
    shared = {default: make_arm("brio-wo-qg"), 0.0: make_arm("backbone")}
    return {value: shared.get(value, make_arm("brio-wo-qg", lambda_env=value)) for value in LAMBDAS}


def _list_arms(context: StudyContext) -> list[Arm]:
    return [*make_strength_arms(context).values(), make_arm("brio")]


def select_matched_runs(rows: pd.DataFrame) -> pd.DataFrame:
    """Select the run with the best validation AUC among those with positive lambda_env, for each fold and seed.

    Of runs with the same AUC, the one with the smallest lambda_env is selected.
    """
    aligned = rows[rows["lambda_env"] > 0]
    best = aligned.sort_values("lambda_env").groupby(["fold", "seed"])["validation_auc"].idxmax()
    return aligned.loc[best].assign(arm=MATCHED)


@register_study(
    "alignment",
    "Alignment strength without qualification",
    "Stronger alignment lowers both site discrepancy and predictive variation. At comparable site discrepancy, the "
    "full method has a lower predictive variation than w/o QG.",
    _list_arms,
)
def vary_alignment(context: StudyContext) -> Finding:
    """Vary lambda_env without qualification, and compare D_site and predictive variation with those of BRIO.

    The matched setting is chosen for each fold and seed on its own validation scans.
    """
    arms = make_strength_arms(context)
    strengths = {a.name: value for value, a in arms.items()}
    rows = diagnose_arms(context, _list_arms(context))
    rows = rows.assign(lambda_env=rows["arm"].map(strengths))
    rows = pd.concat([rows, select_matched_runs(rows)], ignore_index=True)
    summary = average_runs(rows)
    summary.insert(1, "lambda_env", summary["arm"].map(strengths))
    differences, sentence = compare_variation(rows)
    by_arm = summary.set_index("arm")
    weakest, strongest = by_arm.loc[arms[LAMBDAS[0]].name], by_arm.loc[arms[LAMBDAS[-1]].name]
    text = [
        f"Between lambda_env {LAMBDAS[0]:g} and {LAMBDAS[-1]:g}, D_site changes from {weakest['D_site']:.3g} to "
        f"{strongest['D_site']:.3g}, and predictive variation from {weakest['D_re_pred']:.3g} to "
        f"{strongest['D_re_pred']:.3g}.",
        _describe_means("BRIO", by_arm.loc["brio"]),
        _describe_means("Matched w/o QG", by_arm.loc[MATCHED]),
        sentence,
        OVERLAP,
    ]
    shown = summary.merge(differences, on="arm", how="left")
    return Finding(rows, shown, text, lambda: _draw(summary, differences))


def _describe_means(name: str, means: pd.Series) -> str:
    return (
        f"{name} has a D_site of {means['D_site']:.3g}, a predictive variation of {means['D_re_pred']:.3g} and an AUC "
        f"of {means['AUC']:.1f} %."
    )


def _draw(summary: pd.DataFrame, differences: pd.DataFrame) -> Any:
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
    axis.set_xlabel("site discrepancy D_site of source sites", fontsize=9)
    axis.set_ylabel("normalised predictive variation", fontsize=9)
    axis.set_xscale("log")
    label_log_ticks(axis.xaxis)
    title = "means over runs, labelled with lambda_env\np: variation compared with BRIO, after Holm's correction"
    axis.set_title(title, fontsize=9, loc="left")
    axis.legend(fontsize=8, frameon=False, bbox_to_anchor=(1.01, 1), loc="upper left", labelspacing=1.0)
    return figure

"""Aligning more strongly without qualification, against qualification."""

from __future__ import annotations

from typing import Any

import pandas as pd

from ..drawing import make_panels, series_style
from ..results.format import state_p
from .agreement import OVERLAP, diagnosed, means, steadiness
from .arms import Arm, arm, display_name
from .context import StudyContext
from .study import Finding, study

__all__ = ["alignment", "sweep"]

LAMBDAS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)
MATCHED = "matched w/o QG"


def sweep(context: StudyContext) -> dict[float, Arm]:
    """w/o QG at each lambda_env; zero is the backbone, the default the plain variant, as in other studies."""
    default = context.settings_of("brio-wo-qg").lambda_env
    plain = {default: arm("brio-wo-qg"), 0.0: arm("backbone")}
    return {v: plain.get(v, arm("brio-wo-qg", lambda_env=v)) for v in LAMBDAS}


def _arms(context: StudyContext) -> list[Arm]:
    return [*sweep(context).values(), arm("brio")]


def matched(rows: pd.DataFrame) -> pd.DataFrame:
    """For each fold and seed the run with the best validation AUC among those with positive lambda_env."""
    aligned = rows[rows["lambda_env"] > 0]
    best = aligned.sort_values("lambda_env").groupby(["fold", "seed"])["validation_auc"].idxmax()
    return aligned.loc[best].assign(arm=MATCHED)


@study(
    "alignment",
    "Alignment strength without qualification",
    "stronger alignment lowers both quantities; the full method has lower predictive variation than w/o QG at "
    "comparable site discrepancy.",
    _arms,
)
def alignment(context: StudyContext) -> Finding:
    """D_site and predictive variation of w/o QG along lambda_env, the full method and the matched setting beside it.

    The matched setting is chosen for each fold and seed on its own validation scans.
    """
    strengths = sweep(context)
    rows = diagnosed(context, _arms(context))
    known = {a.name: value for value, a in strengths.items()}
    rows = rows.assign(lambda_env=rows["arm"].map(known))
    rows = pd.concat([rows, matched(rows)], ignore_index=True)
    summary = means(rows)
    summary.insert(1, "lambda_env", summary["arm"].map(known))
    against, told = steadiness(rows)
    by = summary.set_index("arm")
    least, most = by.loc[strengths[LAMBDAS[0]].name], by.loc[strengths[LAMBDAS[-1]].name]
    full, near = by.loc["brio"], by.loc[MATCHED]
    text = [
        f"From lambda_env {LAMBDAS[0]:g} to {LAMBDAS[-1]:g}, D_site goes from {least['D_site']:.3g} to "
        f"{most['D_site']:.3g} and predictive variation from {least['D_re_pred']:.3g} to {most['D_re_pred']:.3g}.",
        f"BRIO: D_site {full['D_site']:.3g}, variation {full['D_re_pred']:.3g}, AUC {full['AUC']:.1f}; matched w/o "
        f"QG: {near['D_site']:.3g}, {near['D_re_pred']:.3g}, {near['AUC']:.1f}.",
        told,
        OVERLAP,
    ]
    return Finding(rows, summary.merge(against, on="arm", how="left"), text, lambda: _draw(summary, against))


def _draw(summary: pd.DataFrame, against: pd.DataFrame) -> Any:
    figure, (axis,) = make_panels(1, 7.4, 4.0)
    p = against.set_index("arm")["p"]
    line = summary[summary["lambda_env"].notna() & (summary["arm"] != MATCHED)].sort_values("lambda_env")
    least, most = (state_p(f(p[line["arm"]])) for f in (min, max))
    label = f"w/o QG\n({least if least == most else f'{least} to {most}'})"
    axis.plot(line["D_site"], line["D_re_pred"], "-", linewidth=1.2, markersize=6, label=label, **series_style(0))
    for _, row in line.iterrows():
        beside = {"xytext": (-4, 6), "textcoords": "offset points", "fontsize": 8, "ha": "right"}
        axis.annotate(f"{row['lambda_env']:g}", (row["D_site"], row["D_re_pred"]), **beside)
    for k, name in enumerate(("brio", MATCHED), 1):
        row = summary[summary["arm"] == name].iloc[0]
        label = "\n".join([display_name(name), *(f"({state_p(v)})" for v in p[p.index == name])])
        axis.scatter(row["D_site"], row["D_re_pred"], s=80, zorder=3, label=label, **series_style(k))
    axis.set_xlabel("site discrepancy D_site of source sites", fontsize=9)
    axis.set_ylabel("normalised predictive variation", fontsize=9)
    axis.set_xscale("log")
    title = "means over runs; numbers: lambda_env; p: variation against that of BRIO, corrected"
    axis.set_title(title, fontsize=9, loc="left")
    axis.legend(fontsize=8, frameon=False, bbox_to_anchor=(1.01, 1), loc="upper left", labelspacing=1.0)
    return figure

"""Both propositions of the paper, checked in trained models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ..drawing import make_panels, series_style
from .context import Arm, StudyContext, make_arm
from .study import Finding, register_study
from .summaries import label_log_ticks


def _list_arms(context: StudyContext) -> list[Arm]:
    return [make_arm("brio")]


@register_study(
    "propositions",
    "Propositions 1 and 2 in trained models",
    "Both are theorems, so a violation would be an error in this code. The paper does not report how tight the bound "
    "is, nor how often its sign rule applies.",
    _list_arms,
)
def check_propositions(context: StudyContext) -> Finding:
    """Check the bound and sign rule of Proposition 1, Eq. (17), and the gain of Proposition 2, Eqs. (20) and (21)."""
    first, second = _check_runs(context)
    facts = context.trained_results(make_arm("brio")).facts
    applicable = first[first["sign_condition"]]
    kept_where_applicable = 100 * applicable["sign_kept"].mean() if len(applicable) else float("nan")
    tightness = (first["change"] / first["bound"].where(first["bound"] > 0)).median()
    quantities = {
        "Prop. 1: sites and factors": f"{len(first)}",
        "Prop. 1: bound holds, %": f"{100 * first['holds'].mean():.1f}",
        "Prop. 1: change over bound, median": f"{tightness:.3f}",
        "Prop. 1: sign rule applies, %": f"{100 * first['sign_condition'].mean():.1f}",
        "Prop. 1: sign kept where the rule applies, %": f"{kept_where_applicable:.1f}" if len(applicable) else "-",
        "Prop. 1: sign kept overall, %": f"{100 * first['sign_kept'].mean():.1f}",
        "Prop. 2: pairs of sites and classes": f"{len(second)}",
        "Prop. 2: identities hold, %": f"{100 * second['holds'].mean():.1f}",
        "Prop. 2: reweighting gain, mean": f"{second['gain'].mean():.4f}",
        "Prop. 2: strength g, mean": f"{second['g'].mean():.4f}",
    }
    summary = pd.DataFrame(quantities.items(), columns=["quantity", "value"]).assign(**facts)
    where_applicable = f", where the sign is kept in {kept_where_applicable:.0f} %" if len(applicable) else ""
    text = [
        f"The bound of Proposition 1 holds for {first['holds'].sum()} of {len(first)} combinations of site and "
        f"factor. The median change of a class contrast is {100 * tightness:.0f} % of its bound.",
        f"The sign rule applies to {100 * first['sign_condition'].mean():.0f} % of them{where_applicable}. Overall the "
        f"sign is kept in {100 * first['sign_kept'].mean():.0f} %.",
        f"Reweighting by support lowers the support penalty by {second['gain'].mean():.3g} on average (Proposition 2).",
    ]
    table = pd.concat([first.assign(proposition=1), second.assign(proposition=2)], ignore_index=True).assign(**facts)
    table = table.astype({"factor": "Int64", "label": "Int64"})
    return Finding(table, summary, text, lambda: _draw(first, second), digits=6)


def _check_runs(context: StudyContext) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Check both propositions in every run of BRIO."""
    from ..diagnostics import check_proposition_1, check_proposition_2, gather_factor_evidence

    method, fitted_runs = context.load_fitted_runs(make_arm("brio"))
    lengths = [context.estimate_block_length(fitted.run) for fitted in fitted_runs]
    evidences = gather_factor_evidence(method, fitted_runs, context.connectomes, lengths)
    first, second = [], []
    for fitted, evidence in zip(fitted_runs, evidences, strict=True):
        run = {"fold": fitted.run.fold.name, "seed": fitted.run.seed}
        first.append(check_proposition_1(evidence).assign(**run))
        second.append(check_proposition_2(evidence).assign(**run))
    return pd.concat(first, ignore_index=True), pd.concat(second, ignore_index=True)


def _draw(first: pd.DataFrame, second: pd.DataFrame) -> Any:
    figure, (left, right) = make_panels(2, 8.6, 3.6)
    _draw_bound(left, first)
    edges = np.linspace(0, max(float(second["gain"].max()), 1e-6), 30)
    right.hist(second["gain"], bins=edges, color=series_style(0)["color"])
    right.set_yscale("log")
    label_log_ticks(right.yaxis)
    right.set_xlabel("reweighting gain", fontsize=9)
    right.set_ylabel("site pairs and classes", fontsize=9)
    right.set_title("Proposition 2", fontsize=9, loc="left")
    return figure


def _draw_bound(axis: Any, first: pd.DataFrame) -> None:
    """Draw the change of each class contrast against its bound; no point lies above the diagonal."""
    applies = first["sign_condition"].astype(bool)
    for k, (mask, label) in enumerate(((~applies, "sign rule does not apply"), (applies, "sign rule applies"))):
        points, style = first[mask], {"s": 6, "alpha": 0.3, "linewidths": 0, **series_style(k)}
        axis.scatter(points["bound"], points["change"], label=label, rasterized=True, **style)
    axis.set_xscale("log")
    axis.set_yscale("log")
    limits = _log_limits(first["bound"])
    axis.plot(limits, limits, color="0.5", linewidth=0.8)
    middle = float(np.sqrt(limits[0] * limits[1]))
    beside = {"xytext": (-4, 4), "textcoords": "offset points", "ha": "right", "fontsize": 8, "color": "0.3"}
    axis.annotate("change = bound", (middle, middle), **beside)
    axis.set_xlim(limits)
    axis.set_ylim(_log_limits(first["change"])[0], limits[1])
    label_log_ticks(axis.xaxis)
    label_log_ticks(axis.yaxis)
    axis.set_xlabel("bound on the change of the class contrast", fontsize=9)
    axis.set_ylabel("change under re-estimation", fontsize=9)
    axis.set_title("Proposition 1", fontsize=9, loc="left")
    legend = axis.legend(fontsize=8, frameon=False, loc="lower right", markerscale=1.8)
    for handle in legend.legend_handles:
        handle.set_alpha(1.0)


def _log_limits(values: pd.Series) -> tuple[float, float]:
    """Return limits of a logarithmic axis, with a little room around the positive values."""
    positive = values[values > 0]
    return (float(positive.min()) / 1.5, float(positive.max()) * 1.5) if len(positive) else (0.1, 1.0)

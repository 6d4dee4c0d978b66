"""Both propositions of the paper, factor by factor, in trained models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ..diagnostics import check_proposition_1, check_proposition_2, gather_factor_evidence
from ..drawing import make_panels, series_style
from .arms import Arm, arm
from .context import StudyContext
from .study import Finding, study

__all__ = ["propositions"]


def _arms(context: StudyContext) -> list[Arm]:
    return [arm("brio")]


@study(
    "propositions",
    "Propositions 1 and 2 in trained models",
    "both are theorems, so a violation would be a fault of ours; how far the bound is from what happens, and how "
    "often its sign rule applies, the paper does not report.",
    _arms,
)
def propositions(context: StudyContext) -> Finding:
    """Bound and sign rule of Proposition 1, Eq. (17), and the reweighting gain of Proposition 2, Eqs. (20) and (21)."""
    method, fitted_runs = context.fitted_runs(arm("brio"))
    lengths = [context.block_length(o.run) for o in fitted_runs]
    firsts, seconds = [], []
    for fitted, evidence in zip(
        fitted_runs, gather_factor_evidence(method, fitted_runs, context.connectomes, lengths), strict=True
    ):
        who = {"fold": fitted.run.fold.name, "seed": fitted.run.seed}
        firsts.append(check_proposition_1(evidence).assign(**who))
        seconds.append(check_proposition_2(evidence).assign(**who))
    first, second = pd.concat(firsts, ignore_index=True), pd.concat(seconds, ignore_index=True)
    facts = context.trained_results(arm("brio")).facts
    applies = first[first["sign_condition"]]
    kept = 100 * applies["sign_kept"].mean() if len(applies) else float("nan")
    tight = (first["change"] / first["bound"].where(first["bound"] > 0)).median()
    quantities = {
        "Prop. 1: sites and factors": f"{len(first)}",
        "Prop. 1: bound holds, %": f"{100 * first['holds'].mean():.1f}",
        "Prop. 1: change over bound, median": f"{tight:.3f}",
        "Prop. 1: sign rule applies, %": f"{100 * first['sign_condition'].mean():.1f}",
        "Prop. 1: sign kept where it applies, %": f"{kept:.1f}" if len(applies) else "-",
        "Prop. 1: sign kept in all, %": f"{100 * first['sign_kept'].mean():.1f}",
        "Prop. 2: pairs of sites and classes": f"{len(second)}",
        "Prop. 2: identities hold, %": f"{100 * second['holds'].mean():.1f}",
        "Prop. 2: reweighting gain, mean": f"{second['gain'].mean():.4f}",
        "Prop. 2: strength g, mean": f"{second['g'].mean():.4f}",
    }
    summary = pd.DataFrame(quantities.items(), columns=["quantity", "value"]).assign(**facts)
    text = [
        f"The bound of Proposition 1 holds for {first['holds'].sum()} of {len(first)} sites and factors; the median "
        f"change of a class contrast is {100 * tight:.0f} % of its bound.",
        f"The sign rule applies to {100 * first['sign_condition'].mean():.0f} % of them"
        + (f", and there the sign was kept in {kept:.0f} %" if len(applies) else "")
        + f"; over all it was kept in {100 * first['sign_kept'].mean():.0f} %.",
        f"Reweighting by support saves {second['gain'].mean():.3g} in support penalty on average (Proposition 2).",
    ]
    table = pd.concat([first.assign(proposition=1), second.assign(proposition=2)], ignore_index=True).assign(**facts)
    table = table.astype({"factor": "Int64", "label": "Int64"})
    return Finding(table, summary, text, lambda: _draw(first, second), digits=6)


def _draw(first: pd.DataFrame, second: pd.DataFrame) -> Any:
    figure, (left, right) = make_panels(2, 8.6, 3.6)
    applies = first["sign_condition"].astype(bool)
    for k, (those, label) in enumerate(((~applies, "sign rule silent"), (applies, "sign rule applies"))):
        mine = first[those]
        look = series_style(k)
        left.scatter(mine["bound"], mine["change"], s=6, alpha=0.3, linewidths=0, label=label, rasterized=True, **look)
    left.set_xscale("log")
    left.set_yscale("log")
    where = _span(first["bound"])
    left.plot(where, where, color="0.5", linewidth=0.8)
    middle = float(np.sqrt(where[0] * where[1]))
    beside = {"xytext": (-4, 4), "textcoords": "offset points", "ha": "right", "fontsize": 8, "color": "0.3"}
    left.annotate("change = bound", (middle, middle), **beside)
    left.set_xlim(where)
    left.set_ylim(_span(first["change"])[0], where[1])
    left.set_xlabel("bound on the change of the class contrast", fontsize=9)
    left.set_ylabel("change under re-estimation", fontsize=9)
    left.legend(fontsize=8, frameon=False, loc="lower right", markerscale=1.8)
    right.hist(
        second["gain"], bins=np.linspace(0, max(float(second["gain"].max()), 1e-6), 30), color=series_style(0)["color"]
    )
    right.set_yscale("log")
    right.set_xlabel("reweighting gain", fontsize=9)
    right.set_ylabel("site pairs and classes", fontsize=9)
    return figure


def _span(values: pd.Series) -> tuple[float, float]:
    """Ends of a logarithmic axis, from the smallest value to the largest with a little room; nought has no place."""
    seen = values[values > 0]
    return (float(seen.min()) / 1.5, float(seen.max()) * 1.5) if len(seen) else (0.1, 1.0)

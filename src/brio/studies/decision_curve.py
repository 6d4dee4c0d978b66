"""Whether deciding by the predicted probability is better than treating everybody, or nobody."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ..drawing import make_panels, series_style
from ..protocol.recalibration import compute_net_benefit
from .arms import display_name
from .context import StudyContext
from .estimands import compute_site_interval, list_own_arms, read_arm_predictions
from .study import Finding, register_study

__all__ = ["draw_decision_curve"]

THRESHOLDS = np.round(np.arange(0.05, 0.96, 0.05), 2)
"""Probabilities above which somebody is treated."""

_SHOWN = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


@register_study(
    "decision-curve",
    "Decision curve: net benefit at new sites",
    "It has no decision curve.",
    list_own_arms,
)
def draw_decision_curve(context: StudyContext) -> Finding:
    """Compare the net benefit of a method (default ridge) with that of treating all and treating none."""
    arms = list_own_arms(context)
    parts = [
        _score_runs(read_arm_predictions(context, a)).assign(arm=a.name, **context.results_of(a).facts) for a in arms
    ]
    table = pd.concat(parts, ignore_index=True)
    table = table[["arm", *(name for name in table.columns if name != "arm")]]
    curves = {a.name: _average(rows) for a, rows in zip(arms, parts, strict=True)}
    text = [_describe(name, curve) for name, curve in curves.items()]
    text.append(
        "Net benefit counts true positives, less false positives times the odds of the threshold, per scan, averaged "
        "over test sites. It depends on the share of patients, which is that of this cohort and not that of a clinic."
    )
    shown = [
        {"method": display_name(name.split(",")[0]), "threshold": f"{t:.1f}"} | _format_row(curve.loc[t])
        for name, curve in curves.items()
        for t in _SHOWN
    ]
    return Finding(table, pd.DataFrame(shown), text, lambda: _draw(curves), digits=6)


def _score_runs(predictions: pd.DataFrame) -> pd.DataFrame:
    """One row per run and threshold: net benefit of the method and of treating all."""
    parts = []
    for (fold, seed), run in predictions.groupby(["fold", "seed"], sort=False):
        label, probability = run["label"].to_numpy(), run["probability"].to_numpy(dtype=float)
        parts.append(
            pd.DataFrame(
                {
                    "fold": fold,
                    "seed": seed,
                    "threshold": THRESHOLDS,
                    "net_benefit": compute_net_benefit(label, probability, THRESHOLDS),
                    "treat_all": compute_net_benefit(label, np.ones(len(label)), THRESHOLDS),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def _average(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over sites, seeds averaged first, with intervals of the method and of its gain. [threshold x columns]."""
    by_site = rows.groupby(["threshold", "fold"])[["net_benefit", "treat_all"]].mean()
    better_rule_is_all = by_site.groupby("threshold")["treat_all"].transform("mean") > 0
    by_site["gain"] = by_site["net_benefit"] - by_site["treat_all"].where(
        better_rule_is_all, 0.0
    )  # paired at each site
    curve = by_site.groupby("threshold").mean()
    for column in ("net_benefit", "gain"):
        intervals = [compute_site_interval(own.to_numpy()) for _, own in by_site[column].groupby("threshold")]
        curve[[f"{column} low", f"{column} high"]] = intervals
    return curve


def _format_row(row: pd.Series) -> dict[str, str]:
    return {
        "net benefit": f"{row['net_benefit']:z.3f}",
        "treat all": f"{row['treat_all']:z.3f}",
        "gain over the better of all and none": f"{row['gain']:+z.3f}",
        "interval of gain": f"{row['gain low']:+z.3f} to {row['gain high']:+z.3f}",
    }


def _describe(name: str, curve: pd.DataFrame) -> str:
    """At which thresholds the method is better than both simple rules."""
    better = curve.index[(curve["gain low"] > 0).to_numpy()]
    shown = display_name(name.split(",")[0])
    if not len(better):
        return f"{shown}: at no threshold is the net benefit above that of treating all and of treating none."
    best = curve["gain"].idxmax()
    listed = f"{better[0]:.2f}" if len(better) == 1 else f"{better[0]:.2f} to {better[-1]:.2f}"
    if len(better) > 1 and len(better) < round((better[-1] - better[0]) / 0.05) + 1:
        listed = ", ".join(f"{t:.2f}" for t in better)
    return (
        f"{shown}: the net benefit is above that of treating all and of treating none at thresholds {listed} (95 % "
        f"interval above 0); the gain is largest at {best:.2f}, {curve.loc[best, 'gain']:.3f}."
    )


def _draw(curves: dict[str, pd.DataFrame]) -> Any:
    figure, (axis,) = make_panels(1, 6.4, 3.8)
    first = next(iter(curves.values()))
    axis.plot(first.index, first["treat_all"], color="0.35", linewidth=1.2, linestyle=(0, (4, 2)), label="treat all")
    axis.axhline(0, color="0.35", linewidth=1.2, linestyle=(0, (1, 1.5)), label="treat none")
    for k, (name, curve) in enumerate(curves.items()):
        style = series_style(k)
        axis.fill_between(
            curve.index,
            curve["net_benefit low"],
            curve["net_benefit high"],
            color=style["color"],
            alpha=0.15,
            linewidth=0,
        )
        axis.plot(curve.index, curve["net_benefit"], markersize=4, label=display_name(name.split(",")[0]), **style)
    top = max(float(curve["net_benefit high"].max()) for curve in curves.values())
    axis.set_ylim(-0.12, 1.08 * max(top, 0.1))
    axis.set_xlim(0, 1)
    axis.set_xlabel("threshold probability", fontsize=9)
    axis.set_ylabel("net benefit per scan, mean over sites\n(95 % interval)", fontsize=9)
    axis.legend(fontsize=8, frameon=False, loc="upper right")
    return figure

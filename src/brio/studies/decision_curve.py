"""Whether deciding by the predicted probability is better than treating everybody, or nobody."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ..drawing import horizontal_offset, make_panels, series_style
from ..protocol.calibration import compute_net_benefit
from .context import StudyContext, display_name
from .study import Finding, register_study
from .summaries import compute_error_bars, compute_site_interval, list_own_arms, tabulate_arms

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
    table, parts = tabulate_arms(context, arms, _score_runs)
    curves = {a.name: average_net_benefit(rows) for a, rows in zip(arms, parts, strict=True)}
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


def average_net_benefit(rows: pd.DataFrame) -> pd.DataFrame:
    """Average net benefit over sites, seeds first, and its gain over the better of treating all and treating none.

    Returns ``net_benefit``, ``treat_all`` and ``gain``; of the first and the last also ``low`` and ``high``, the ends
    of the 95 % interval over sites.
    """
    by_site = rows.groupby(["threshold", "fold"])[["net_benefit", "treat_all"]].mean()
    all_is_better = by_site.groupby("threshold")["treat_all"].transform("mean") > 0
    by_site["gain"] = by_site["net_benefit"] - by_site["treat_all"].where(all_is_better, 0.0)  # paired at each site
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
    """Net benefit of methods and simple rules, then the gain over the better rule with its interval."""
    figure, (left, right) = make_panels(2, 9.4, 3.8)
    first = next(iter(curves.values()))
    left.plot(first.index, first["treat_all"], color="0.35", linewidth=1.2, linestyle=(0, (4, 2)), label="treat all")
    left.axhline(0, color="0.35", linewidth=1.2, linestyle=(0, (1, 1.5)), label="treat none")
    right.axhline(0, color="0.35", linewidth=1.2, linestyle=(0, (1, 1.5)))
    for k, (name, curve) in enumerate(curves.items()):
        style, label = series_style(k), display_name(name.split(",")[0])
        left.plot(curve.index, curve["net_benefit"], markersize=4, linewidth=1.4, label=label, **style)
        bars = compute_error_bars(curve["gain"], curve["gain low"], curve["gain high"])
        x = curve.index + horizontal_offset(k, len(curves), 3 * float(THRESHOLDS[1] - THRESHOLDS[0]))
        right.errorbar(x, curve["gain"], yerr=bars, markersize=4, linewidth=1.2, elinewidth=0.9, **style)
    top = max(float(curve["net_benefit"].max()) for curve in curves.values())
    left.set_ylim(-0.12, 1.08 * max(top, 0.1))
    left.set_ylabel("net benefit per scan, mean over sites", fontsize=9)
    right.set_ylabel("gain over the better of all and none\n(95 % interval over sites)", fontsize=9)
    for axis in (left, right):
        axis.set_xlim(0, 1)
        axis.set_xlabel("threshold probability", fontsize=9)
    left.legend(fontsize=8, frameon=False, loc="upper right")
    return figure

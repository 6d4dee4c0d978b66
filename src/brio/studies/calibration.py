"""Whether probabilities hold at each new site, and what deciding by them is worth: calibration, decision-curve."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from ..drawing import horizontal_offset, make_panels, series_style
from ..formatting import format_count, format_interval, format_number, join_names
from ..protocol import t_interval
from ..protocol.calibration import (
    SiteMean,
    average_over_sites,
    compute_net_benefit,
    fit_recalibration,
    reliability_curve,
    split_brier,
)
from .context import Arm, StudyContext, display_method
from .study import Finding, register_study
from .summaries import (
    compute_error_bars,
    draw_dot,
    draw_intervals,
    label_axis,
    read_arm_predictions,
    tabulate_arms,
)

_QUANTITIES = {"slope": "calibration slope", "in_the_large": "calibration in the large"}
_IDEAL = {"slope": 1.0, "in_the_large": 0.0}
BINS = 8


@register_study("calibration", "Calibration of probabilities at new sites", "It reports no calibration.")
def measure_calibration(context: StudyContext, arms: list[Arm]) -> Finding:
    """Fit calibration slope and intercept at each test site (default ridge), and split the Brier score."""
    table = tabulate_arms(context, arms, _measure_sites)
    predictions = {a.name: read_arm_predictions(context, a) for a in arms}
    sites = table.groupby(["arm", "fold"], sort=False).mean(numeric_only=True)  # over seeds
    means = {
        (name, quantity): average_over_sites(*(sites.loc[name][[quantity, f"{quantity}_se"]].to_numpy(dtype=float).T))
        for name in predictions
        for quantity in _QUANTITIES
    }
    summary = pd.DataFrame([_summarise(name, own, means) for name, own in predictions.items()])
    text = [sentence for name in predictions for sentence in _describe_sites(name, means, sites.loc[name])]
    text.append(
        "Linear models other than logistic regression are calibrated on inner folds over their source sites; margins, "
        "and with them AUC and accuracy, stay as they are. Means over sites are of a random-effects model."
    )
    return Finding(table, summary, text, lambda: _draw_calibration(predictions, sites, means), digits=6)


def _measure_sites(predictions: pd.DataFrame) -> pd.DataFrame:
    """One row per run: recalibration at its test site, and its Brier score."""
    rows = []
    for (fold, seed), run in predictions.groupby(["fold", "seed"], sort=False):
        label, probability = run["label"].to_numpy(), run["probability"].to_numpy(dtype=float)
        rows.append(
            {"fold": fold, "seed": seed, "patients": int(label.sum()), "controls": int((1 - label).sum())}
            | fit_recalibration(label, logit(np.clip(probability, 1e-12, 1 - 1e-12)))._asdict()
            | {"predicted_share": probability.mean(), "brier": float(((probability - label) ** 2).mean())}
        )
    return pd.DataFrame(rows)


def _summarise(name: str, predictions: pd.DataFrame, means: dict[tuple[str, str], SiteMean]) -> dict[str, Any]:
    """One row of the small table: means over sites, and the Brier score of all test scans with its parts."""
    row: dict[str, Any] = {"method": display_method(name)}
    for quantity, words in _QUANTITIES.items():
        mean = means[name, quantity]
        short = words.replace("calibration ", "")
        row[short] = format_number(mean.mean)
        row[f"{short}, 95 % interval"] = format_interval((mean.low, mean.high), format_number)
        row[f"{short}, new site"] = format_interval((mean.new_low, mean.new_high), format_number)
    by_seed = [own for _, own in predictions.groupby("seed")]
    split = [split_brier(own["label"].to_numpy(), own["probability"].to_numpy(dtype=float)) for own in by_seed]
    row |= {part: float(np.mean([getattr(one, part) for one in split])) for part in split[0]._fields}
    raw = expit(predictions["logit"].to_numpy(dtype=float))
    row["brier of margins as logits"] = float(((raw - predictions["label"]) ** 2).mean())
    return {key.replace("brier", "Brier score", 1): value for key, value in row.items()}


def _describe_sites(name: str, means: dict[tuple[str, str], SiteMean], sites: pd.DataFrame) -> list[str]:
    """What was found for one method, a sentence for each quantity."""
    sentences = []
    for quantity, words in _QUANTITIES.items():
        mean, se = means[name, quantity], sites[f"{quantity}_se"]
        off = sites[(sites[quantity] - _IDEAL[quantity]).abs() > 1.96 * se]
        listed = f" ({join_names(map(str, off.index))})" if len(off) else ""
        sentences.append(
            f"{display_method(name)}, {words}: mean over {format_count(mean.n, 'site')} {format_number(mean.mean)} "
            f"(95 % interval {format_interval((mean.low, mean.high), format_number)}; at a new site "
            f"{format_interval((mean.new_low, mean.new_high), format_number)}; calibrated would be "
            f"{_IDEAL[quantity]:g}). The interval of {len(off)} of {format_count(mean.n, 'site')} excludes it{listed}."
        )
        if mean.n < len(sites):
            without = f"{len(sites) - mean.n} of {format_count(len(sites), 'site')}"
            sentences[-1] += f" It cannot be estimated at {without}: one class, or classes that do not overlap there."
    return sentences


def _draw_calibration(
    predictions: dict[str, pd.DataFrame], sites: pd.DataFrame, means: dict[tuple[str, str], SiteMean]
) -> Any:
    """The reliability curve of all test scans, then slope and intercept of each site in rows."""
    folds = sorted(sites.index.get_level_values("fold").unique())
    figure, axes = make_panels(3, 10.8, max(3.6, 1.4 + 0.21 * len(folds)), width_ratios=[1.3, 1, 1])
    for k, (name, own) in enumerate(predictions.items()):
        label, probability = own["label"].to_numpy(), own["probability"].to_numpy(dtype=float)
        curve = reliability_curve(label, probability, BINS, "quantile", own["site"].to_numpy()).dropna()
        ends, shown = (curve["low"], curve["high"]), {"linewidth": 1.2, "label": display_method(name)}
        draw_intervals(axes[0], curve["probability"], curve["observed"], *ends, k, **shown)
        for axis, quantity in zip(axes[1:], _QUANTITIES, strict=True):
            shift = k - (len(predictions) - 1) / 2
            _draw_forest(axis, sites.loc[name].reindex(folds), quantity, means[name, quantity], k, shift)
    axes[0].plot([0, 1], [0, 1], color="0.6", linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
    label_axis(axes[0], "predicted probability", "observed share of patients (95 % interval over sites)")
    axes[0].legend(fontsize=8, frameon=False, loc="upper left")
    for axis, (quantity, words) in zip(axes[1:], _QUANTITIES.items(), strict=True):
        axis.axvline(_IDEAL[quantity], color="0.6", linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
        label_axis(axis, words)
        reach = max(1.5, float((sites[quantity] - _IDEAL[quantity]).abs().max()) + 1.0)  # wider intervals are cut
        axis.set_xlim(_IDEAL[quantity] - reach, _IDEAL[quantity] + reach)
        axis.set_ylim(len(folds) + 1.2 + 0.25 * len(predictions), -0.7)
        axis.set_yticks([])
        for row in range(1, len(folds), 2):  # stripes lead the eye from the name of a site to its estimates
            axis.axhspan(row - 0.5, row + 0.5, color="0.96", linewidth=0, zorder=-1)
    axes[1].set_yticks([*range(len(folds)), len(folds) + 0.7], [*folds, "mean over sites"], fontsize=8)
    note = "Bars: 95 % intervals, cut at the edge of an axis. Thin lines of the means: 95 % interval of a new site."
    figure.supxlabel(note, fontsize=8, color="0.3")
    return figure


def _draw_forest(axis: Any, sites: pd.DataFrame, quantity: str, mean: SiteMean, k: int, shift: float) -> None:
    """Estimates of one method with their intervals, and below them the mean with its own."""
    value, se = sites[quantity].to_numpy(dtype=float), sites[f"{quantity}_se"].to_numpy(dtype=float)
    y, last = np.arange(len(sites)) + 0.26 * shift, len(sites) + 0.7 + 0.5 * shift
    draw_dot(axis, value, y, 1.96 * se, k, capsize=0, markersize=4, linewidth=1.0)
    bars = compute_error_bars([mean.mean], [mean.low], [mean.high])
    draw_dot(axis, [mean.mean], [last], bars, k, capsize=0, markersize=7, linewidth=2.4)
    axis.plot([mean.new_low, mean.new_high], [last, last], color=series_style(k)["color"], linewidth=0.8)


THRESHOLDS = np.round(np.arange(0.05, 0.96, 0.05), 2)
"""Probabilities above which somebody is treated."""

_SHOWN = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


@register_study("decision-curve", "Decision curve: net benefit at new sites", "It has no decision curve.")
def draw_decision_curve(context: StudyContext, arms: list[Arm]) -> Finding:
    """Compare the net benefit of a method (default ridge) with that of treating all and treating none."""
    table = tabulate_arms(context, arms, _score_thresholds)
    curves = {str(name): average_net_benefit(rows) for name, rows in table.groupby("arm", sort=False)}
    text = [_describe_curve(name, curve) for name, curve in curves.items()]
    text.append(
        "Net benefit counts true positives, less false positives times the odds of the threshold, per scan, averaged "
        "over test sites. It depends on the share of patients, which is that of this cohort and not that of a clinic."
    )
    shown = [
        {
            "method": display_method(name),
            "threshold": f"{t:.1f}",
            "net benefit": f"{curve.loc[t, 'net_benefit']:z.3f}",
            "treat all": f"{curve.loc[t, 'treat_all']:z.3f}",
            "gain over the better of all and none": f"{curve.loc[t, 'gain']:+z.3f}",
            "interval of gain": format_interval(curve.loc[t, ["gain low", "gain high"]].tolist(), "{:+z.3f}".format),
        }
        for name, curve in curves.items()
        for t in _SHOWN
    ]
    return Finding(table, pd.DataFrame(shown), text, lambda: draw_curves(curves), digits=6)


def _score_thresholds(predictions: pd.DataFrame) -> pd.DataFrame:
    """One row per run and threshold: net benefit of the method and of treating all."""
    parts = []
    for (fold, seed), run in predictions.groupby(["fold", "seed"], sort=False):
        label, probability = run["label"].to_numpy(), run["probability"].to_numpy(dtype=float)
        benefit = compute_net_benefit(label, probability, THRESHOLDS)
        of_all = compute_net_benefit(label, np.ones(len(label)), THRESHOLDS)
        columns = {"fold": fold, "seed": seed, "threshold": THRESHOLDS, "net_benefit": benefit, "treat_all": of_all}
        parts.append(pd.DataFrame(columns))
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
        intervals = [t_interval(own.to_numpy()) for _, own in by_site[column].groupby("threshold")]
        curve[[f"{column} low", f"{column} high"]] = intervals
    return curve


def _describe_curve(name: str, curve: pd.DataFrame) -> str:
    """At which thresholds the method is better than both simple rules."""
    better = curve.index[(curve["gain low"] > 0).to_numpy()]
    if not len(better):
        none = "at no threshold is the net benefit above that of treating all and of treating none"
        return f"{display_method(name)}: {none}."
    best = curve["gain"].idxmax()
    listed = f"{better[0]:.2f}" if len(better) == 1 else f"{better[0]:.2f} to {better[-1]:.2f}"
    if len(better) > 1 and len(better) < round((better[-1] - better[0]) / 0.05) + 1:
        listed = ", ".join(f"{t:.2f}" for t in better)
    return (
        f"{display_method(name)}: the net benefit is above that of treating all and of treating none at thresholds "
        f"{listed} (95 % interval above 0); the gain is largest at {best:.2f}, {curve.loc[best, 'gain']:.3f}."
    )


def draw_curves(curves: dict[str, pd.DataFrame]) -> Any:
    """Draw the net benefit of methods and simple rules, then the gain over the better rule with its interval."""
    figure, (left, right) = make_panels(2, 9.4, 3.8)
    first = next(iter(curves.values()))
    left.plot(first.index, first["treat_all"], color="0.35", linewidth=1.2, linestyle=(0, (4, 2)), label="treat all")
    left.axhline(0, color="0.35", linewidth=1.2, linestyle=(0, (1, 1.5)), label="treat none")
    right.axhline(0, color="0.35", linewidth=1.2, linestyle=(0, (1, 1.5)))
    for k, (name, curve) in enumerate(curves.items()):
        label = display_method(name)
        left.plot(curve.index, curve["net_benefit"], markersize=4, linewidth=1.4, label=label, **series_style(k))
        x = curve.index + horizontal_offset(k, len(curves), 3 * float(THRESHOLDS[1] - THRESHOLDS[0]))
        thin = {"capsize": 0, "markersize": 4, "linewidth": 1.2, "elinewidth": 0.9}
        draw_intervals(right, x, curve["gain"], curve["gain low"], curve["gain high"], k, **thin)
    top = max(float(curve["net_benefit"].max()) for curve in curves.values())
    left.set_ylim(-0.12, 1.08 * max(top, 0.1))
    label_axis(left, "threshold probability", "net benefit per scan, mean over sites")
    label_axis(right, "threshold probability", "gain over the better of all and none\n(95 % interval over sites)")
    for axis in (left, right):
        axis.set_xlim(0, 1)
    left.legend(fontsize=8, frameon=False, loc="upper right")
    return figure

"""Whether predicted probabilities hold at each new site."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from ..drawing import make_panels, series_style
from ..formatting import format_count, format_interval, format_number, join_names
from ..protocol.calibration import SiteMean, average_over_sites, fit_recalibration, reliability_curve, split_brier
from .context import StudyContext, display_name
from .study import Finding, register_study
from .summaries import compute_error_bars, list_own_arms, read_arm_predictions

_QUANTITIES = {"slope": "calibration slope", "in_the_large": "calibration in the large"}
_IDEAL = {"slope": 1.0, "in_the_large": 0.0}
BINS = 8


@register_study(
    "calibration",
    "Calibration of probabilities at new sites",
    "It reports no calibration.",
    list_own_arms,
)
def measure_calibration(context: StudyContext) -> Finding:
    """Fit calibration slope and intercept at each test site (default ridge), and split the Brier score."""
    arms = list_own_arms(context)
    predictions = {a.name: read_arm_predictions(context, a) for a in arms}
    parts = [
        _measure_sites(own).assign(arm=name, **context.results_of(a).facts)
        for a, (name, own) in zip(arms, predictions.items(), strict=True)
    ]
    table = pd.concat(parts, ignore_index=True)
    table = table[["arm", *(name for name in table.columns if name != "arm")]]
    sites = table.groupby(["arm", "fold"], sort=False).mean(numeric_only=True)  # over seeds
    means = {
        (name, quantity): average_over_sites(*(sites.loc[name][[quantity, f"{quantity}_se"]].to_numpy(dtype=float).T))
        for name in predictions
        for quantity in _QUANTITIES
    }
    summary = pd.DataFrame([_summarise(name, own, means) for name, own in predictions.items()])
    text = [sentence for name in predictions for sentence in _describe(name, means, sites.loc[name])]
    text.append(
        "Linear models other than logistic regression are calibrated on inner folds over their source sites; margins, "
        "and with them AUC and accuracy, stay as they are. Means over sites are of a random-effects model."
    )
    return Finding(table, summary, text, lambda: _draw(predictions, sites, means), digits=6)


def _measure_sites(predictions: pd.DataFrame) -> pd.DataFrame:
    """One row per run: recalibration at its test site, and its Brier score."""
    rows = []
    for (fold, seed), run in predictions.groupby(["fold", "seed"], sort=False):
        label, probability = run["label"].to_numpy(), run["probability"].to_numpy(dtype=float)
        rows.append(
            {"fold": fold, "seed": seed, "patients": int(label.sum()), "controls": int((1 - label).sum())}
            | fit_recalibration(label, _to_logit(probability))._asdict()
            | {"predicted_share": probability.mean(), "brier": float(((probability - label) ** 2).mean())}
        )
    return pd.DataFrame(rows)


def _to_logit(probability: np.ndarray) -> np.ndarray:
    return logit(np.clip(probability, 1e-12, 1 - 1e-12))


def _summarise(name: str, predictions: pd.DataFrame, means: dict[tuple[str, str], SiteMean]) -> dict[str, Any]:
    """One row of the small table: means over sites, and the Brier score of all test scans with its parts."""
    row: dict[str, Any] = {"method": display_name(name.split(",")[0])}
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


def _describe(name: str, means: dict[tuple[str, str], SiteMean], sites: pd.DataFrame) -> list[str]:
    """What was found for one method, a sentence for each quantity."""
    shown, sentences = display_name(name.split(",")[0]), []
    for quantity, words in _QUANTITIES.items():
        mean, se = means[name, quantity], sites[f"{quantity}_se"]
        off = sites[(sites[quantity] - _IDEAL[quantity]).abs() > 1.96 * se]
        listed = f" ({join_names(map(str, off.index))})" if len(off) else ""
        sentences.append(
            f"{shown}, {words}: mean over {format_count(mean.n, 'site')} {format_number(mean.mean)} (95 % interval "
            f"{format_interval((mean.low, mean.high), format_number)}; at a new site "
            f"{format_interval((mean.new_low, mean.new_high), format_number)}; calibrated would be "
            f"{_IDEAL[quantity]:g}). The interval of {len(off)} of {format_count(mean.n, 'site')} excludes it{listed}."
        )
        if mean.n < len(sites):
            without = f"{len(sites) - mean.n} of {format_count(len(sites), 'site')}"
            sentences[-1] += f" It cannot be estimated at {without}: one class, or classes that do not overlap there."
    return sentences


def _draw(predictions: dict[str, pd.DataFrame], sites: pd.DataFrame, means: dict[tuple[str, str], SiteMean]) -> Any:
    """The reliability curve of all test scans, then slope and intercept of each site in rows."""
    folds = sorted(sites.index.get_level_values("fold").unique())
    figure, axes = make_panels(3, 10.8, max(3.6, 1.4 + 0.21 * len(folds)), width_ratios=[1.3, 1, 1])
    for k, (name, own) in enumerate(predictions.items()):
        _draw_reliability(axes[0], own, k, display_name(name.split(",")[0]))
        for axis, quantity in zip(axes[1:], _QUANTITIES, strict=True):
            shift = k - (len(predictions) - 1) / 2
            _draw_forest(axis, sites.loc[name].reindex(folds), quantity, means[name, quantity], k, shift)
    axes[0].plot([0, 1], [0, 1], color="0.6", linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
    axes[0].set_xlabel("predicted probability", fontsize=9)
    axes[0].set_ylabel("observed share of patients (95 % interval over sites)", fontsize=9)
    axes[0].legend(fontsize=8, frameon=False, loc="upper left")
    for axis, (quantity, words) in zip(axes[1:], _QUANTITIES.items(), strict=True):
        axis.axvline(_IDEAL[quantity], color="0.6", linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
        axis.set_xlabel(words, fontsize=9)
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


def _draw_reliability(axis: Any, predictions: pd.DataFrame, k: int, name: str) -> None:
    site, label = predictions["site"].to_numpy(), predictions["label"].to_numpy()
    curve = reliability_curve(label, predictions["probability"].to_numpy(dtype=float), BINS, "quantile", site).dropna()
    bars = compute_error_bars(curve["observed"], curve["low"], curve["high"])
    axis.errorbar(
        curve["probability"], curve["observed"], yerr=bars, capsize=2, linewidth=1.2, label=name, **series_style(k)
    )


def _draw_forest(axis: Any, sites: pd.DataFrame, quantity: str, mean: SiteMean, k: int, shift: float) -> None:
    """Estimates of one method with their intervals, and below them the mean with its own."""
    style = series_style(k)
    value, se = sites[quantity].to_numpy(dtype=float), sites[f"{quantity}_se"].to_numpy(dtype=float)
    y, last = np.arange(len(sites)) + 0.26 * shift, len(sites) + 0.7 + 0.5 * shift
    thin = {"fmt": style["marker"], "color": style["color"], "markersize": 4, "linewidth": 1.0}
    axis.errorbar(value, y, xerr=1.96 * se, **thin)
    bars = compute_error_bars([mean.mean], [mean.low], [mean.high])
    axis.errorbar(
        [mean.mean], [last], xerr=bars, fmt=style["marker"], color=style["color"], markersize=7, linewidth=2.4
    )
    axis.plot([mean.new_low, mean.new_high], [last, last], color=style["color"], linewidth=0.8)

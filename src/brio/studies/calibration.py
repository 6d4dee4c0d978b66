"""Probabilities at a new site: calibration, decision curves, and adaptation to a few labelled scans."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

from .. import draws
from ..drawing import DASHED, draw_dot, draw_intervals, horizontal_offset, label_axis, make_panels, series_style
from ..errors import BrioError
from ..formatting import bracket_interval, format_count, format_interval, format_number, format_signed, join_names
from ..models import PriorWidths, fit_adaptation
from ..protocol import calibration
from ..protocol.calibration import SiteMean
from .context import Arm, StudyContext, display_method
from .study import Finding, register_study
from .summaries import average_sites, move_first, read_arm_predictions, tabulate_runs

_QUANTITIES = {"slope": "calibration slope", "in_the_large": "calibration in the large"}
_IDEAL = {"slope": 1.0, "in_the_large": 0.0}
BINS = 8


@register_study("calibration")
def measure_calibration(context: StudyContext, arms: list[Arm]) -> Finding:
    """Fit the calibration slope and intercept at each test site (default: ridge), and decompose the Brier score."""
    table = tabulate_runs(context, arms, _measure_site)
    predictions = {a.name: read_arm_predictions(context, a) for a in arms}
    sites = table.groupby(["arm", "fold"], sort=False).mean(numeric_only=True)  # over seeds
    means = {
        (name, quantity): calibration.average_recalibration(sites.loc[name], quantity)
        for name in predictions
        for quantity in _QUANTITIES
    }
    summary = pd.DataFrame([_summarise(name, own, means) for name, own in predictions.items()])
    text = [sentence for name in predictions for sentence in _describe_sites(name, means, sites.loc[name])]
    text.append("Means over sites come from a random-effects model.")
    return Finding(table, summary, text, lambda: _draw_calibration(predictions, sites, means), digits=6)


def _read_run(run: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Labels and probabilities of predictions."""
    return run["label"].to_numpy(), run["probability"].to_numpy(dtype=float)


def _count_classes(label: np.ndarray) -> dict[str, int]:
    return {"patients": int(label.sum()), "controls": int((1 - label).sum())}


def _measure_site(run: pd.DataFrame) -> pd.DataFrame:
    """Recalibration of a run at its test site, and its Brier score, in one row."""
    label, probability = _read_run(run)
    row = _count_classes(label) | calibration.fit_recalibration(label, calibration.read_logits(probability))._asdict()
    brier = float(((probability - label) ** 2).mean())
    return pd.DataFrame([row | {"predicted_share": probability.mean(), "brier": brier}])


def _summarise(name: str, predictions: pd.DataFrame, means: dict[tuple[str, str], SiteMean]) -> dict[str, Any]:
    """One row of the small table: means over sites, and the Brier score of all test scans with its parts."""
    row: dict[str, Any] = {"method": display_method(name)}
    for quantity, words in _QUANTITIES.items():
        mean, short = means[name, quantity], words.replace("calibration ", "")
        row[short] = format_number(mean.mean)
        intervals = _format_intervals(mean)
        row |= {f"{short}, 95% interval": intervals[0], f"{short}, new site": intervals[1]}
    split = [calibration.split_brier(*_read_run(own))._asdict() for _, own in predictions.groupby("seed")]
    row |= pd.DataFrame(split).mean().to_dict()
    raw = expit(predictions["margin"].to_numpy(dtype=float))
    row["brier of margins as logits"] = float(((raw - predictions["label"]) ** 2).mean())
    return {key.replace("brier", "Brier score", 1): value for key, value in row.items()}


def _format_intervals(mean: SiteMean) -> list[str]:
    """The interval of a mean, and that of a new site."""
    pairs = (mean.low, mean.high), (mean.new_low, mean.new_high)
    return [format_interval(ends, format_number, calibration.WHOLE_COEFFICIENT) for ends in pairs]


def _describe_sites(name: str, means: dict[tuple[str, str], SiteMean], sites: pd.DataFrame) -> list[str]:
    """Describe the results of one method, one sentence per quantity."""
    sentences = []
    for quantity, words in _QUANTITIES.items():
        mean, se = means[name, quantity], sites[f"{quantity}_se"]
        off = sites[(sites[quantity] - _IDEAL[quantity]).abs() > 1.96 * se]
        listed = f" ({join_names(map(str, off.index))})" if len(off) else ""
        n_sites, (interval, at_new) = format_count(mean.n, "site"), _format_intervals(mean)
        sentence = (
            f"{display_method(name)}, {words}: the mean over {n_sites} is {format_number(mean.mean)} (95% interval "
            f"{interval}; 95% prediction interval for a new site {at_new}; ideal value {_IDEAL[quantity]:g}). At "
            f"{len(off)} of {n_sites}, the 95% interval excludes the ideal value{listed}."
        )
        if mean.n < len(sites):
            without = f"{len(sites) - mean.n} of {format_count(len(sites), 'site')}"
            why = "where there is one class only or the margins of the classes do not overlap"
            sentence += f" Not estimated at {without}, {why}."
        sentences.append(sentence)
    return sentences


def _draw_calibration(
    predictions: dict[str, pd.DataFrame], sites: pd.DataFrame, means: dict[tuple[str, str], SiteMean]
) -> Any:
    """The reliability curve of all test scans, then slope and intercept of each site in rows."""
    folds = sorted(sites.index.get_level_values("fold").unique())
    figure, axes = make_panels(3, 10.8, max(3.6, 1.4 + 0.21 * len(folds)), width_ratios=[1.3, 1, 1])
    for k, (name, own) in enumerate(predictions.items()):
        curve = calibration.reliability_curve(*_read_run(own), BINS, own["site"].to_numpy()).dropna()
        ends, shown = (curve["low"], curve["high"]), {"linewidth": 1.2, "label": display_method(name)}
        draw_intervals(axes[0], curve["probability"], curve["observed"], *ends, k, **shown)
        for axis, quantity in zip(axes[1:], _QUANTITIES, strict=True):
            shift = k - (len(predictions) - 1) / 2
            _draw_forest(axis, sites.loc[name].reindex(folds), quantity, means[name, quantity], k, shift)
    axes[0].plot([0, 1], [0, 1], **DASHED)
    y = "observed share of patients (95% interval over sites)"
    label_axis(axes[0], "predicted probability", y, legend={"loc": "upper left"})
    bottom = len(folds) + 1.2 + 0.25 * len(predictions)
    for axis, (quantity, words) in zip(axes[1:], _QUANTITIES.items(), strict=True):
        axis.axvline(_IDEAL[quantity], **DASHED)
        reach = max(1.5, float((sites[quantity] - _IDEAL[quantity]).abs().max()) + 1.0)  # wider intervals are cut
        limits = (_IDEAL[quantity] - reach, _IDEAL[quantity] + reach)
        label_axis(axis, words, xlim=limits, ylim=(bottom, -0.7), yticks=[])
        for row in range(1, len(folds), 2):  # stripes lead the eye from the name of a site to its estimates
            axis.axhspan(row - 0.5, row + 0.5, color="0.96", linewidth=0, zorder=-1)
    axes[1].set_yticks([*range(len(folds)), len(folds) + 0.7], [*folds, "mean over sites"], fontsize=8)
    note = "Bars: 95% intervals, cut off at the axis limits. Thin lines: 95% prediction interval for a new site."
    figure.supxlabel(note, fontsize=8, color="0.3")
    return figure


def _draw_forest(axis: Any, sites: pd.DataFrame, quantity: str, mean: SiteMean, k: int, shift: float) -> None:
    """Estimates of one method with their intervals, and below them the mean with its own."""
    value, half = sites[quantity], 1.96 * sites[f"{quantity}_se"]
    y, last = np.arange(len(sites)) + 0.26 * shift, len(sites) + 0.7 + 0.5 * shift
    draw_dot(axis, y, value, value - half, value + half, k, capsize=0, markersize=4, linewidth=1.0)
    draw_dot(axis, last, mean.mean, mean.low, mean.high, k, capsize=0, markersize=7, linewidth=2.4)
    axis.plot([mean.new_low, mean.new_high], [last, last], color=series_style(k)["color"], linewidth=0.8)


THRESHOLDS = np.round(np.arange(0.05, 0.96, 0.05), 2)
"""Probabilities above which a participant is treated."""

_SHOWN = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


@register_study("decision-curve")
def draw_decision_curve(context: StudyContext, arms: list[Arm]) -> Finding:
    """Compare the net benefit of a method (default: ridge) with that of treating all and treating none."""
    table = tabulate_runs(context, arms, _score_thresholds)
    curves = {str(name): average_net_benefit(rows) for name, rows in table.groupby("arm", sort=False)}
    text = [_describe_curve(name, curve) for name, curve in curves.items()]
    text.append(
        "Net benefit is the number of true positives minus the odds of the threshold times the number of false "
        "positives. It is given per participant, averaged over test sites, and depends on the share of patients, which "
        "is that of this cohort, not that of a clinic."
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


def _score_thresholds(run: pd.DataFrame) -> pd.DataFrame:
    """Net benefit of a run and of treating all, a row for each threshold."""
    label, probability = _read_run(run)
    benefit, of_all = (
        calibration.compute_net_benefit(label, p, THRESHOLDS) for p in (probability, np.ones(len(label)))
    )
    return pd.DataFrame({"threshold": THRESHOLDS, "net_benefit": benefit, "treat_all": of_all})


def average_net_benefit(rows: pd.DataFrame) -> pd.DataFrame:
    """Average net benefit over sites, seeds first, and its gain over the better of treating all and treating none.

    Returns ``net_benefit``, ``treat_all`` and ``gain`` by threshold, see :func:`average_sites`.
    """
    by_site = rows.groupby(["threshold", "fold"])[["net_benefit", "treat_all"]].mean()
    all_is_better = by_site.groupby("threshold")["treat_all"].transform("mean") > 0
    by_site["gain"] = by_site["net_benefit"] - by_site["treat_all"].where(all_is_better, 0.0)  # paired at each site
    return average_sites(by_site)


def _describe_curve(name: str, curve: pd.DataFrame) -> str:
    """Describe at which thresholds the method is better than both simple rules."""
    better = curve.index[(curve["gain low"] > 0).to_numpy()]
    name, rules = display_method(name), "that of treating all and that of treating none"
    if not len(better):
        return (
            f"{name}: at no threshold is the net benefit significantly higher than {rules} (no 95% interval of the "
            "gain lies above 0)."
        )
    best, gaps = curve["gain"].idxmax(), np.diff(better) > 0.06
    listed = f"{better[0]:.2f} to {better[-1]:.2f}"
    if gaps.any() or len(better) == 1:
        listed = ", ".join(f"{t:.2f}" for t in better)
    return (
        f"{name}: the net benefit exceeds {rules} at threshold{'s' if len(better) > 1 else ''} {listed} (95% interval "
        f"of the gain above 0); the largest gain is {curve.loc[best, 'gain']:.3f}, at {best:.2f}."
    )


def draw_curves(curves: dict[str, pd.DataFrame]) -> Any:
    """Draw the net benefit of methods and simple rules, then the gain over the better rule with its interval."""
    figure, (left, right) = make_panels(2, 9.4, 3.8)
    first = next(iter(curves.values()))
    left.plot(first.index, first["treat_all"], color="0.35", linewidth=1.2, linestyle=(0, (4, 2)), label="treat all")
    for axis in (left, right):
        axis.axhline(0, color="0.35", linewidth=1.2, linestyle=(0, (1, 1.5)), label="treat none")
    for k, (name, curve) in enumerate(curves.items()):
        label = display_method(name)
        left.plot(curve.index, curve["net_benefit"], markersize=4, linewidth=1.4, label=label, **series_style(k))
        x = curve.index + horizontal_offset(k, len(curves), 3 * float(THRESHOLDS[1] - THRESHOLDS[0]))
        thin = {"capsize": 0, "markersize": 4, "linewidth": 1.2, "elinewidth": 0.9}
        draw_intervals(right, x, curve["gain"], curve["gain low"], curve["gain high"], k, **thin)
    top = max(float(curve["net_benefit"].max()) for curve in curves.values())
    x, limits, legend = "threshold probability", (-0.12, 1.08 * max(top, 0.1)), {"loc": "upper right"}
    label_axis(left, x, "net benefit per participant, mean over sites", xlim=(0, 1), ylim=limits, legend=legend)
    label_axis(right, x, "gain over the better of treating all and none\n(95% interval over sites)", xlim=(0, 1))
    return figure


SIZES = (10, 20, 40)
"""Numbers of local scans, besides none."""

LEAST_REST = 10
"""Smallest number of scans that must remain to be scored; smaller sites are left out for a size."""

DRAWS = 20
"""Random choices of local scans, for every size, fold and seed."""

_DEFAULT = PriorWidths()
KINDS = {
    "adapted": _DEFAULT,
    "half": PriorWidths(_DEFAULT.slope / 2, _DEFAULT.intercept / 2, "given"),
    "double": PriorWidths(2 * _DEFAULT.slope, 2 * _DEFAULT.intercept, "given"),
    "unshrunk": PriorWidths(10.0, 10.0, "given"),  # has a mode even where local scans separate the classes
}
"""Strength of the shrinkage of slope and intercept: default, half and double its widths, and practically none."""


@register_study("adaptation")
def study_adaptation(context: StudyContext, arms: list[Arm]) -> Finding:
    """Adapt slope and intercept (default: ridge) to 10, 20 or 40 scans of each test site, and score its other scans."""
    table = tabulate_runs(context, arms, _score_sizes)
    if not table["size"].any():
        raise BrioError(
            f"no test site has both classes and at least {SIZES[0] + LEAST_REST} scans ({SIZES[0]} to adapt to and "
            f"{LEAST_REST} to score); use a cohort with larger sites"
        )
    changes = {str(name): summarise_sizes(rows) for name, rows in table.groupby("arm", sort=False)}
    summary = pd.concat([_format_sizes(name, own) for name, own in changes.items()], ignore_index=True)
    text = [_describe_sizes(name, own) for name, own in changes.items()]
    text += _name_small_sites(table)
    text.append(
        f"Local scans are drawn from each test site {DRAWS} times for each size and seed, with about the site's "
        "share of patients. The other scans are scored before and after adaptation. Slope and intercept are "
        "shrunk towards no change with the widths that `brio adapt` uses for a model without evidence (standard "
        f"deviation {_DEFAULT.slope:g} for the logarithm of the slope and {_DEFAULT.intercept:g} for the intercept), "
        "which were not tuned on these scores. Accuracy is the share of scans for which the more probable class is "
        "correct. Intervals are over test sites."
    )
    return Finding(table, summary, text, lambda: _draw_changes(changes), digits=6)


def choose_local_scans(label: np.ndarray, order: np.ndarray, size: int) -> np.ndarray:
    """Choose local scans with the share of patients of all scans, at least one of each class.

    Shapes: label [n], order [n]; returns [n].
    """
    n_patients = int(np.clip(round(size * label.mean()), 1, size - 1))
    chosen = np.zeros(len(label), dtype=bool)
    for c, n in ((1, n_patients), (0, size - n_patients)):
        own = np.flatnonzero(label == c)
        chosen[own[np.argsort(order[own], kind="stable")[:n]]] = True
    return chosen


def _score_sizes(run: pd.DataFrame) -> pd.DataFrame:
    """Scores of a run without adaptation (size 0), and at each size: means over draws of those of the other scans."""
    label, probability = _read_run(run)
    logits = calibration.read_logits(probability)
    rows = [{"size": 0, "draws": 1, **_score(label, logits, "")}]
    sizes = [size for size in SIZES if len(label) >= size + LEAST_REST and 0 < label.mean() < 1]
    fold, seed = draws.address(str(run["fold"].iloc[0])), int(run["seed"].iloc[0])
    ids = draws.addresses(run["participant_id"].to_numpy(dtype=str))
    orders = [draws.draw_uniform(seed, "adaptation, local scans", fold, draw, ids) for draw in range(DRAWS)]
    for size in sizes:
        scores = pd.DataFrame(_adapt_once(label, logits, choose_local_scans(label, order, size)) for order in orders)
        rows.append({"size": size, "draws": DRAWS, **scores.mean()})
    return pd.DataFrame(rows).assign(**_count_classes(label)).pipe(move_first, "patients", "controls")


def _adapt_once(label: np.ndarray, logits: np.ndarray, local: np.ndarray) -> dict[str, float]:
    """Scores of the other scans without adaptation, and with each kind of it."""
    rest = ~local
    scores = _score(label[rest], logits[rest], "")
    for kind, widths in KINDS.items():
        fitted = fit_adaptation(label[local], logits[local], widths)
        scores |= _score(label[rest], fitted.apply(logits[rest]), f"_{kind}")
        if kind == "adapted":
            scores |= {"slope": fitted.slope, "intercept": fitted.intercept}
    return scores


def _score(label: np.ndarray, logits: np.ndarray, suffix: str) -> dict[str, float]:
    brier = float(((expit(logits) - label) ** 2).mean())
    return {f"brier{suffix}": brier, f"accuracy{suffix}": float(((logits > 0) == label).mean())}


def summarise_sizes(rows: pd.DataFrame) -> pd.DataFrame:
    """Average scores and their changes over test sites, seeds first.

    Returns ``sites``; ``brier`` and ``accuracy`` before adaptation; and for each of :data:`KINDS` the change of both
    with the ends of its 95% interval over sites: ``brier adapted``, ``brier adapted low``, ... Accuracy is in percent.
    Without local scans there are no changes.
    """
    by_site = rows.groupby(["size", "fold"]).mean(numeric_only=True)
    accuracy = by_site.filter(like="accuracy").columns
    by_site[accuracy] *= 100
    both = by_site[["brier", "accuracy"]]
    changes = {f"{score} {kind}": by_site[f"{score}_{kind}"] - by_site[score] for score in both for kind in KINDS}
    before = both.groupby("size").mean().assign(sites=by_site.groupby("size").size())
    return before.join(average_sites(pd.DataFrame(changes)))


_WIDTHS = {"adapted": "", "half": ", half the widths", "double": ", double the widths", "unshrunk": ", not shrunk"}
"""How strongly each of :data:`KINDS` is shrunk, as it follows a name."""


def _format_sizes(name: str, points: pd.DataFrame) -> pd.DataFrame:
    """Rows of the small table of one method."""
    columns = {"method": display_method(name), "local scans": points.index, "sites": points["sites"].to_numpy()}
    columns |= {"Brier score before": points["brier"].map("{:.3f}".format).to_numpy()}
    columns |= {f"change{words}": _format_changes(points, f"brier {kind}", 3) for kind, words in _WIDTHS.items()}
    columns |= {"accuracy before, %": points["accuracy"].map("{:.1f}".format).to_numpy()}
    return pd.DataFrame(columns | {"change, points": _format_changes(points, "accuracy adapted", 1)})


def _format_changes(points: pd.DataFrame, name: str, digits: int) -> list[str]:
    write = partial(format_signed, digits=digits)
    values = points[[name, f"{name} low", f"{name} high"]].to_numpy()
    whole = 100 if name.startswith("accuracy") else 1
    return [f"{write(change)}{bracket_interval(ends, write, whole)}" for change, *ends in values]


def _describe_sizes(name: str, points: pd.DataFrame) -> str:
    """Describe the changes of scores for each number of local scans, for one method."""
    columns = points.index, _format_changes(points, "brier adapted", 3), _format_changes(points, "accuracy adapted", 1)
    changes = [
        f"with {size} local scans, Brier score {brier} and accuracy {accuracy} points ({n_sites} sites)"
        for size, brier, accuracy, n_sites in zip(*columns, points["sites"], strict=True)
        if size
    ]
    none = points.loc[0]
    return (
        f"{display_method(name)}: without adaptation, the Brier score is {none['brier']:.3f} and the accuracy "
        f"{none['accuracy']:.1f}% (means over {none['sites']:.0f} test sites). Changes: {'; '.join(changes)}."
    )


def _name_small_sites(rows: pd.DataFrame) -> list[str]:
    """Name the sites that are left out of each size."""
    every = set(rows["fold"])
    missing = {size: sorted(every - set(rows.loc[rows["size"] == size, "fold"])) for size in SIZES}
    listed = "; ".join(f"with {size} local scans, {join_names(names, 99)}" for size, names in missing.items() if names)
    why = f"fewer than {LEAST_REST} scans would remain to be scored, or the site has one class only"
    return [f"Left out because {why}: {listed}."] if listed else []


def _draw_changes(changes: dict[str, pd.DataFrame]) -> Any:
    """Change of the Brier score and of accuracy against the number of local scans."""
    figure, axes = make_panels(2, 9.0, 3.7)
    labels = {"brier": "change in Brier score (lower is better)", "accuracy": "change in accuracy, points"}
    for axis, (score, label) in zip(axes, labels.items(), strict=True):
        for k, (name, points) in enumerate(changes.items()):
            own = points.drop(index=0)
            for j, kind in enumerate(("adapted", "unshrunk")):
                x = own.index + horizontal_offset(2 * k + j, 2 * len(changes), 14)
                look: dict[str, Any] = {"linewidth": 1.4, "label": f"{display_method(name)}{_WIDTHS[kind]}"}
                look |= {"linestyle": (0, (3, 2)), "markerfacecolor": "white"} if j else {}
                mean, low, high = (own[f"{score} {kind}{end}"] for end in ("", " low", " high"))
                draw_intervals(axis, x, mean, low, high, k, **look)
        axis.axhline(0, color="0.35", linewidth=1.0, linestyle=(0, (1, 1.5)))
        limits, legend = (0, max(SIZES) + 10), {"loc": "upper right"} if score == "brier" else None
        y = f"{label}\n(95% interval over sites)"
        label_axis(axis, "number of local scans", y, grid="y", legend=legend, xlim=limits, xticks=SIZES)
    return figure

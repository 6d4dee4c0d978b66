"""Pictures with their uncertainty: ROC curves over sites, reliability of probabilities, differences to a reference.

Each ``draw_...`` computes what it shows, hands it to a ``plot_...`` that only puts it on axes, and writes the picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..drawing import STYLES, save
from ..errors import BrioError
from ..protocol import RocBand, calibration_error, reliability, roc_band
from .comparisons import LOSSES, METRIC_NAMES, UNITS, comparisons, p_value, paired_scores, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "Reliability",
    "draw_forest",
    "draw_reliability",
    "draw_roc",
    "plot_forest",
    "plot_reliability",
    "plot_roc",
    "reliabilities",
    "roc_bands",
]

FORMATS = (".png", ".svg", ".pdf")
COLUMNS = 3  # panels side by side; also how many bands one panel bears
HISTOGRAM_BINS = 20


def roc_bands(predictions: pd.DataFrame, by: Sequence[str] = ("fold",)) -> dict[str, RocBand]:
    """The mean ROC curve over sites of each method, see :func:`brio.protocol.roc_band`."""
    return {str(name): roc_band(mine, by) for name, mine in predictions.groupby("method", sort=False)}


def draw_roc(predictions: pd.DataFrame, path: str | Path, title: str = "", by: Sequence[str] = ("fold",)) -> Path:
    """Draw the mean ROC curve over held-out sites of each method, with its 95 % band over sites.

    Up to three methods share a panel; more have one each, with the curves of the others behind it in grey.

    Parameters
    ----------
    predictions : DataFrame
        ``predictions.csv`` of one or more jobs on the same cohort.
    path : path of the picture to write (png, svg or pdf)
    by : names of columns
        What has a curve: the fold, or ``("seed", "fold")`` under k-fold.
    """
    path, bands = _checked(path), roc_bands(predictions, by)
    shared = len(bands) <= COLUMNS
    side = 5.0 if shared else 2.7
    figure, panels = _panels(1 if shared else len(bands), width=side, heights=[side])
    for (axis,), name in zip(panels, [None] if shared else bands, strict=True):
        plot_roc(axis, bands, name)
    figure.supxlabel(
        f"false-positive rate (controls taken for patients), %\nband: 95 % interval over {_units(by)}", fontsize=10
    )
    figure.supylabel("true-positive rate (patients found), %", fontsize=10)
    left_out = {site for band in bands.values() for site in band.left_out}
    _head(figure, title, predictions, by, f", {len(left_out)} with one class left out" if left_out else "")
    return save(figure, path)


def plot_roc(axis: Axes, bands: Mapping[str, RocBand], name: str | None = None) -> None:
    """Put all curves on an axis or, if one is named, that curve with the others behind it in grey."""
    axis.plot([0, 100], [0, 100], color="0.55", linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    for k, (method, band) in enumerate(bands.items()):
        x, y, low, high = (  # from the corner, where nobody is called a patient
            100 * np.concatenate([[0.0], part])
            for part in (band.false_positive_rate, band.true_positive_rate, band.low, band.high)
        )
        if name not in (None, method):
            axis.plot(x, y, color="0.8", linewidth=0.8, zorder=1)
            continue
        colour, marker = STYLES[k % len(STYLES)]
        axis.fill_between(x, low, high, color=colour, alpha=0.16, linewidth=0, zorder=2)
        interval = "" if np.isnan(band.auc_low) else f" ({100 * band.auc_low:.1f} to {100 * band.auc_high:.1f})"
        axis.plot(
            x,
            y,
            color=colour,
            linewidth=1.8,
            marker=marker,
            markersize=5.5,
            markevery=(len(x) // 12 + (k % COLUMNS) * len(x) // 21, len(x) // 7),  # those of other curves elsewhere
            zorder=3,
            label=f"{method if name is None else 'AUC'}  {100 * band.auc:.1f}{interval}",
        )
    axis.legend(
        loc="lower right",
        title="AUC (95 % interval)" if name is None else None,
        fontsize=9 if name is None else 8,
        title_fontsize=9,
        alignment="left",
        frameon=False,
        borderaxespad=0,
        handlelength=2.2 if name is None else 0,
    )
    if name is not None:
        axis.set_title(name, loc="left", fontsize=10)
    axis.set(xlim=(-1, 101), ylim=(-1, 101), aspect="equal", xticks=range(0, 101, 25), yticks=range(0, 101, 25))


@dataclass(frozen=True, eq=False)
class Reliability:
    """How far the probabilities of a method can be trusted.

    Attributes
    ----------
    curve : DataFrame
        Of all predictions, see :func:`brio.protocol.reliability`; intervals draw sites.
    controls, patients : ndarray, shape [20]
        Share of all predictions that are of controls, or of patients, and fall into each twentieth.
    calibration_error : float
        Mean over seeds.
    """

    curve: pd.DataFrame
    controls: np.ndarray
    patients: np.ndarray
    calibration_error: float


def reliabilities(predictions: pd.DataFrame, bins: int = 10) -> dict[str, Reliability]:
    """Reliability of the probabilities of each method over the scans of all sites, in bins with equally many."""
    found = {}
    for name, mine in predictions.groupby("method", sort=False):
        label, probability = mine["label"].to_numpy(), mine["probability"].to_numpy()
        controls, patients = (
            np.histogram(probability[label == c], HISTOGRAM_BINS, (0, 1))[0] / len(label) for c in (0, 1)
        )
        errors = [
            calibration_error(run["label"].to_numpy(), run["probability"].to_numpy(), bins, "quantile")
            for _, run in mine.groupby("seed")
        ]
        curve = reliability(label, probability, bins, "quantile", site=mine["site"].to_numpy())
        found[str(name)] = Reliability(curve, controls, patients, float(np.mean(errors)))
    return found


def draw_reliability(
    predictions: pd.DataFrame, path: str | Path, title: str = "", bins: int = 10, by: Sequence[str] = ("fold",)
) -> Path:
    """Draw how many of those are patients of whom a method says so with a probability, and how often it says what.

    A panel for each method; intervals of 95 % draw sites with replacement.

    Parameters
    ----------
    predictions : DataFrame
        ``predictions.csv`` of one or more jobs on the same cohort.
    path : path of the picture to write (png, svg or pdf)
    """
    path, found = _checked(path), reliabilities(predictions, bins)
    figure, panels = _panels(len(found), width=3.6 if len(found) == 1 else 2.7, heights=[2.5, 1.0])
    tallest = max(max(one.controls.max(), one.patients.max()) for one in found.values())
    for k, ((above, below), name) in enumerate(zip(panels, found, strict=True)):
        plot_reliability(above, below, name, found[name], STYLES[k % len(STYLES)])
        below.set_ylim(-140 * tallest, 140 * tallest)  # the same for all, with room for words
        if k % _columns(len(found)) == 0:
            above.set_ylabel("patients among them, %")
            below.set_ylabel("scans, %")
    figure.supxlabel(
        "predicted probability of being a patient, %\nlines: 95 % interval over sites",
        fontsize=10,
    )
    _head(figure, title, predictions, by)
    return save(figure, path)


def plot_reliability(above: Axes, below: Axes, name: str, found: Reliability, style: tuple[str, str]) -> None:
    """Put the reliability curve on one axis and, below it, how often patients and controls were given what."""
    (colour, marker), curve = style, 100 * found.curve
    above.plot([0, 100], [0, 100], color="0.55", linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    above.vlines(curve["probability"], curve["low"], curve["high"], color=colour, linewidth=1.2, zorder=2)
    above.plot(curve["probability"], curve["observed"], color=colour, marker=marker, markersize=5, zorder=3)
    above.set_title(name, loc="left", fontsize=10)
    error = f"calibration error {100 * found.calibration_error:.1f}"
    above.annotate(error, (100, 1), ha="right", va="bottom", fontsize=8)
    edges = np.linspace(0, 100, HISTOGRAM_BINS + 1)
    below.bar(edges[:-1], 100 * found.patients, 0.86 * edges[1], align="edge", color=colour)
    below.bar(edges[:-1], -100 * found.controls, 0.86 * edges[1], align="edge", color="0.7")
    below.axhline(0, color="0.35", linewidth=0.8)
    below.annotate("patients", (0.02, 1), xycoords="axes fraction", va="top", fontsize=8)
    below.annotate("controls", (0.02, 0), xycoords="axes fraction", va="bottom", fontsize=8)
    below.yaxis.set_major_formatter(lambda share, _: f"{abs(share):g}")
    above.set(ylim=(-1, 101), yticks=range(0, 101, 25))
    for axis in (above, below):
        axis.set(xlim=(-1, 101), xticks=range(0, 101, 25))


def draw_forest(
    rows: pd.DataFrame, reference: str, path: str | Path, title: str = "", metric: str = "auc", alpha: float = 0.05
) -> Path:
    """Draw the difference of each method to a reference: every site, mean and interval, p after Holm's correction.

    Parameters
    ----------
    rows : DataFrame
        ``results.csv`` of one or more jobs on one cohort under one protocol (:func:`brio.report.together`).
    reference : str
        A method among them.
    path : path of the picture to write (png, svg or pdf)
    """
    path, found, scores = _checked(path), comparisons(rows, reference, metric, alpha), paired_scores(rows, metric)
    figure, ((axis,),) = _panels(1, width=7.4, heights=[1.1 + 0.34 * len(found)])
    plot_forest(axis, found, scores.sub(scores[reference], axis=0), metric, alpha)
    _head(figure, title or str(rows["cohort"].iloc[0]), rows, UNITS[rows["protocol"].iloc[0]])
    return save(figure, path)


def plot_forest(
    axis: Axes, found: pd.DataFrame, differences: pd.DataFrame, metric: str = "auc", alpha: float = 0.05
) -> None:
    """Put differences to a reference on an axis, the best method on top; filled marks are those the test tells apart.

    Parameters
    ----------
    found : DataFrame
        :func:`brio.report.comparisons` with one reference, of one cohort and protocol.
    differences : DataFrame, [site x method]
        What they summarise, drawn behind them as ticks.
    """
    found = found.sort_values("mean_difference", ascending=metric not in LOSSES, na_position="first")
    reference, units = found["other"].iloc[0], _units(UNITS[found["protocol"].iloc[0]])
    colour, top = STYLES[0][0], len(found) - 0.4
    axis.axvline(0, color="0.55", linewidth=1, linestyle=(0, (4, 3)), zorder=1)

    def beside(y: float, texts: Sequence[str], va: str, **style: Any) -> None:
        """Columns of text to the right of the axis, at distances in points."""
        for distance, text in zip((42, 104, 152), texts, strict=True):
            at: dict[str, Any] = {
                "xycoords": axis.get_yaxis_transform(),
                "xytext": (distance, 0),
                "textcoords": "offset points",
            }
            axis.annotate(text, (1, y), ha="right", va=va, annotation_clip=False, **at, **style)

    for y, row in enumerate(found.itertuples()):
        axis.axhline(y, color="0.93", linewidth=0.8, zorder=0)
        each = 100 * differences[row.method].dropna()
        axis.scatter(each, np.full(len(each), y), s=60, color="0.7", marker="|", linewidth=1, zorder=1)
        axis.plot([100 * row.low, 100 * row.high], [y, y], color=colour, linewidth=2.5, solid_capstyle="butt", zorder=2)
        face = colour if row.p_holm <= alpha else "white"
        axis.scatter([100 * row.mean_difference], [y], s=44, marker="D", color=face, edgecolor=colour, zorder=3)
        beside(
            y, (signed(row.mean_difference), f"{row.better} : {row.worse}", p_value(row.p_holm)), "center", fontsize=9
        )
    beside(top, ("mean", f"{units}\nbetter : worse", "p after\nHolm"), "bottom", fontsize=8, color="0.4")
    left, right = ("better", "worse") if metric in LOSSES else ("worse", "better")
    words: dict[str, Any] = {"textcoords": "offset points", "va": "bottom", "fontsize": 8, "color": "0.4"}
    axis.annotate(f"\N{LEFTWARDS ARROW} {left}", (0, top), xytext=(-6, 0), ha="right", **words)
    axis.annotate(f"{right} \N{RIGHTWARDS ARROW}", (0, top), xytext=(6, 0), ha="left", **words)
    axis.set(yticks=range(len(found)), yticklabels=found["method"], ylim=(-0.6, top))
    axis.set_xlabel(
        f"difference in {METRIC_NAMES[metric]} to {reference}, points; ticks: single {units}\n"
        f"filled: p \N{LESS-THAN OR EQUAL TO} {alpha:g} after Holm's correction"
    )
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)


def _units(by: Sequence[str]) -> str:
    return "folds" if "seed" in by else "sites"


def _checked(path: str | Path) -> Path:
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise BrioError(f"{path}: a picture must end in .png, .svg or .pdf")
    return path


def _columns(n: int) -> int:
    return 2 if n == 4 else min(n, COLUMNS)


def _panels(n: int, width: float, heights: Sequence[float]) -> tuple[Figure, list[list[Axes]]]:
    """A figure with n panels, at most three side by side, each of axes above each other that share what lies below."""
    from matplotlib.figure import Figure

    columns, parts = _columns(n), len(heights)
    lines = -(-n // columns)
    size = (columns * (width + 0.2) + 0.4, lines * (sum(heights) + 0.2) + 0.6)
    figure = Figure(figsize=size, layout="compressed")
    grid = figure.add_gridspec(lines * parts, columns, height_ratios=list(heights) * lines)
    panels = []
    for k in range(n):
        panels.append([figure.add_subplot(grid[k // columns * parts + part, k % columns]) for part in range(parts)])
        for part, axis in enumerate(panels[-1]):
            axis.tick_params(
                labelsize=9, labelleft=k % columns == 0, labelbottom=part == parts - 1 and k + columns >= n
            )
            axis.spines[["top", "right"]].set_visible(False)
    return figure, panels


def _head(figure: Figure, title: str, rows: pd.DataFrame, by: Sequence[str], more: str = "") -> None:
    """What the picture is of, above it."""
    folds, seeds = rows["fold"].nunique(), rows["seed"].nunique()
    note = f"{folds} held-out {_units(by)}{more}, {seeds} seed{'s' if seeds > 1 else ''}"
    figure.suptitle(f"{title}: {note}" if title else note, x=0.01, ha="left", fontsize=10)

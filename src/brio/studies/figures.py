"""Figures that studies share: arms in rows, a line along a setting, error bars, labels of logarithmic axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..drawing import make_panels, series_style
from ..formatting import state_p
from .arms import display_name


def compute_error_bars(mean: Any, low: Any, high: Any) -> np.ndarray:
    """Return the lengths of error bars below and above a mean; rounding never makes them negative.

    Shapes: returns [2, ...].
    """
    centre = np.asarray(mean, dtype=float)
    return np.clip([centre - np.asarray(low, dtype=float), np.asarray(high, dtype=float) - centre], 0.0, None)


def draw_arms(summary: pd.DataFrame, reference: str, label: Callable[[str], str] = display_name) -> Any:
    """Draw AUC and ACC of each arm and how its AUC differs from that of the reference."""
    column = f"minus {reference}"
    compared = summary[column].notna()
    count, width = (3, 10.4) if compared.any() else (2, 8.4)
    figure, axes = make_panels(count, width, 1.0 + 0.34 * len(summary), sharey=True)
    for axis, mean, sd in zip(axes, ("AUC", "ACC"), ("SD", "ACC SD"), strict=False):
        for y, (_, row) in enumerate(summary.iterrows()):
            _draw_mean(axis, y, row[mean], row[sd], 0 if row["arm"] == reference else 1)
        axis.set_xlabel(f"{mean}, % (mean, SD)", fontsize=9)
    for y, (_, row) in enumerate(summary.iterrows()):
        if compared.iloc[y]:
            bars = compute_error_bars([row[column]], [row["difference low"]], [row["difference high"]])
            _draw_mean(axes[2], y, row[column], bars, 1)
            beside = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 8, "color": "0.3"}
            axes[2].annotate(state_p(row["p"]), (1.02, y), **beside)
    if compared.any():
        axes[2].axvline(0, color=series_style(0)["color"], linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
        axes[2].set_xlabel(f"AUC minus {label(reference)}, points\n(95 % interval, corrected p)", fontsize=9)
    for axis in axes:
        axis.locator_params(axis="x", nbins=6)
        axis.grid(axis="y", color="0.93")
        axis.set_axisbelow(True)
    axes[0].set_yticks(np.arange(len(summary)), [label(a) for a in summary["arm"]], fontsize=9)
    axes[0].set_ylim(len(summary) - 0.4, -0.6)
    return figure


def _draw_mean(axis: Any, y: int, x: float, bars: Any, k: int) -> None:
    """Draw a mean with its error bars in row y, in the style of series k."""
    style = series_style(k)
    axis.errorbar(x, y, xerr=bars, fmt=style["marker"], color=style["color"], capsize=2, markersize=6)


def draw_lines(axis: Any, x: Sequence[float], summary: pd.DataFrame, k: int, label: str = "") -> None:
    """Draw the mean AUC with its interval over sites along a setting."""
    bars = compute_error_bars(summary["AUC"], summary["low"], summary["high"])
    axis.errorbar(list(x), summary["AUC"], yerr=bars, capsize=3, label=label, **series_style(k))


def label_log_ticks(axis: Any) -> None:
    """Label the ticks of a logarithmic axis with plain numbers.

    An axis of less than half a decade has ticks at equal steps, one of less than two decades also at 2 and 5 times the
    powers of ten.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator

    low, high = axis.get_view_interval()
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())
    if high < 3 * low:
        axis.set_major_locator(MaxNLocator(5))
        axis.set_minor_locator(NullLocator())
    elif high < 50 * low:
        axis.set_minor_locator(LogLocator(subs=(2, 5)))
        axis.set_minor_formatter("{x:g}")

"""Style and files of all figures: a colour-blind-safe palette, plain axes, files written atomically."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from .errors import escape_controls
from .storage import write_atomically

STYLES = [
    ("#0072B2", "o"),
    ("#D55E00", "s"),
    ("#009E73", "D"),
    ("#CC79A7", "^"),
    ("#E69F00", "v"),
    ("#56B4E9", "P"),
    ("#000000", "X"),
]
"""Okabe-Ito palette, with a marker for each colour, so that series can be told apart in black and white."""


def series_style(k: int) -> dict[str, str]:
    """Return colour and marker of series k; after seven series, colours are combined with other markers."""
    n = len(STYLES)
    return {"color": STYLES[k % n][0], "marker": STYLES[(k + k // n) % n][1]}


def horizontal_offset(k: int, count: int, position_spacing: float) -> float:
    """Return the horizontal offset of series k, so that series at the same position do not hide each other."""
    # neighbouring series are at most 7% of the spacing apart, and all lie within 80% of it
    return position_spacing * min(0.07, 0.8 / count) * (k - (count - 1) / 2)


def make_panels(
    count: int = 1, width: float = 7.2, height: float = 3.6, rows: int = 1, **options: Any
) -> tuple[Any, list[Any]]:
    """Make a figure with axes side by side, in one row or several, without top and right spines.

    pyplot is avoided because it keeps figures in global state.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, -(-count // rows), squeeze=False, **options).ravel()
    for ax in axes[count:]:
        ax.remove()
    for ax in axes[:count]:
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
        ax.tick_params(labelsize=9)
    return figure, list(axes[:count])


def label_axis(
    axis: Any,
    x: str = "",
    y: str = "",
    *,
    title: str = "",
    grid: str = "",
    log: str = "",
    legend: dict[str, Any] | None = None,
    **others: Any,
) -> None:
    """Label an axis, with lines of a grid behind the series.

    ``grid`` and ``log`` name coordinates: x, y or xy; ``others`` are properties of :meth:`matplotlib.axes.Axes.set`.
    """
    axis.set(**{f"{which}scale": "log" for which in log}, **others)
    for which in log:
        label_log_ticks(getattr(axis, f"{which}axis"))
    axis.set_xlabel(x, fontsize=9)
    axis.set_ylabel(y, fontsize=9)
    if title:
        axis.set_title(title, fontsize=9, loc="left")
    if grid:
        axis.grid(axis=grid, color="0.93")
        axis.set_axisbelow(True)
    if legend is not None:
        axis.legend(**{"fontsize": 8, "frameon": False} | legend)


OUTSIDE = {"bbox_to_anchor": (1.01, 1), "loc": "upper left"}
"""Position of a legend next to its axis, if bars need the space inside."""
ABOVE = {"bbox_to_anchor": (1, 1), "loc": "lower right"}
"""Position of a legend above its axis."""
DASHED = {"color": "0.6", "linewidth": 0.8, "linestyle": (0, (4, 3)), "zorder": 0}
"""Style of a line that marks a reference."""


def compute_error_bars(mean: Any, low: Any, high: Any) -> np.ndarray:
    """Return the lengths of error bars below and above means; rounding never makes them negative.

    Shapes: returns [2, n].
    """
    centre, *ends = (np.atleast_1d(np.asarray(values, dtype=float)) for values in (mean, low, high))
    return np.clip([centre - ends[0], ends[1] - centre], 0.0, None)


def draw_intervals(axis: Any, x: Any, mean: Any, low: Any, high: Any, k: int, **options: Any) -> None:
    """Draw means with their intervals in the style of series k, along x."""
    bars = compute_error_bars(mean, low, high)
    axis.errorbar(x, mean, yerr=bars, **{"capsize": 2, **series_style(k), **options})


def draw_dot(axis: Any, y: Any, mean: Any, low: Any, high: Any, k: int, **options: Any) -> None:
    """Draw a mean in row y with its interval, in the style of series k."""
    style = {"capsize": 2, "markersize": 6, "linestyle": "none", **series_style(k)}
    axis.errorbar(mean, y, xerr=compute_error_bars(mean, low, high), **style | options)


def note_beside(axis: Any, y: float, text: str) -> None:
    """Write a text to the right of an axis, in row y."""
    beside = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 8, "color": "0.3"}
    axis.annotate(text, (1.02, y), **beside)


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


def render_figure(figure: Any, kind: str) -> bytes:
    """Return the content of a figure's file.

    The same figure gives the same bytes with the same version of matplotlib.
    """
    import matplotlib

    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    content = io.BytesIO()
    show_names_as_text(figure)
    with matplotlib.rc_context({"svg.hashsalt": "brio"}):
        figure.savefig(content, format=kind, dpi=150, metadata=undated)
    if kind == "svg":  # texts stand in its comments
        return escape_controls(content.getvalue().decode()).encode()
    return content.getvalue()


def show_names_as_text(figure: Any) -> None:
    """Show dollar signs literally, because names are not formulas. Only the numbers on logarithmic axes are typeset.

    Call it before a figure is drawn; :func:`render_figure` does.
    """
    from matplotlib.text import Text
    from matplotlib.ticker import LogFormatter

    for text in figure.findobj(Text):
        text.set_parse_math(False)
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            for minor in (False, True):
                formatter = axis.get_minor_formatter() if minor else axis.get_major_formatter()
                if isinstance(formatter, LogFormatter):
                    for text in axis.get_ticklabels(minor=minor):
                        text.set_parse_math(True)


def save_figure(figure: Any, path: str | Path) -> Path:
    """Write a figure to a file.

    An existing file is replaced only when the new one is complete.
    """
    path = Path(path)
    write_atomically(path, render_figure(figure, path.suffix.lower().removeprefix(".")))
    return path


def import_brain_plots() -> Any:
    """Import the figures of nilearn; None if it is not installed."""
    try:
        from nilearn import plotting
    except ImportError:
        return None
    return plotting

"""Style and files of all figures: a palette for all kinds of colour vision, plain axes, files written atomically."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["STYLES", "horizontal_offset", "make_panels", "save_figure", "series_style"]

STYLES = [
    ("#0072B2", "o"),
    ("#D55E00", "s"),
    ("#009E73", "D"),
    ("#CC79A7", "^"),
    ("#E69F00", "v"),
    ("#56B4E9", "P"),
    ("#000000", "X"),
]
"""The palette of Okabe and Ito, with a marker for each colour, to be told apart in print."""


def series_style(k: int) -> dict[str, str]:
    """Return colour and marker of series k; after seven series, colours are combined with other markers.

    Examples
    --------
    >>> series_style(0)
    {'color': '#0072B2', 'marker': 'o'}
    """
    n = len(STYLES)
    return {"color": STYLES[k % n][0], "marker": STYLES[(k + k // n) % n][1]}


def horizontal_offset(k: int, count: int, spacing: float) -> float:
    """Return the horizontal offset of series k, so that series at the same position do not hide each other.

    Parameters
    ----------
    k : int
        Index of the series.
    count : int
        Number of series.
    spacing : float
        Distance between neighbouring positions on the axis.

    Examples
    --------
    >>> [round(horizontal_offset(k, 3, 25.0), 2) for k in range(3)]
    [-1.75, 0.0, 1.75]
    """
    return spacing * min(0.07, 0.8 / count) * (k - (count - 1) / 2)


def make_panels(count: int = 1, width: float = 7.2, height: float = 3.6, **options: Any) -> tuple[Any, list[Any]]:
    """Make a figure with axes side by side, without frames at the top and right. pyplot is not used.

    Parameters
    ----------
    count : int
        Number of axes.
    width, height : float
        Size of the figure in inches.
    **options
        Passed to ``Figure.subplots``, such as ``sharey=True``.

    Returns
    -------
    figure : matplotlib.figure.Figure
    axes : list of matplotlib.axes.Axes
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False, **options)
    for axis in axes[0]:
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
        axis.tick_params(labelsize=9)
    return figure, list(axes[0])


def save_figure(figure: Any, path: str | Path) -> Path:
    """Write a figure to a file and return its path.

    An existing file is replaced only when the new one is complete. The same figure gives the same bytes.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
    path : str or Path
        The suffix decides the format.
    """
    import matplotlib

    path = Path(path)
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower())
    partial = path.with_name(path.stem + ".partial" + path.suffix)
    with matplotlib.rc_context({"svg.hashsalt": "brio"}):
        figure.savefig(partial, dpi=150, metadata=undated)
    partial.replace(path)
    return path

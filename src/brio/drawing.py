"""What all figures share: a palette told apart without colour vision, quiet axes, files written whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["STYLES", "dodge", "panels", "save", "style"]

STYLES = [
    ("#0072B2", "o"),
    ("#D55E00", "s"),
    ("#009E73", "D"),
    ("#CC79A7", "^"),
    ("#E69F00", "v"),
    ("#56B4E9", "P"),
    ("#000000", "X"),
]
"""Okabe & Ito's palette, and a marker each for print."""


def style(k: int) -> dict[str, str]:
    """Colour and marker of the k-th series; after seven the markers change against the colours."""
    n = len(STYLES)
    return {"color": STYLES[k % n][0], "marker": STYLES[(k + k // n) % n][1]}


def dodge(k: int, count: int, between: float) -> float:
    """How far the k-th of some series stands beside places that are so far apart, so that none hides another.

    Examples
    --------
    >>> [round(dodge(k, 3, 25.0), 2) for k in range(3)]
    [-1.75, 0.0, 1.75]
    """
    return between * min(0.07, 0.8 / count) * (k - (count - 1) / 2)


def panels(count: int = 1, width: float = 7.2, height: float = 3.6, **words: Any) -> tuple[Any, list[Any]]:
    """A figure with axes side by side, without frames above and to the right; pyplot and its windows are left alone."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False, **words)
    for axis in axes[0]:
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
        axis.tick_params(labelsize=9)
    return figure, list(axes[0])


def save(figure: Any, path: str | Path) -> Path:
    """Write a figure, or leave the old one; the same figure gives the same bytes."""
    import matplotlib

    path = Path(path)
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower())
    partial = path.with_name(path.stem + ".partial" + path.suffix)
    with matplotlib.rc_context({"svg.hashsalt": "brio"}):
        figure.savefig(partial, dpi=150, metadata=undated)
    partial.replace(path)
    return path

"""Positions of values in the drawings of the page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Scale:
    """A horizontal scale from ``low`` to ``high``; positions are in percent of its width."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """Return the position of a value."""
        return round(100 * (value - self.low) / (self.high - self.low), 2)

    @property
    def ticks(self) -> list[dict[str, Any]]:
        """Position and text of every multiple of ten."""
        first = int(np.ceil(self.low / 10) * 10)
        return [{"at": self.place(tick), "text": str(tick)} for tick in range(first, int(self.high) + 1, 10)]


def make_auc_scale(scores: Iterable[float | None]) -> Scale:
    """Make a scale from just below the lowest AUC, at most 40 %, to 100 %."""
    percents = [100 * score for score in scores if score is not None and not np.isnan(score)]
    return Scale(float(np.floor(min([44.0, *percents]) / 5) * 5), 100.0)


@dataclass(frozen=True)
class Frame:
    """The plot area of a small chart, and the ranges of its axes."""

    x_low: float  # ranges of the axes
    x_high: float
    y_low: float
    y_high: float
    left: float = 38.0  # the plot area in the units of the drawing
    top: float = 8.0
    width: float = 174.0
    height: float = 148.0

    def x(self, value: float) -> float:
        """Return the horizontal position of a value."""
        return round(self.left + self.width * (value - self.x_low) / (self.x_high - self.x_low), 1)

    def y(self, value: float) -> float:
        """Return the vertical position of a value."""
        return round(self.top + self.height * (1 - (value - self.y_low) / (self.y_high - self.y_low)), 1)

    def trace(self, xs: np.ndarray, ys: np.ndarray) -> str:
        """Return the points of a line, without those whose y is NaN."""
        return " ".join(f"{self.x(a):g},{self.y(b):g}" for a, b in zip(xs, ys, strict=True) if not np.isnan(b))

    def outline(self, xs: np.ndarray, low: np.ndarray, high: np.ndarray) -> str:
        """Return the points around the area between two lines.

        Shapes: xs, low, high [n].
        """
        defined = ~(np.isnan(low) | np.isnan(high))
        xs, low, high = (np.asarray(values, dtype=float)[defined] for values in (xs, low, high))
        return f"{self.trace(xs, low)} {self.trace(xs[::-1], high[::-1])}".strip()

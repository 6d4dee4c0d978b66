"""Numbers as the page prints them: the formats of :mod:`brio.results.format` with the signs of a printed page."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...results.format import (
    format_count,
    format_interval,
    format_number,
    format_p,
    format_percent,
    format_points,
    format_range,
    join_names,
    state_p,
    typeset,
)

__all__ = ["MISSING", "count", "interval", "listed", "number", "p_value", "percent", "signed", "span", "stated_p"]

MISSING = typeset(format_percent(None))
count, span, listed, stated_p = format_count, format_range, join_names, state_p


def percent(share: float | None) -> str:
    """Print a share in percent.

    Examples
    --------
    >>> percent(0.7371), percent(None)
    ('73.7', '–')
    """
    return typeset(format_percent(share))


def signed(share: float | None) -> str:
    """Print a difference of shares in percentage points.

    Examples
    --------
    >>> signed(0.012), signed(-0.0711), signed(0.0)
    ('+1.2', '−7.1', '0.0')
    """
    return typeset(format_points(share))


def interval(ends: Sequence[float] | None, write: Callable[[float], str] = percent) -> str:
    """Print both ends of an interval.

    Examples
    --------
    >>> interval([0.685, 0.767]), interval(None)
    ('68.5 to 76.7', '–')
    """
    return typeset(format_interval(ends, write))


def p_value(p: float | None) -> str:
    """Print a p value.

    Examples
    --------
    >>> p_value(0.00004), p_value(0.0312), p_value(0.25)
    ('< 0.001', '0.031', '0.25')
    """
    return typeset(format_p(p))


def number(value: float | None, digits: int = 2) -> str:
    """Print a plain number to so many digits."""
    return typeset(format_number(value, digits))

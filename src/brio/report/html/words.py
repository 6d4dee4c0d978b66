"""Numbers and names as the report writes them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["MISSING", "count", "interval", "listed", "number", "p_value", "percent", "signed", "span"]

MISSING = "–"


def percent(share: float | None) -> str:
    """A share in percent, one digit.

    Examples
    --------
    >>> percent(0.7371), percent(None)
    ('73.7', '–')
    """
    return MISSING if share is None or math.isnan(share) else f"{100 * share:.1f}"


def signed(share: float | None) -> str:
    """A difference of shares in points, with its sign.

    Examples
    --------
    >>> signed(0.012), signed(-0.0711), signed(0.0)
    ('+1.2', '−7.1', '0.0')
    """
    if share is None or math.isnan(share):
        return MISSING
    points = f"{abs(100 * share):.1f}"
    return points if float(points) == 0 else ("+" if share > 0 else "−") + points


def interval(ends: Sequence[float] | None, write: Any = percent) -> str:
    """Both ends of an interval, or a dash.

    Examples
    --------
    >>> interval([0.685, 0.767]), interval(None)
    ('68.5 to 76.7', '–')
    """
    if ends is None or any(math.isnan(e) for e in ends):
        return MISSING
    return f"{write(ends[0])} to {write(ends[1])}"


def p_value(p: float | None) -> str:
    """A p value to the digits that matter.

    Examples
    --------
    >>> p_value(0.00004), p_value(0.0312), p_value(0.25)
    ('< 0.001', '0.031', '0.25')
    """
    if p is None or math.isnan(p):
        return MISSING
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def number(value: float | None, digits: int = 2) -> str:
    """A plain number to so many digits, or a dash."""
    return MISSING if value is None or math.isnan(value) else f"{value:.{digits}f}".replace("-", "−")


def count(n: int, one: str, many: str = "") -> str:
    """A number of things, thousands set apart.

    Examples
    --------
    >>> count(1, "site"), count(1030, "scan")
    ('1 site', '1,030 scans')
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def span(low: float, high: float, digits: int = 0) -> str:
    """A range, or the one value of it.

    Examples
    --------
    >>> span(78, 316), span(2.0, 2.0, 1)
    ('78–316', '2.0')
    """
    a, b = f"{low:.{digits}f}", f"{high:.{digits}f}"
    return a if a == b else f"{a}–{b}"


def listed(names: Iterable[str], most: int = 6) -> str:
    """Names in a sentence; the rest of a long list is counted.

    Examples
    --------
    >>> listed(["a", "b", "c"]), listed("abcdefgh", most=3)
    ('a, b and c', 'a, b, c and 5 more')
    """
    every = list(names)
    if len(every) > most:
        return f"{', '.join(every[:most])} and {len(every) - most} more"
    return " and ".join([", ".join(every[:-1]), every[-1]] if len(every) > 1 else every)

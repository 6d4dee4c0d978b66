"""Formatting of p values, counts and times: the one rule for audits, tables, studies and reports."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

__all__ = ["MISSING", "format_count", "format_p", "format_time", "is_missing", "state_p"]

MISSING = "-"
SMALLEST_P = 0.001


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NA or NaN."""
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def format_p(p: float | None) -> str:
    """Format a p value: three decimals below 0.1, two above, and no digits below 0.001.

    Examples
    --------
    >>> format_p(0.0007), format_p(0.0312), format_p(0.25), format_p(1.0), format_p(None)
    ('< 0.001', '0.031', '0.25', '1.00', '-')
    """
    if p is None or is_missing(p):
        return MISSING
    return f"< {SMALLEST_P}" if p < SMALLEST_P else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def state_p(p: float | None) -> str:
    """Format a p value for a sentence.

    Examples
    --------
    >>> state_p(0.0007), state_p(0.2), state_p(float("nan"))
    ('p < 0.001', 'p = 0.20', 'no test')
    """
    if p is None or is_missing(p):
        return "no test"
    return f"p {format_p(p)}" if p < SMALLEST_P else f"p = {format_p(p)}"


def format_count(n: int, one: str, many: str = "") -> str:
    """Write a number of things, with separated thousands.

    Parameters
    ----------
    n : int
    one : str
        What one of them is called.
    many : str, optional
        What several are called; by default with an s.

    Examples
    --------
    >>> format_count(1, "site"), format_count(1030, "scan"), format_count(2, "scan has", "scans have")
    ('1 site', '1,030 scans', '2 scans have')
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def format_time(seconds: float) -> str:
    """Write how long something takes, for people.

    Examples
    --------
    >>> format_time(42.0), format_time(600.0), format_time(9000.0)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"

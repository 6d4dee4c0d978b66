"""Formatting of p values, counts and times: the one rule for audits, tables, studies and reports."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

MISSING = "-"
SMALLEST_P = 0.001


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NA or NaN."""
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def format_p(p: float | None) -> str:
    """Format a p value: three decimals below 0.1, two above, and no digits below 0.001."""
    if p is None or is_missing(p):
        return MISSING
    return f"< {SMALLEST_P}" if p < SMALLEST_P else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def state_p(p: float | None) -> str:
    """Format a p value for a sentence."""
    if p is None or is_missing(p):
        return "no test"
    return f"p {format_p(p)}" if p < SMALLEST_P else f"p = {format_p(p)}"


def format_count(n: int, one: str, many: str = "") -> str:
    """Write a number of things, with separated thousands."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def format_time(seconds: float) -> str:
    """Write how long something takes, for people."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"

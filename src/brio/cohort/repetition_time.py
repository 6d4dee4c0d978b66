"""What a repetition time may be."""

from __future__ import annotations

from typing import Any

from ..errors import BrioError

SHORTEST, LONGEST = 0.01, 100.0
"""Seconds between two frames; a larger number is most often one of milliseconds."""


def is_repetition_time(value: Any) -> bool:
    """Return whether a value can be the seconds between two frames."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return SHORTEST <= value <= LONGEST


def require_repetition_time(value: Any, what: str) -> float:
    """Require that a value can be the seconds between two frames."""
    if not is_repetition_time(value):
        raise BrioError(
            f"{what} is {repr(value)[:40]}; a positive number of seconds is needed, from {SHORTEST} to {LONGEST:.0f}"
        )
    return float(value)

"""Domains of stored values, which stand in the annotations of the records: ``auc: StoredShare | None``.

They bound what a file may hold; :mod:`brio.settings` bounds what a setting or an option may be. A float is finite and a
whole number fits into 64 bits wherever nothing else is said.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated, Any


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both included unless ``open_below``."""

    words: str
    low: float = -math.inf
    high: float = math.inf
    open_below: bool = False

    def fits(self, value: Any) -> bool:
        """Return whether a number lies in the range."""
        return bool(self.low < value if self.open_below else self.low <= value) and bool(value <= self.high)


@dataclass(frozen=True)
class Pattern:
    """Text that a regular expression matches as a whole."""

    words: str
    expression: str

    def fits(self, value: Any) -> bool:
        """Return whether a text matches."""
        return re.fullmatch(self.expression, value) is not None


@dataclass(frozen=True)
class Filled:
    """Lists and objects that are not empty."""

    words: str

    def fits(self, value: Any) -> bool:
        """Return whether there is an item."""
        return len(value) > 0


StoredDomain = Range | Pattern | Filled
NOT_EMPTY = Filled("at least one item")


@dataclass(frozen=True)
class SameLength:
    """A list with as many items as another field of the same record has."""

    field: str


@dataclass(frozen=True)
class FieldsOf:
    """A JSON object whose keys that a frozen dataclass has are read as its fields; other keys may hold anything."""

    kind: type


@dataclass(frozen=True)
class SettingsOf(FieldsOf):
    """A JSON object with settings of a frozen dataclass: known names, values of its types, and its own checks."""


def one_of(*names: str) -> Pattern:
    """Make the domain of some words."""
    return Pattern(" or ".join(f"'{name}'" for name in names), "|".join(map(re.escape, names)))


StoredShare = Annotated[float, Range("a number from 0 to 1", 0, 1)]
StoredNonNegative = Annotated[float, Range("a number of 0 or more", 0)]
StoredPositive = Annotated[float, Range("a number above 0", 0, open_below=True)]
StoredCount = Annotated[int, Range("a whole number of 0 or more", 0)]
StoredPositiveCount = Annotated[int, Range("a whole number of 1 or more", 1)]
Name = Annotated[str, Pattern("text in one line that is not empty", r"[^\r\n]+")]
Setting = bool | int | float | str | None
Hex = Annotated[str, Pattern("text of hexadecimal digits", "[0-9a-f]+")]

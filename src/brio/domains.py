"""Domains of numbers: which values a setting or an option may have, declared with its type.

A field of settings is annotated with one of the types below, such as ``J: Count = 4``. The domain is checked wherever
settings are made (:func:`brio.settings.check_domains`), listed by ``brio settings`` and shown in the documentation.
Upper bounds are far above what anybody needs; they stop values that could only end in a hang or a full memory.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import types
import typing
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal

from .errors import BrioError


@dataclass(frozen=True)
class Domain:
    """An interval of numbers; infinity and nan are never inside."""

    low: float = -math.inf  # its ends
    high: float = math.inf
    above: bool = False  # whether the lower and the upper end are not inside
    below: bool = False

    def __contains__(self, value: Any) -> bool:
        # integers are compared exactly, however large, and every comparison with nan is false
        inside = self.low < value if self.above or self.low == -math.inf else self.low <= value
        return inside and (value < self.high if self.below or self.high == math.inf else value <= self.high)

    def __str__(self) -> str:
        words = [] if self.low == -math.inf else [f"{'above' if self.above else 'at least'} {_write(self.low)}"]
        words += [] if self.high == math.inf else [f"{'below' if self.below else 'at most'} {_write(self.high)}"]
        return " and ".join(words) or "finite"


def _write(bound: float) -> str:
    return f"{int(bound):,}" if bound == int(bound) else f"{bound:g}"


Epochs = Annotated[int, Domain(1, 100_000)]
Count = Annotated[int, Domain(1, 10_000)]
"""Iterations, re-estimates, windows and other small numbers."""
Width = Annotated[int, Domain(1, 8_192)]
"""Of a layer, an embedding or a kernel."""
GridSize = Annotated[int, Domain(1, 1_000)]
"""Number of penalties in a grid."""
Layers = Annotated[int, Domain(1, 100)]
LearningRate = Annotated[float, Domain(0, 10, above=True)]
Weight = Annotated[float, Domain(0, 1e6)]
"""Of a term of a loss."""
Positive = Annotated[float, Domain(1e-12, 1e6)]
"""Penalties, stabilisers and scales; their reciprocals are finite in single precision too."""
Temperature = Annotated[float, Domain(1e-3, 1e3)]
Share = Annotated[float, Domain(0, 1)]
PositiveShare = Annotated[float, Domain(0, 1, above=True)]
ShareBelowOne = Annotated[float, Domain(0, 1, below=True)]
InnerShare = Annotated[float, Domain(0, 1, above=True, below=True)]
Seed = Annotated[int, Domain(0, 2**32 - 1)]
Seeds = Annotated[int, Domain(1, 1_000)]
"""How many seeds a job has."""
Budget = Annotated[int, Domain(1, 1_000)]
"""How many configurations a search tries."""
Participants = Annotated[int, Domain(1, 100_000)]
Sessions = Annotated[int, Domain(1, 1_000)]
SimulatedRois = Annotated[int, Domain(8, 10_000)]
SimulatedFrames = Annotated[int, Domain(30, 1_000_000)]
ValidationSites = Annotated[int, Domain(0, 10_000)]
RunsPerStack = Annotated[int, Domain(1, 100_000)]
Workers = Annotated[int, Domain(1, 10_000)]
Reestimates = Annotated[int, Domain(2, 10_000)]
ReestimatesOrNone = Annotated[int, Domain(0, 10_000)]
Accuracy = Annotated[float, Domain(0.5, 1)]
Spread = Annotated[float, Domain(0, 1_000)]
"""A standard deviation."""
PositiveSpread = Annotated[float, Domain(0, 1_000, above=True)]
Seconds = Annotated[float, Domain(0, 1e6)]
RepetitionTime = Annotated[float, Domain(0.01, 100)]
"""In seconds."""
BlockLength = Annotated[float, Domain(1, 10_000)]
"""In frames."""

_KINDS = {int: "a whole number", float: "a number"}


@dataclass(frozen=True)
class Number:
    """What a field that holds a number accepts."""

    kind: type
    domain: Domain = Domain()
    others: tuple[Any, ...] = ()  # values besides numbers: words, or None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON has it; what is as by default is left out."""
        ends = {name: value for name, value in vars(self.domain).items() if value != getattr(Domain(), name)}
        return {"kind": self.kind.__name__, **ends, **({"others": list(self.others)} if self.others else {})}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Number:
        """Make it from what :meth:`to_json` returned."""
        ends = {name: end for name, end in value.items() if name not in ("kind", "others")}
        return cls({"int": int, "float": float}[value["kind"]], Domain(**ends), tuple(value.get("others", ())))

    def check(self, value: Any, where: str) -> None:
        """Raise an error if a value is not accepted."""
        if any(value is other or (isinstance(value, str) and value == other) for other in self.others):
            return
        kind = numbers.Integral if self.kind is int else numbers.Real
        is_number = isinstance(value, kind) and not isinstance(value, bool)
        if not is_number or value not in self.domain:
            rule = [_KINDS[self.kind]] if not is_number else []
            rule += [str(self.domain)] if not is_number or self.domain != Domain() else ["a finite number"]
            others = "".join(f", or {'none' if other is None else other}" for other in self.others)
            raise BrioError(f"{where}{shorten_value(value)}: must be {', '.join(rule)}{others}")


def read_number(hint: Any) -> Number | None:
    """Read from a type hint which numbers it accepts.

    Returns None where the type holds no numbers.
    """
    if hint in (int, float):
        return Number(hint)
    if typing.get_origin(hint) is Annotated:
        kind, *notes = typing.get_args(hint)
        domain = next((note for note in notes if isinstance(note, Domain)), Domain())
        return Number(kind, domain) if kind in (int, float) else None
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        parts = typing.get_args(hint)
        found = [number for part in parts if (number := read_number(part)) is not None]
        if len(found) != 1:
            return None
        words = [word for part in parts if typing.get_origin(part) is Literal for word in typing.get_args(part)]
        return dataclasses.replace(found[0], others=(*words, *([None] if type(None) in parts else [])))
    return None


def find_numbers(settings: type) -> dict[str, Number]:
    """Find the fields of a dataclass that hold numbers, and what each accepts."""
    return _read_fields(typing.cast(Any, settings))


@cache
def _read_fields(settings: Any) -> dict[str, Number]:
    hints = typing.get_type_hints(settings, include_extras=True)
    found = {f.name: read_number(hints[f.name]) for f in dataclasses.fields(settings)}
    return {name: number for name, number in found.items() if number is not None}


def require_number(value: Any, hint: Any, name: str) -> None:
    """Raise an error that names a parameter if its value is not in the domain of its type."""
    number = read_number(hint)
    assert number is not None, hint
    number.check(value, f"setting '{name}'=")


def shorten_value(value: Any) -> str:
    """Write a value for a message: at most forty characters, also of a number with thousands of digits."""
    if isinstance(value, int) and value.bit_length() > 100:  # str() refuses numbers of many digits
        return f"about {'-' if value < 0 else ''}1e+{round((value.bit_length() - 1) * math.log10(2))}"
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."

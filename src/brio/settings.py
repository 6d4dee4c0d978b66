"""Settings of methods and protocols: domains of values, search spaces, checks, and what is said of each."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import numbers
import re
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from . import draws
from .errors import BrioError, nearest


@dataclass(frozen=True)
class Space:
    """The values that one setting may take when it is tuned; made by :func:`choice`, :func:`uniform`, ..."""

    kind: str
    values: tuple[Any, ...]  # the values of a choice, or both ends of an interval

    def at(self, u: float) -> Any:
        """Return the value at a share u in [0, 1) of the space."""
        if self.kind == "choice":
            return self.values[int(u * len(self.values))]
        low, high = self.values
        if self.kind == "log-uniform":
            # two significant digits are fine enough for a search, and easy to read
            return float(f"{math.exp(math.log(low) + u * (math.log(high) - math.log(low))):.2g}")
        return float(f"{low + u * (high - low):.2g}")

    def __str__(self) -> str:
        if self.kind == "choice":
            return ", ".join(str(v) for v in self.values)
        return f"{self.values[0]:g} to {self.values[1]:g}" + (" (log)" if self.kind == "log-uniform" else "")


def choice(*values: Any) -> Space:
    """Make a space of some values, all equally likely.

    Examples
    --------
    >>> print(choice(16, 32, 64))
    16, 32, 64
    """
    return Space("choice", values)


def uniform(low: float, high: float) -> Space:
    """Make a space of the numbers in an interval, all equally likely.

    Examples
    --------
    >>> print(uniform(0, 0.5))
    0 to 0.5
    """
    return Space("uniform", (low, high))


def log_uniform(low: float, high: float) -> Space:
    """Make a space of the numbers in an interval, uniform in their logarithm.

    Examples
    --------
    >>> print(log_uniform(1e-4, 1e-2))
    0.0001 to 0.01 (log)
    """
    return Space("log-uniform", (low, high))


def draw_configurations(settings: Any, budget: int, fixed: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Draw configurations of the tunable settings of a method; the first one is the default.

    The address of a value is the name of its setting and the number of its configuration, so a larger budget or a
    further setting changes none of the others. A configuration that repeats an earlier one, or that the settings
    reject, is replaced by the next draw.
    """
    spaces = {
        f.name: f.metadata["space"]
        for f in dataclasses.fields(settings)
        if f.metadata.get("space") is not None and f.name not in (fixed or {})
    }
    configurations: list[dict[str, Any]] = [{name: getattr(settings, name) for name in spaces}]
    number = 0
    while len(configurations) < budget and number < 100 * budget and spaces:
        number += 1
        drawn = {
            name: space.at(float(draws.draw_uniform("configuration", name, number))) for name, space in spaces.items()
        }
        try:
            dataclasses.replace(settings, **drawn)
        except ValueError:  # BrioError is one
            continue
        if drawn not in configurations:
            configurations.append(drawn)
    return configurations


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


T = TypeVar("T")
_read_hints = functools.cache(typing.get_type_hints)  # they are text, which is compiled each time they are read


def setting(default: Any, space: Any = None) -> Any:
    """Declare a field of settings.

    Parameters
    ----------
    default : Any
    space : brio.settings.Space, optional
        Values to try when the setting is tuned; without a space it is not tuned.
    """
    return dataclasses.field(default=default, metadata={"space": space})


def parse_assignments(pairs: Iterable[str]) -> dict[str, str]:
    """Split ``key=value`` texts into a dictionary."""
    values: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise BrioError(f"--set {pair}: write it as key=value")
        if name.strip() in values:
            raise BrioError(f"--set {name.strip()}: given twice")
        values[name.strip()] = value.strip()
    return values


def format_setting(value: object) -> str:
    """Format a value as ``--set`` takes it."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def replace_values(settings: T, values: dict[str, Any], prefix: str = "") -> T:
    """Return a copy of settings with some values replaced."""
    hints = _read_hints(type(settings))  # type: ignore[arg-type]
    known = {f.name for f in dataclasses.fields(settings)}  # type: ignore[arg-type]
    changed = {}
    for name, value in values.items():
        if name not in known:
            hint = nearest(prefix + name, {prefix + k for k in known})
            raise BrioError(f"setting '{prefix}{name}' is unknown; {hint}")
        changed[name] = _convert(value, hints[name], f"setting '{prefix}{name}'")
    replaced = dataclasses.replace(settings, **changed)  # type: ignore[type-var]
    check_domains(replaced, prefix)  # again, for classes of users that do not do so themselves
    return replaced


def check_domains(settings: Any, prefix: str = "") -> None:
    """Check that every number of settings lies in the domain that its field declares.

    A class of settings calls this in ``__post_init__``. A number without a declared domain has to be finite.
    """
    for name, number in find_numbers(type(settings)).items():
        number.check(getattr(settings, name), f"setting '{prefix}{name}'=")


def check_number(value: Any, number: Number, where: str) -> None:
    """Check a value, which may be text, against the numbers that a setting accepts; needs no class of settings."""
    hint: Any = number.kind
    for other in number.others:
        hint = hint | (None if other is None else Literal[other])
    number.check(_convert(value, hint, where), f"{where}=")


def _convert(value: Any, hint: Any, where: str) -> Any:
    """The value in the type that a hint asks for; ``where`` names the setting in errors."""
    origin = typing.get_origin(hint)
    if origin is Literal:
        options = typing.get_args(hint)
        if not isinstance(value, str) or value not in options:
            raise BrioError(f"{where}: '{shorten_value(value)}' is not one of {', '.join(map(str, options))}")
        return value
    if origin in (typing.Union, types.UnionType):
        inner = [a for a in typing.get_args(hint) if a is not type(None)]
        words = [word for a in inner if typing.get_origin(a) is Literal for word in typing.get_args(a)]
        if words:
            where = f"{where}, which may be {' or '.join(words)}"
            return value if isinstance(value, str) and value in words else _convert(value, inner[0], where)
        if value is None or (isinstance(value, str) and value.lower() in ("none", "")):
            return None
        return _convert(value, inner[0], where)
    if hint is bool:
        text = str(value).lower()
        if text not in ("true", "false", "1", "0", "yes", "no"):
            raise BrioError(f"{where}: '{shorten_value(value)}' is not true or false")
        return text in ("true", "1", "yes")
    try:
        if hint in (int, float) and isinstance(value, bool):
            raise ValueError
        if hint is int and isinstance(value, float) and value != int(value):
            raise ValueError
        return hint(value)
    except (TypeError, ValueError, OverflowError):
        kind = {int: "a whole number", float: "a number"}.get(hint, f"a {hint.__name__}")
        raise BrioError(f"{where}: '{shorten_value(value)}' is not {kind}") from None


def require(holds: bool, name: str, value: Any, rule: str) -> None:
    """Raise an error that names a setting if its value breaks a rule.

    Parameters
    ----------
    holds : bool
        Whether the value keeps the rule.
    name : str
    value : Any
    rule : str
        What the value must be, such as "at least 1".

    Raises
    ------
    BrioError
        If the rule does not hold.
    """
    if not holds:
        raise BrioError(f"setting '{name}'={shorten_value(value)}: must be {rule}")


_KIND_NAMES = {int: "whole number", float: "number", str: "text", bool: "true, false"}


class SettingFacts(NamedTuple):
    """What is known of a setting."""

    name: str
    default: Any
    values: str  # which values it takes, in words
    tuned_over: str  # which of them a search tries; empty where it is not tuned
    meaning: str  # the first sentence of its documentation


def list_setting_facts(settings: type) -> list[SettingFacts]:
    """List what is known of the fields of settings."""
    hints = typing.get_type_hints(settings, include_extras=True)
    meanings: dict[str, str] = {}
    for cls in settings.__mro__:
        meanings = _read_attributes(cls) | meanings
    facts = []
    for f in dataclasses.fields(settings):
        space = f.metadata.get("space")
        meaning = meanings.get(f.name, "")
        facts.append(SettingFacts(f.name, f.default, _describe_type(hints[f.name]), str(space or ""), meaning))
    return facts


def _describe_type(hint: Any) -> str:
    """Values of a type in words, with the domain of a number."""
    if typing.get_origin(hint) is Annotated:
        kind, *notes = typing.get_args(hint)
        return ", ".join([_describe_type(kind), *(str(note) for note in notes if isinstance(note, Domain))])
    if typing.get_origin(hint) is Literal:
        return ", ".join(map(str, typing.get_args(hint)))
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [_describe_type(one) for one in typing.get_args(hint) if one is not type(None)]
        return " or ".join([*kinds, *(["none"] if type(None) in typing.get_args(hint) else [])])
    return _KIND_NAMES.get(hint, getattr(hint, "__name__", str(hint)))


def _read_attributes(cls: type) -> dict[str, str]:
    """Read the first sentence about each attribute from the docstring of a class."""
    text = inspect.cleandoc(cls.__doc__ or "")
    section = re.search(r"^Attributes\n-+\n(.*?)(?=\n\S[^\n]*\n-{3,}\n|\Z)", text, re.M | re.S)
    if section is None:
        return {}
    meanings: dict[str, str] = {}
    for names, text in re.findall(r"^(\S[^\n]*)\n((?:[ ]+[^\n]*\n?|\n)+)", section[1] + "\n", re.M):
        # not at the full stop of "Eq. (5)"
        sentence = re.split(r"\.(?=\s+[A-Z]|$)", " ".join(text.split()).replace("``", ""), maxsplit=1)[0]
        meanings |= dict.fromkeys((name.strip() for name in names.split(" : ")[0].split(",")), sentence)
    return meanings

"""Settings of methods and protocols: search spaces, domains of values, checks and descriptions.

A domain is a type with msgspec bounds, such as ``Annotated[int, Meta(ge=1, le=512)]``. Domains are read here for
settings and options, and in :mod:`brio.schemas` for stored files.
"""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import functools
import inspect
import math
import numbers
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta
from msgspec import inspect as kinds

from .errors import BrioError, escape_controls, nearest


@dataclass(frozen=True)
class Space:
    """Values to try when a setting is tuned; :func:`choice`, :func:`uniform` and :func:`log_uniform` make spaces."""

    kind: str
    values: tuple[Any, ...]  # the values of a choice, or both ends of an interval

    def at(self, u: float) -> Any:
        """Return the value of the space at position u, with 0 <= u < 1."""
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
    """Make a search space of equally likely values.

    Parameters
    ----------
    *values
        Values to choose from.

    Examples
    --------
    >>> print(choice(16, 32, 64))
    16, 32, 64
    """
    return Space("choice", values)


def uniform(low: float, high: float) -> Space:
    """Make a search space of uniformly distributed numbers.

    Parameters
    ----------
    low, high : float
        Ends of the interval.

    Examples
    --------
    >>> print(uniform(0, 0.5))
    0 to 0.5
    """
    return Space("uniform", (low, high))


def log_uniform(low: float, high: float) -> Space:
    """Make a search space of numbers whose logarithms are uniformly distributed.

    Parameters
    ----------
    low, high : float
        Ends of the interval.

    Examples
    --------
    >>> print(log_uniform(1e-4, 1e-2))
    0.0001 to 0.01 (log)
    """
    return Space("log-uniform", (low, high))


def draw_configurations(settings: Any, budget: int, fixed: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Draw configurations of the tunable settings of a method; the first one is that of ``settings``.

    Each value is determined by its setting and the number of the draw. A configuration that repeats an
    earlier one, or that the settings reject, is replaced by the next draw.
    """
    from . import draws  # imports numpy, for which nobody who asks for help should wait

    tuned = [f for f in dataclasses.fields(settings) if f.metadata.get("space") and f.name not in (fixed or {})]
    spaces = [(f.name, f.metadata["space"]) for f in tuned]
    configurations: list[dict[str, Any]] = [{name: getattr(settings, name) for name, _ in spaces}]
    number = 0
    while len(configurations) < budget and number < 100 * budget and spaces:
        number += 1
        drawn = {name: space.at(float(draws.draw_uniform("configuration", name, number))) for name, space in spaces}
        try:
            dataclasses.replace(settings, **drawn)
        except ValueError:  # BrioError is one
            continue
        if drawn not in configurations:
            configurations.append(drawn)
    return configurations


Epochs = Annotated[int, Meta(ge=1, le=100_000)]
Count = Annotated[int, Meta(ge=1, le=10_000)]
"""Iterations, re-estimates, windows and other small numbers."""
FederatedIterations = Annotated[int, Meta(ge=1, le=100)]
"""Iterations of a federated fit; each one after the first adds two rounds, with an answer of every site."""
FederatedSites = Annotated[int, Meta(ge=3, le=10_000)]
"""Sites of a federated fit; with three in a sum, no site learns the part of another by subtracting its own."""
Width = Annotated[int, Meta(ge=1, le=8_192)]
"""Of a layer, an embedding or a kernel."""
Heads = Annotated[int, Meta(ge=1, le=256)]
"""Of attention."""
BatchSize = Annotated[int, Meta(ge=1, le=1_024)]
"""Scans of a batch, of a class at a site."""
GridSize = Annotated[int, Meta(ge=1, le=1_000)]
"""Number of penalties in a grid."""
Layers = Annotated[int, Meta(ge=1, le=100)]
LearningRate = Annotated[float, Meta(gt=0, le=10)]
Weight = Annotated[float, Meta(ge=0, le=1e6)]
"""Of a term of a loss."""
Positive = Annotated[float, Meta(ge=1e-12, le=1e6)]
"""Penalties, stabilisers and scales; their reciprocals are finite in single precision too."""
Temperature = Annotated[float, Meta(ge=1e-3, le=1e3)]
Share = Annotated[float, Meta(ge=0, le=1)]
PositiveShare = Annotated[float, Meta(gt=0, le=1)]
ShareBelowOne = Annotated[float, Meta(ge=0, lt=1)]
InnerShare = Annotated[float, Meta(gt=0, lt=1)]
Seed = Annotated[int, Meta(ge=0, le=2**32 - 1)]
Seeds = Annotated[int, Meta(ge=1, le=1_000)]
"""How many seeds a job has."""
Budget = Annotated[int, Meta(ge=1, le=1_000)]
"""How many configurations a search tries."""
Participants = Annotated[int, Meta(ge=1, le=100_000)]
Sessions = Annotated[int, Meta(ge=1, le=1_000)]
Rois = Annotated[int, Meta(ge=1, le=100_000)]
SimulatedRois = Annotated[int, Meta(ge=8, le=10_000)]
SimulatedFrames = Annotated[int, Meta(ge=30, le=1_000_000)]
ValidationSites = Annotated[int, Meta(ge=0, le=10_000)]
RunsPerStack = Annotated[int, Meta(ge=1, le=100_000)]
Workers = Annotated[int, Meta(ge=1, le=10_000)]
Reestimates = Annotated[int, Meta(ge=2, le=10_000)]
ReestimatesOrNone = Annotated[int, Meta(ge=0, le=10_000)]
Accuracy = Annotated[float, Meta(ge=0.5, le=1)]
Spread = Annotated[float, Meta(ge=0, le=1_000)]
"""A standard deviation."""
PositiveSpread = Annotated[float, Meta(gt=0, le=1_000)]
Seconds = Annotated[float, Meta(ge=0, le=1e6)]
Frequency = Annotated[float, Meta(gt=0, le=50)]
"""In Hz."""
RepetitionTime = Annotated[float, Meta(ge=0.01, le=100)]
"""In seconds."""
BlockLength = Annotated[float, Meta(ge=1, le=10_000)]
"""In frames."""

read_hints: Callable[[Any], dict[str, Any]] = cache(partial(typing.get_type_hints, include_extras=True))
"""Types of the fields of a dataclass, with their domains; cached, because the annotations are text."""
_NUMBERS = (kinds.IntType, kinds.FloatType)
_BOUNDS = ("gt", "ge", "lt", "le")
_SPELLED = {"none": None, "": None, "yes": True, "no": False}
_WORDS: dict[type, str] = {
    kinds.IntType: "a whole number",
    kinds.FloatType: "a number",
    kinds.StrType: "text",
    kinds.BoolType: "true or false",
    kinds.DictType: "an object",
    kinds.DataclassType: "an object",
}


def list_kinds(kind: Any) -> tuple[Any, ...]:
    """List the types of a union, or the single type, as msgspec reads them; empty if msgspec does not know the type."""
    try:
        info = kind if isinstance(kind, kinds.Type) else kinds.type_info(kind)
    except TypeError:
        return ()
    return info.types if isinstance(info, kinds.UnionType) else (info,)


def describe_kind(kind: Any, none: str = "none") -> str:
    """Describe the values that a type allows, such as "a whole number from 1 to 512 or none"."""
    return " or ".join(_describe_one(one, none) for one in list_kinds(kind)) or str(kind)


def _describe_one(kind: Any, none: str) -> str:
    match kind:
        case kinds.Metadata(extra_json_schema={"description": words}):
            return words
        case kinds.Metadata():
            return _describe_one(kind.type, none)
        case kinds.NoneType():
            return none
        case kinds.LiteralType(values=(*others, last)):
            return f"{', '.join(map(str, others))} or {last}" if others else str(last)
        case kinds.TupleType(item_types=items):
            return f"a list of {len(items)}"
        case kinds.CustomType(cls=cls):
            return f"a {cls.__name__}"
        case kinds.FloatType(gt=None, ge=None, lt=None, le=None):
            return "a finite number"
        case kinds.IntType() | kinds.FloatType():
            if kind.ge is not None and kind.le is not None:
                return f"{_WORDS[type(kind)]} from {_write(kind.ge)} to {_write(kind.le)}"
            ends = (("above", kind.gt), ("of at least", kind.ge), ("below", kind.lt), ("at most", kind.le))
            words = " and ".join(f"{word} {_write(end)}" for word, end in ends if end is not None)
            return f"{_WORDS[type(kind)]} {words}".rstrip()
    return _WORDS.get(type(kind), "a list")


def _write(bound: float) -> str:
    return f"{int(bound):,}" if bound == int(bound) else f"{bound:g}"


def fit_value(value: Any, kind: Any, where: str, strict: bool = True) -> Any:
    """Convert a value to a type; text is converted too unless ``strict``. ``where`` precedes the value in an error."""
    tried = [value]
    if isinstance(value, numbers.Real) and not isinstance(value, bool):  # grids of parameters hold numpy's numbers
        tried = [int(value) if isinstance(value, numbers.Integral) else float(value)]
    elif isinstance(value, str) and not strict:
        text = value.strip()
        tried = [*(meant for word, meant in _SPELLED.items() if word == text.lower()), text]
    for one in tried:
        try:
            fitted = msgspec.convert(one, kind, strict=strict, dec_hook=lambda cls, given: cls(given))
        except (msgspec.ValidationError, TypeError, UnicodeError):
            continue
        if not isinstance(fitted, float) or math.isfinite(fitted):
            return fitted
    raise BrioError(f"{where}{shorten_value(value)}: must be {describe_kind(kind)}")


@cache
def _find_numbers(settings: Any) -> dict[str, Any]:
    hints = {f.name: read_hints(settings)[f.name] for f in dataclasses.fields(settings)}
    return {name: hint for name, hint in hints.items() if any(isinstance(one, _NUMBERS) for one in list_kinds(hint))}


find_numbers: Callable[[Any], dict[str, Any]] = _find_numbers
"""Find the fields of a dataclass that hold numbers, and the type of each."""


def write_number(kind: Any) -> dict[str, Any]:
    """Write the type of a number, and its other allowed values, as JSON; :func:`read_number` restores the type."""
    written: dict[str, Any] = {}
    for one in list_kinds(kind):
        if isinstance(one, _NUMBERS):
            written["kind"] = "int" if isinstance(one, kinds.IntType) else "float"
            written |= {name: bound for name in _BOUNDS if (bound := getattr(one, name)) is not None}
        else:
            written.setdefault("others", []).extend(getattr(one, "values", [None]))
    return written


def read_number(written: dict[str, Any]) -> Any:
    """Restore a type that :func:`write_number` wrote."""
    number = {"int": int, "float": float}[written["kind"]]
    kind: Any = Annotated[number, Meta(**{name: written[name] for name in _BOUNDS if name in written})]
    for other in written.get("others", ()):
        kind |= None if other is None else Literal[other]
    return kind


def require_number(value: Any, kind: Any, name: str) -> None:
    """Raise an error that names a parameter if its value is not in the domain of its type."""
    fit_value(value, kind, f"setting '{name}'=")


def shorten_value(value: Any) -> str:
    """Write a value for a message in at most forty characters, even if it is a number with thousands of digits."""
    if isinstance(value, int) and value.bit_length() > 100:  # str() refuses numbers of many digits
        return f"about {'-' if value < 0 else ''}1e+{round((value.bit_length() - 1) * math.log10(2))}"
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def setting(default: Any, space: Any = None) -> Any:
    """Declare a setting, as a field of a dataclass.

    Parameters
    ----------
    default : Any
        Default value of the setting.
    space : brio.settings.Space, optional
        Values to try when the setting is tuned; a setting without a space is not tuned.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Settings:
    ...     width: int = setting(32, choice(16, 32, 64))
    >>> Settings().width
    32
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
            raise BrioError(f"--set {name.strip()}: given more than once; keep one")
        values[name.strip()] = value.strip()
    return values


def format_setting(value: object) -> str:
    """Format a value as it is written for ``--set``."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def replace_values(settings: T, values: dict[str, Any], prefix: str = "") -> T:
    """Return a copy of settings with some values replaced."""
    hints = read_hints(type(settings))
    known = {f.name for f in dataclasses.fields(settings)}  # type: ignore[arg-type]
    changed = {}
    for name, value in values.items():
        if name not in known:
            hint = nearest(prefix + name, {prefix + k for k in known})
            raise BrioError(f"setting '{prefix}{name}' is unknown; {hint}")
        changed[name] = fit_value(value, hints[name], f"setting '{prefix}{name}'=", strict=False)
    replaced = dataclasses.replace(settings, **changed)  # type: ignore[type-var]
    check_domains(replaced, prefix)  # again, for classes of users that do not do so themselves
    return replaced


def check_domains(settings: Any, prefix: str = "") -> None:
    """Check that every numeric setting lies in the domain that its field declares.

    Classes of settings call this in ``__post_init__``. A number without a declared domain must be finite.
    """
    for name, kind in find_numbers(type(settings)).items():
        require_number(getattr(settings, name), kind, f"{prefix}{name}")


def require(holds: bool, name: str, value: Any, rule: str) -> None:
    """Raise an error that names a setting if its value breaks a rule.

    Parameters
    ----------
    holds : bool
        Whether the value satisfies the rule.
    name : str
    value : Any
    rule : str
        Description of valid values, such as "at least 1".

    Raises
    ------
    BrioError
        If the value does not satisfy the rule.

    Examples
    --------
    >>> require(3 % 2 == 0, "heads", 3, "even")
    Traceback (most recent call last):
    brio.errors.BrioError: setting 'heads'=3: must be even
    """
    if not holds:
        raise BrioError(f"setting '{name}'={shorten_value(value)}: must be {rule}")


# ---------------------------------------------------------------- arguments of public functions


class _Names(dict[str, Any]):
    """Names of a module; one that only type checkers import stands for every class of that name."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, None) or type(name, (), {"by_name": True})


@cache
def _read_types(owner: Any) -> dict[str, Any]:
    """Read the types of the parameters of a function, or of the fields of a dataclass."""
    names = _Names(vars(sys.modules[owner.__module__]))
    return {name: eval(text, {}, names) for name, text in owner.__annotations__.items() if isinstance(text, str)}


def check_types(owner: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Check values against the annotations of the function or dataclass that they are given to.

    A cohort must hold scans, and text no null character; bounds of numbers are checked elsewhere. Returns the values,
    with numbers and lists of Python instead of numpy's where these are wanted.
    """
    kinds_of, checked = _read_types(owner), dict(values)
    for name, kind in kinds_of.items():
        if name not in values:
            continue
        value = values[name]
        if not _fits(value, kind):
            shown = shorten_value(value) if isinstance(value, str | int | float | None) else ""
            given = f"={escape_controls(shown)}" if shown else f" has type {type(value).__name__}"
            raise BrioError(f"argument '{name}'{given}: must be {_describe_type(kind)}")
        if hasattr(value, "tolist") and not re.search("ndarray|Any", str(kind)):
            checked[name] = value.tolist()
    return checked


def check_arguments(function: F) -> F:
    """Check the arguments of a public function against its annotations before it is called (a decorator)."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        try:
            given = signature.bind(*arguments, **options)
        except TypeError:
            return function(*arguments, **options)  # which says what is missing, or one too many
        given.arguments.update(check_types(function, given.arguments))
        return function(*given.args, **given.kwargs)

    return call  # type: ignore[return-value]


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a type, as people mean it: numbers of numpy are numbers, arrays are lists."""
    origin, inner = typing.get_origin(kind) or kind, typing.get_args(kind)
    if isinstance(kind, types.UnionType) or origin is typing.Union:
        text = isinstance(value, str) and Path in inner and "\0" not in value
        return text or any(_fits(value, one) for one in inner)
    if origin is Annotated:
        with contextlib.suppress(BrioError):
            return fit_value(value, kind, "") is not None
        return False
    if origin in (list, tuple, Sequence):
        return _is_list(value) and _fit_items(list(value), origin, inner)
    if origin in (dict, Mapping):
        return isinstance(value, Mapping) and (not inner or all(_fits(key, inner[0]) for key in value))
    kind_of_array = getattr(getattr(value, "dtype", None), "kind", "") if getattr(value, "shape", None) == () else ""
    if origin in (int, float):
        whole = numbers.Integral if origin is int else numbers.Real
        return isinstance(value, whole) and not isinstance(value, bool)
    if origin is bool:
        return isinstance(value, bool) or kind_of_array == "b"
    if origin is str:
        return _is_text(value)
    if origin is Path:
        return isinstance(value, Path) and "\0" not in str(value)
    if origin in (None, type(None)):
        return value is None
    if getattr(origin, "_is_protocol", False) and "__call__" not in vars(origin):
        return value is not None
    if origin is Callable or getattr(origin, "_is_protocol", False):
        return callable(value)
    if getattr(origin, "by_name", False):
        return any(one.__name__ == origin.__name__ for one in type(value).__mro__)
    if origin.__name__ == "ndarray":
        return _is_list(value)
    if origin.__name__ == "Cohort":
        return isinstance(value, origin) and len(value) > 0
    return origin is Any or isinstance(value, origin)


def _is_text(value: Any) -> bool:
    """Whether a value is text that can be stored: without null characters and half characters."""
    return isinstance(value, str) and not re.search("[\0\ud800-\udfff]", value)


def _is_list(value: Any) -> bool:
    """Whether a value has items in an order; a table, whose items are its columns, is none."""
    ordered = hasattr(value, "__len__") and hasattr(value, "__getitem__") and not hasattr(value, "columns")
    return ordered and not isinstance(value, str | bytes | Mapping) and getattr(value, "ndim", 1) > 0


def _fit_items(items: list[Any], origin: Any, inner: tuple[Any, ...]) -> bool:
    if origin is tuple and inner and inner[-1] is not ...:
        return len(items) == len(inner) and all(map(_fits, items, inner))
    return not inner or inner[0] is Any or all(_fits(item, inner[0]) for item in items)


def _describe_type(kind: Any) -> str:
    """Describe a type for people who do not know Python's names of types."""
    origin, inner = typing.get_origin(kind) or kind, typing.get_args(kind)
    if isinstance(kind, types.UnionType) or origin is typing.Union:
        kinds_left = [one for one in inner if not (one is str and Path in inner)]
        return " or ".join(map(_describe_type, kinds_left))
    if origin is Annotated:
        return describe_kind(kind)
    if origin in (list, tuple, Sequence):
        of = f" of {_describe_type(inner[0])}" if inner and inner[0] is not Any else ""
        return f"a list{of}" if origin is not tuple or ... in inner else f"two values, each {_describe_type(inner[0])}"
    words = {str: "text", int: "a whole number", float: "a number", bool: "True or False", Path: "a path"}
    words |= {type(None): "None", dict: "a dictionary with names as keys", Mapping: "a dictionary with names as keys"}
    if origin in words:
        return words[origin]
    if origin is Callable or getattr(origin, "_is_protocol", False):
        return "a function"
    return {"ndarray": "an array", "Cohort": "a Cohort with scans"}.get(origin.__name__, f"of type {origin.__name__}")


@dataclass(frozen=True)
class SettingFacts:
    """Facts about a setting; values are written as for ``--set``."""

    key: str  # with its prefix, such as audit.
    default: str | None  # None where methods have different defaults
    values: str  # which values it takes, in words
    tuned_over: str  # which of them a search tries; empty where it is not tuned, or methods differ
    meaning: str  # the first sentence of its documentation
    fixed: bool = False  # whether the name of the method fixes it
    methods: tuple[str, ...] = ()  # methods that have it, where several are listed together


def list_setting_facts(settings: type, prefix: str = "") -> list[SettingFacts]:
    """List the facts about each setting of a class."""
    meanings: dict[str, str] = {}
    for cls in settings.__mro__:
        meanings = _read_attributes(cls) | meanings
    facts = []
    for f in dataclasses.fields(settings):
        values = describe_kind(read_hints(settings)[f.name]).removeprefix("a ")
        default, tuned_over = format_setting(f.default), str(f.metadata.get("space") or "")
        facts.append(SettingFacts(prefix + f.name, default, values, tuned_over, meanings.get(f.name, "")))
    return facts


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

"""Typed records from JSON objects and back, with one kind of error for what does not fit.

A record is a frozen dataclass whose fields are the keys of a JSON object. Its annotations say what a value may be, with
the domains of :mod:`brio.schemas.stored_values`. The metadata of a field say whether it is left out where it is None
(:data:`OMIT_NONE`).
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import operator
import re
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ..errors import REPEAT_JOB, BrioError, file_error, nearest
from .stored_values import FieldsOf, SameLength, SettingsOf, StoredDomain

T = TypeVar("T")
_SHOWN = 40


class MisfitError(Exception):
    """A value that does not fit its field; the message says which, and what is expected."""


OMIT_NONE = {"omit_none": True}
"""Metadata of a field that is left out of the file where it is None."""


def to_json(record: Any) -> Any:
    """Turn a record, and the records in it, into plain dictionaries and lists."""
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {
            f.name: to_json(value)
            for f in dataclasses.fields(record)
            if (value := getattr(record, f.name)) is not None or not f.metadata.get("omit_none")
        }
    if isinstance(record, dict):
        return {str(key): to_json(value) for key, value in record.items()}
    if isinstance(record, list | tuple):
        return [to_json(value) for value in record]
    return record


def from_json(kind: type[T], document: Any, path: Path, remedy: str = REPEAT_JOB) -> T:
    """Turn a JSON object into a record. Keys that the record does not have are ignored."""
    try:
        return _read(kind, document, "")
    except MisfitError as misfit:
        raise file_error(path, str(misfit), remedy) from None


def show_value(value: Any) -> str:
    """Show a value in an error message, shortened to one line of at most 40 characters."""
    text = f"'{value}'" if isinstance(value, str) else json.dumps(value, default=str)
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def unfold(kind: Any) -> tuple[Any, tuple[Any, ...], bool]:
    """Split an annotation into its type, its domains, and whether None is allowed."""
    if typing.get_origin(kind) is typing.Annotated:
        inner, domains, optional = unfold(typing.get_args(kind)[0])
        return inner, (*domains, *kind.__metadata__), optional
    arguments = typing.get_args(kind)
    if _is_union(kind) and types.NoneType in arguments:
        rest = tuple(a for a in arguments if a is not types.NoneType)
        inner, domains, _ = unfold(functools.reduce(operator.or_, rest))
        return inner, domains, True
    return kind, (), False


def _read(kind: Any, value: Any, place: str) -> Any:
    """Read a value as a type; ``place`` is where it stands in the file, such as ``methods.ridge.needs[0]``."""
    kind, domains, optional = unfold(kind)
    if value is None and optional:
        return None
    made = _read_plain(kind, value, place)
    for domain in domains:
        if isinstance(domain, StoredDomain):
            _expect(domain.fits(made), value, place, domain.words)
        elif isinstance(domain, FieldsOf):
            _check_fields(domain, value, place)
    return made


def _read_plain(kind: Any, value: Any, place: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if _is_union(kind):
        return _read_one_of(arguments, value, place)
    if origin is typing.Literal:
        _expect(value in arguments and type(value) in map(type, arguments), value, place, _list_words(arguments))
        return value
    if dataclasses.is_dataclass(kind):
        return _read_record(kind, value, place)
    if origin is dict:
        _expect(isinstance(value, dict), value, place, "an object")
        key_kind, item_kind = arguments
        return {_read_key(key_kind, k, place): _read(item_kind, one, join(place, k)) for k, one in value.items()}
    if origin in (tuple, list):
        return origin(_read_items(arguments, value, place))
    check, words = _PLAIN[kind]
    _expect(check(value), value, place, words)
    return kind(value)


def _read_items(arguments: tuple[Any, ...], value: Any, place: str) -> list[Any]:
    _expect(isinstance(value, list), value, place, "a list")
    if arguments[-1] is ... or len(arguments) == 1:
        return [_read(arguments[0], one, f"{place}[{k}]") for k, one in enumerate(value)]
    _expect(len(value) == len(arguments), value, place, f"a list of {len(arguments)}")
    return [_read(kind, one, f"{place}[{k}]") for k, (kind, one) in enumerate(zip(arguments, value, strict=True))]


def _read_key(kind: Any, key: str, place: str) -> Any:
    """Read a key of an object, which JSON writes as text whatever it was."""
    if kind is str:
        return key
    try:
        number = kind(key)
        fits = math.isfinite(number)
    except (ValueError, OverflowError):
        fits = False
    _expect(fits, key, f"a key of {place}", "a number")
    return number


def _read_one_of(kinds: tuple[Any, ...], value: Any, place: str) -> Any:
    for kind in kinds:
        try:
            return _read(kind, value, place)
        except MisfitError:
            continue
    words = [_list_words(typing.get_args(k)) if typing.get_origin(k) else _PLAIN[k][1] for k in kinds]
    raise MisfitError(_say(value, place, " or ".join(words)))


def _read_record(kind: Any, value: Any, place: str) -> Any:
    _expect(isinstance(value, dict), value, place, "an object")
    hints, values = get_hints(kind), {}
    for f in dataclasses.fields(kind):
        if f.name in value:
            values[f.name] = _read(hints[f.name], value[f.name], join(place, f.name))
        elif f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise MisfitError(f"{join(place, f.name)} is missing")
    try:
        record = kind(**values)
    except BrioError as error:  # a dataclass that checks itself
        raise MisfitError(f"{place}: {error}" if place else str(error)) from None
    for name, hint in hints.items():
        for other in (domain.field for domain in unfold(hint)[1] if isinstance(domain, SameLength)):
            own, wanted = getattr(record, name), len(getattr(record, other))
            if own is not None and len(own) != wanted:
                raise MisfitError(f"{join(place, name)} has {len(own)} values, but {join(place, other)} has {wanted}")
    return record


def _check_fields(domain: FieldsOf, value: dict[str, Any], place: str) -> None:
    kind: Any = domain.kind
    known = {f.name for f in dataclasses.fields(kind)}
    unknown = [name for name in value if name not in known]
    if unknown and isinstance(domain, SettingsOf):
        raise MisfitError(f"{join(place, unknown[0])} is unknown ({nearest(unknown[0], known)})")
    _read_record(kind, value, place)


def join(place: str, key: str) -> str:
    """Append a key to the place of a value; odd keys are quoted and shortened."""
    plain = key if re.fullmatch(r"[^\s.\[\]'\"]{1,60}", key) else f"[{show_value(key)}]"
    return f"{place}.{plain}" if place and not plain.startswith("[") else f"{place}{plain}"


def _expect(holds: bool, value: Any, place: str, words: str) -> None:
    if not holds:
        raise MisfitError(_say(value, place, words))


def _say(value: Any, place: str, words: str) -> str:
    return f"{place or 'the file'} is {show_value(value)}, {words} is expected"


def _list_words(options: tuple[Any, ...]) -> str:
    return " or ".join(f"'{option}'" for option in options)


def _is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in (typing.Union, types.UnionType)


get_hints = functools.cache(functools.partial(typing.get_type_hints, include_extras=True))
"""Annotations of a dataclass as types, with their domains."""

_PLAIN: dict[type, tuple[Callable[[Any], bool], str]] = {
    str: (lambda v: isinstance(v, str), "text"),
    bool: (lambda v: isinstance(v, bool), "true or false"),
    int: (lambda v: isinstance(v, int) and not isinstance(v, bool), "a whole number"),
    float: (lambda v: isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v), "a number"),
}

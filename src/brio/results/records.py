"""Typed records from JSON objects and back, with one kind of error for what does not fit.

A record is a frozen dataclass whose fields are the keys of a JSON object. The metadata of a field say what it was
called in files of version 0.1.0 (:func:`formerly`) and whether it is left out where it is None (:data:`OMIT_NONE`).
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from .files import file_error

__all__ = ["OMIT_NONE", "formerly", "from_json", "to_json"]

T = TypeVar("T")


class _MisfitError(Exception):
    """A value that does not fit its field; the message says which."""


OMIT_NONE = {"omit_none": True}
"""Metadata of a field that is left out of the file where it is None."""


def formerly(key: str) -> dict[str, Any]:
    """Return the metadata of a field that had another key in files of version 0.1.0."""
    return {"formerly": key}


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


def from_json(kind: type[T], document: Any, path: Path, remedy: str = "repeat the job that wrote it") -> T:
    """Turn a JSON object into a record. Keys that the record does not have are ignored.

    Parameters
    ----------
    kind : type
        A dataclass.
    document : object
        What ``json.loads`` returned.
    path : Path
        The file it came from, for the error.
    remedy : str
        What to do where something does not fit, for the error.

    Raises
    ------
    BrioError
        If a key is missing or its value is of another type.
    """
    try:
        return _read(kind, document, "")
    except _MisfitError as misfit:
        raise file_error(path, f"was not written by this version of brio ({misfit})", remedy) from None


def _read(kind: Any, value: Any, name: str) -> Any:
    """Read a value as a type; ``name`` is its dotted place in the file."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        inner = next(a for a in arguments if a is not types.NoneType)
        return None if value is None else _read(inner, value, name)
    if dataclasses.is_dataclass(kind):
        return _read_record(kind, value, name)
    if origin is dict:
        _check(isinstance(value, dict), name, "an object")
        return {key: _read(arguments[1], one, f"{name}.{key}") for key, one in value.items()}
    if origin is tuple:
        _check(isinstance(value, list), name, "a list")
        return tuple(_read(arguments[0], one, f"{name}[{k}]") for k, one in enumerate(value))
    check, words = _PLAIN[kind]
    _check(check(value), name, words)
    return kind(value)


def _read_record(kind: Any, value: Any, name: str) -> Any:
    _check(isinstance(value, dict), name or "the file", "an object")
    hints, values = _get_hints(kind), {}
    for f in dataclasses.fields(kind):
        former = f.metadata.get("formerly")
        key = former if f.name not in value and former in value else f.name
        if key in value:
            values[f.name] = _read(hints[f.name], value[key], f"{name}.{key}".strip("."))
        elif f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise _MisfitError(f"'{f'{name}.{f.name}'.strip('.')}' is missing")
    return kind(**values)


_get_hints = functools.cache(typing.get_type_hints)


def _check(holds: bool, name: str, words: str) -> None:
    if not holds:
        raise _MisfitError(f"'{name}' is not {words}")


_PLAIN: dict[type, tuple[Callable[[Any], bool], str]] = {
    str: (lambda v: isinstance(v, str), "text"),
    bool: (lambda v: isinstance(v, bool), "true or false"),
    int: (lambda v: isinstance(v, int) and not isinstance(v, bool), "a whole number"),
    float: (lambda v: isinstance(v, int | float) and not isinstance(v, bool), "a number"),
}

"""Settings are frozen dataclasses; this reads and checks ``key=value`` against them."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable
from typing import Any, Literal, TypeVar

from .errors import BrioError, nearest

__all__ = ["parse_assignments", "require", "setting", "with_values"]

T = TypeVar("T")


def setting(default: Any, space: Any = None) -> Any:
    """A field of settings with a default and, where it is worth tuning, a space (:mod:`brio.spaces`)."""
    return dataclasses.field(default=default, metadata={"space": space})


def parse_assignments(pairs: Iterable[str]) -> dict[str, str]:
    """Split ``key=value`` words into a dictionary.

    Examples
    --------
    >>> parse_assignments(["K=4", "epochs=50"])
    {'K': '4', 'epochs': '50'}
    """
    out: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise BrioError(f"--set {pair}: write it as key=value")
        if name.strip() in out:
            raise BrioError(f"--set {name.strip()}: given twice")
        out[name.strip()] = value.strip()
    return out


def with_values(settings: T, values: dict[str, Any], prefix: str = "") -> T:
    """A copy of frozen settings with some fields replaced; text is read by the field's type.

    Unknown names are errors that name the nearest known one.
    """
    hints = typing.get_type_hints(type(settings))
    known = {f.name for f in dataclasses.fields(settings)}  # type: ignore[arg-type]
    changed = {}
    for name, value in values.items():
        if name not in known:
            hint = nearest(prefix + name, {prefix + k for k in known})
            raise BrioError(f"setting '{prefix}{name}' is unknown; {hint}")
        changed[name] = _read(value, hints[name], f"setting '{prefix}{name}'")
    return dataclasses.replace(settings, **changed)  # type: ignore[type-var]


def _read(value: Any, hint: Any, where: str) -> Any:
    origin = typing.get_origin(hint)
    if origin is Literal:
        options = typing.get_args(hint)
        if value not in options:
            raise BrioError(f"{where}: '{value}' is not one of {', '.join(map(str, options))}")
        return value
    if origin in (typing.Union, types.UnionType):
        inner = [a for a in typing.get_args(hint) if a is not type(None)]
        if value is None or (isinstance(value, str) and value.lower() in ("none", "")):
            return None
        return _read(value, inner[0], where)
    if hint is bool:
        text = str(value).lower()
        if text not in ("true", "false", "1", "0", "yes", "no"):
            raise BrioError(f"{where}: '{value}' is not true or false")
        return text in ("true", "1", "yes")
    try:
        if hint is int and isinstance(value, float) and value != int(value):
            raise ValueError
        return hint(value)
    except (TypeError, ValueError):
        kind = {int: "a whole number", float: "a number"}.get(hint, f"a {hint.__name__}")
        raise BrioError(f"{where}: '{value}' is not {kind}") from None


def require(holds: bool, name: str, value: Any, rule: str) -> None:
    """Raise a :class:`BrioError` that names a setting whose value breaks its rule."""
    if not holds:
        raise BrioError(f"setting '{name}'={value}: must be {rule}")

"""Settings are frozen dataclasses. This module declares their fields and reads ``key=value`` text into them."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Iterable
from typing import Any, Literal, TypeVar

from .domains import Number, find_numbers, shorten_value
from .errors import BrioError, nearest

T = TypeVar("T")
_read_hints = functools.cache(typing.get_type_hints)  # they are text, which is compiled each time they are read


def setting(default: Any, space: Any = None) -> Any:
    """Declare a field of settings.

    Parameters
    ----------
    default : Any
    space : brio.spaces.Space, optional
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
    """Check that every number of settings lies in the domain that its field declares, see :mod:`brio.domains`.

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

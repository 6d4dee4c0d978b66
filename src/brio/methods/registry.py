"""The methods by name. A method registers itself with a decorator; a variant fixes some of its settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..errors import BrioError, nearest
from ..settings import with_values
from ..training import Method

__all__ = ["Entry", "entry", "known_methods", "make_method", "method", "variant"]

M = TypeVar("M", bound=type[Method])


@dataclass(frozen=True)
class Entry:
    """A method as a user can ask for it."""

    name: str
    make: type[Method]
    family: str
    reference: str
    summary: str
    fixed: dict[str, Any] = field(default_factory=dict)


_ENTRIES: dict[str, Entry] = {}


def method(name: str, *, family: str, reference: str) -> Callable[[M], M]:
    """Register a method class under a name."""

    def register(cls: M) -> M:
        cls.name = name
        _add(Entry(name, cls, family, reference, (cls.__doc__ or "").strip().split("\n")[0]))
        return cls

    return register


def variant(name: str, base: type[Method], summary: str, **fixed: Any) -> None:
    """Register a method with some settings fixed by its name."""
    parent = next(e for e in _ENTRIES.values() if e.make is base and not e.fixed)
    _add(Entry(name, base, parent.family, parent.reference, summary, fixed))


def _add(new: Entry) -> None:
    if new.name in _ENTRIES:
        raise BrioError(f"method '{new.name}' is registered twice")
    _ENTRIES[new.name] = new


def known_methods() -> list[Entry]:
    """All methods, in the order they were registered."""
    return list(_ENTRIES.values())


def entry(name: str) -> Entry:
    """The method of that name."""
    if name not in _ENTRIES:
        raise BrioError(f"method '{name}' is unknown; {nearest(name, _ENTRIES)}")
    return _ENTRIES[name]


def make_method(name: str, values: dict[str, Any] | None = None) -> Method:
    """A method with its settings; what its name fixes cannot be set."""
    found = entry(name)
    for key in values or {}:
        if key in found.fixed:
            raise BrioError(f"method '{name}' fixes '{key}' to {found.fixed[key]!r}; use '{found.make.name}' to set it")
    made = found.make(with_values(found.make.Settings(), {**(values or {}), **found.fixed}))
    made.name = name  # type: ignore[misc]
    return made

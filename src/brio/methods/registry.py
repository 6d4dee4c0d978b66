"""The registry of methods: register a class under a name, find it, make it with settings, load a user's own file."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from ..errors import BrioError, nearest
from ..settings import replace_values
from ..training import Method, NeuralMethod
from ..training.inputs import NEEDS
from .provenance import (
    PAPERS_OWN,
    PUBLISHED,
    TEXTBOOK,
    Provenance,
    find_block,
    follow_code,
    follow_paper,
    reconstruct,
    redesign,
)

__all__ = [
    "PAPERS_OWN",
    "PUBLISHED",
    "TEXTBOOK",
    "MethodEntry",
    "Provenance",
    "alias",
    "find_method",
    "follow_code",
    "follow_paper",
    "list_methods",
    "load_methods",
    "make_method",
    "method",
    "present_name",
    "reconstruct",
    "redesign",
    "retire",
    "variant",
]

M = TypeVar("M", bound=type[Method])


@dataclass(frozen=True)
class MethodEntry:
    """A registered method.

    Attributes
    ----------
    name : str
    method_class : type
        Subclass of :class:`~brio.training.Method` that implements it; variants share it.
    family : str
        Heading under which tables list it; ``linear`` lists every model on the vector of edges, also the MLP.
    reference : str
        What to cite.
    summary : str
        One line: the first of the class's docstring, or the variant's own.
    provenance : Provenance
    needs : tuple of str
        What it needs besides connectomes and labels, see :data:`brio.training.inputs.NEEDS`.
    transductive : bool
        Whether unlabelled scans of the test site take part in its fit.
    control : bool
        Whether it sees no connectome at all.
    fixed : dict
        Settings that the name fixes, with their values; empty unless it is a variant.
    file : str
        File of a user's own method; empty for those of brio.
    code : str
        Hash of that file, part of the key of its runs.
    """

    name: str
    method_class: type[Method]
    family: str
    reference: str
    summary: str
    provenance: Provenance
    needs: tuple[str, ...] = ()
    transductive: bool = False
    control: bool = False
    fixed: dict[str, Any] = field(default_factory=dict)
    file: str = ""
    code: str = ""

    @property
    def block(self) -> str:
        """Block of a table in which it stands, one of :data:`brio.methods.provenance.BLOCKS`."""
        return find_block(self.provenance.kind, self.family, self.control)


_ENTRIES: dict[str, MethodEntry] = {}
_ALIASES: dict[str, str] = {}  # former names of methods, and their present names
_RETIRED: dict[str, str] = {}  # names of methods that are not there any more, and why


def method(
    name: str,
    *,
    family: str,
    reference: str,
    provenance: Provenance | str,
    needs: Iterable[str] = (),
    transductive: bool = False,
    control: bool = False,
) -> Callable[[M], M]:
    """Register a method class under a name (a class decorator).

    Parameters
    ----------
    name : str
    family : str
        Heading under which tables list it; ``linear`` lists every model on the vector of edges, also the MLP.
    reference : str
        What to cite.
    provenance : Provenance or str
        Where the implementation comes from; text of your own is fine.
    needs : iterable of str
        What it needs besides connectomes and labels, see :data:`brio.training.inputs.NEEDS`.
    transductive : bool
        Whether unlabelled scans of the test site take part in its fit.
    control : bool
        Whether it sees no connectome at all, so that a score above chance is a warning about the cohort.

    Returns
    -------
    decorator
        Registers the class and returns it.

    Raises
    ------
    BrioError
        If a need is unknown, the class lacks a method it has to define, or the name is taken.
    """
    requested = {needs} if isinstance(needs, str) else set(needs)
    for need in sorted(requested):
        if need not in NEEDS:
            raise BrioError(f"method '{name}': need '{need}' is unknown; {nearest(need, NEEDS)}")
    in_order = tuple(need for need in NEEDS if need in requested)

    def register(cls: M) -> M:
        undefined = sorted(getattr(cls, "__abstractmethods__", ()))
        if issubclass(cls, NeuralMethod) and cls.loss is NeuralMethod.loss and cls.objective is NeuralMethod.objective:
            undefined.append("loss")
        if undefined:
            raise BrioError(f"method '{name}': class {cls.__name__} does not define {', '.join(undefined)}")
        cls.name = name
        cls.needs = frozenset(in_order)
        summary = (cls.__doc__ or "").strip().split("\n")[0]
        origin = provenance if isinstance(provenance, Provenance) else Provenance(provenance)
        _add_entry(MethodEntry(name, cls, family, reference, summary, origin, in_order, transductive, control))
        return cls

    return register


def variant(name: str, base: type[Method], summary: str, *, provenance: Provenance | None = None, **fixed: Any) -> None:
    """Register a registered class a second time, with some settings fixed by the name.

    Parameters
    ----------
    name : str
    base : type
        A class that is registered under a name of its own.
    summary : str
        One line that says how the variant differs.
    provenance : Provenance, optional
        By default that of the base.
    **fixed
        Settings and their values; a user cannot set them under this name.
    """
    base_entry = next(e for e in _ENTRIES.values() if e.method_class is base and not e.fixed)
    origin = provenance or base_entry.provenance
    _add_entry(replace(base_entry, name=name, summary=summary, provenance=origin, fixed=fixed, file="", code=""))


def alias(former: str, name: str) -> None:
    """Let a former name find a method; it is listed, stored and printed under its present name.

    Parameters
    ----------
    former : str
    name : str
        Of a registered method.
    """
    _ALIASES[former] = find_method(name).name


def present_name(name: str) -> str:
    """Return the present name of a method for a former one; any other name as it is."""
    return _ALIASES.get(name, name)


def retire(name: str, reason: str) -> None:
    """Let the name of a method that was removed be refused with the reason.

    Parameters
    ----------
    name : str
    reason : str
        What became of it.
    """
    _RETIRED[name] = reason


def _add_entry(entry: MethodEntry) -> None:
    if entry.name in _ENTRIES:
        raise BrioError(f"method '{entry.name}' is registered twice")
    _ENTRIES[entry.name] = entry


def list_methods() -> list[MethodEntry]:
    """List all registered methods, in the order of their registration."""
    return list(_ENTRIES.values())


def find_method(name: str) -> MethodEntry:
    """Find the registered method of a name, or of the former name of a method.

    Raises
    ------
    BrioError
        If there is none; the message names the nearest.
    """
    name = present_name(name)
    if name in _RETIRED:
        raise BrioError(f"method '{name}' is not there any more: {_RETIRED[name]}")
    if name not in _ENTRIES:
        raise BrioError(f"method '{name}' is unknown; {nearest(name, _ENTRIES)}")
    return _ENTRIES[name]


def make_method(name: str, values: dict[str, Any] | None = None) -> Method:
    """Make a method with its settings.

    Parameters
    ----------
    name : str
    values : dict, optional
        Values of settings by name; text is read by the type of the setting.

    Raises
    ------
    BrioError
        If the name or a setting is unknown, a value is not allowed, or the name fixes the setting.
    """
    entry, values = find_method(name), values or {}
    for key in values:
        if key in entry.fixed:
            base = entry.method_class.name
            raise BrioError(f"method '{entry.name}' fixes '{key}' to {entry.fixed[key]!r}; use '{base}' to set it")
    instance = entry.method_class(replace_values(entry.method_class.Settings(), {**values, **entry.fixed}))
    instance.name = entry.name  # type: ignore[misc]
    return instance


def load_methods(path: str | Path) -> list[str]:
    """Run a Python file whose decorators register a user's own methods.

    A file that was loaded before is not run again.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    list of str
        Names of the methods that the file registers.

    Raises
    ------
    BrioError
        If the file is not there, fails, or registers no method.
    """
    file = Path(path)
    if not file.is_file():
        raise BrioError(f"{file}: there is no such file; name a Python file with a method of your own")
    module_name = f"brio_methods_{file.resolve()}"
    if module_name not in sys.modules:
        _run_file(file, module_name)
    names = [e.name for e in list_methods() if e.method_class.__module__ == module_name]
    if not names:
        raise BrioError(f"{file}: registers no method; put the decorator @brio.methods.method(...) above your class")
    return names


def _run_file(file: Path, module_name: str) -> None:
    """Run a file as a module and mark what it registers; where it fails, nothing of it stays registered."""
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise BrioError(f"{file}: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    registered_before = set(_ENTRIES)
    try:
        spec.loader.exec_module(module)
        code = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
        for name in set(_ENTRIES) - registered_before:
            _ENTRIES[name] = replace(_ENTRIES[name], file=str(file), code=code)
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        for name in set(_ENTRIES) - registered_before:
            del _ENTRIES[name]
        raise BrioError(f"{file}: {type(error).__name__}: {error}") from error

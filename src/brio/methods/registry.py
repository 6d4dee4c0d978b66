"""The methods by name. A method registers itself with a decorator; a variant fixes some of its settings."""

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

__all__ = [
    "PAPERS_OWN",
    "PUBLISHED",
    "TEXTBOOK",
    "MethodEntry",
    "Provenance",
    "find_method",
    "list_methods",
    "load_methods",
    "make_method",
    "method",
    "our_reading",
    "papers_intent",
    "variant",
]

M = TypeVar("M", bound=type[Method])


@dataclass(frozen=True)
class Provenance:
    """Where an implementation comes from, for every table that shows its figures."""

    kind: str
    note: str = ""

    def __str__(self) -> str:
        return f"{self.kind} ({self.note})" if self.note else self.kind


PAPERS_OWN = Provenance("the paper's own method", "no public code")
PUBLISHED = Provenance("as the published code reads")
TEXTBOOK = Provenance("textbook")


def papers_intent(how: str) -> Provenance:
    """The published code differs from its paper, and the paper was followed; ``how`` says in what."""
    return Provenance("paper's intent", f"published code differs: {how}")


def our_reading(why: str) -> Provenance:
    """No public text or code gives the method whole."""
    return Provenance("our reading", why)


@dataclass(frozen=True)
class MethodEntry:
    """A method as a user can ask for it."""

    name: str
    make: type[Method]
    family: str
    reference: str
    summary: str
    provenance: Provenance
    needs: tuple[str, ...] = ()
    transductive: bool = False
    control: bool = False
    fixed: dict[str, Any] = field(default_factory=dict)
    file: str = ""  # of a user's own method
    code: str = ""  # hash of that file, part of the name of its runs


_ENTRIES: dict[str, MethodEntry] = {}


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
    """Register a method class under a name.

    Parameters
    ----------
    name : str
    family : str
        Heading under which tables list it.
    reference : str
        Whom to cite.
    provenance : Provenance or str
        Where the implementation comes from; text of your own is fine.
    needs : names
        What it needs besides connectomes and labels, see :data:`brio.training.inputs.NEEDS`.
    transductive : bool
        Whether unlabelled scans of the unseen site take part in its fit.
    control : bool
        Whether it looks at no connectome at all, so that anything above chance is a warning about the cohort.
    """
    asked = {needs} if isinstance(needs, str) else set(needs)
    wanted = tuple(need for need in NEEDS if need in asked)
    for need in sorted(asked):
        if need not in NEEDS:
            raise BrioError(f"method '{name}': need '{need}' is unknown; {nearest(need, NEEDS)}")

    def register(cls: M) -> M:
        missing = sorted(getattr(cls, "__abstractmethods__", ()))
        if issubclass(cls, NeuralMethod) and cls.loss is NeuralMethod.loss and cls.objective is NeuralMethod.objective:
            missing.append("loss")
        if missing:
            raise BrioError(f"method '{name}': class {cls.__name__} does not define {', '.join(missing)}")
        cls.name = name
        cls.needs = frozenset(wanted)
        origin = provenance if isinstance(provenance, Provenance) else Provenance(provenance)
        summary = (cls.__doc__ or "").strip().split("\n")[0]
        _add(MethodEntry(name, cls, family, reference, summary, origin, wanted, transductive, control))
        return cls

    return register


def variant(name: str, base: type[Method], summary: str, **fixed: Any) -> None:
    """Register a method with some settings fixed by its name."""
    p = next(e for e in _ENTRIES.values() if e.make is base and not e.fixed)
    _add(
        MethodEntry(
            name, base, p.family, p.reference, summary, p.provenance, p.needs, p.transductive, p.control, dict(fixed)
        )
    )


def _add(new: MethodEntry) -> None:
    if new.name in _ENTRIES:
        raise BrioError(f"method '{new.name}' is registered twice")
    _ENTRIES[new.name] = new


def list_methods() -> list[MethodEntry]:
    """All methods, in the order they were registered."""
    return list(_ENTRIES.values())


def find_method(name: str) -> MethodEntry:
    """The method of that name."""
    if name not in _ENTRIES:
        raise BrioError(f"method '{name}' is unknown; {nearest(name, _ENTRIES)}")
    return _ENTRIES[name]


def make_method(name: str, values: dict[str, Any] | None = None) -> Method:
    """A method with its settings; what its name fixes cannot be set."""
    found = find_method(name)
    for key in values or {}:
        if key in found.fixed:
            raise BrioError(f"method '{name}' fixes '{key}' to {found.fixed[key]!r}; use '{found.make.name}' to set it")
    made = found.make(replace_values(found.make.Settings(), {**(values or {}), **found.fixed}))
    made.name = name  # type: ignore[misc]
    return made


def load_methods(path: str | Path) -> list[str]:
    """Run a Python file whose decorators register methods of a user's own; returns their names.

    A file that was loaded before is not run again.
    """
    file = Path(path)
    if not file.is_file():
        raise BrioError(f"{file}: there is no such file; it should hold a method of your own")
    name = f"brio_methods_{file.resolve()}"
    before = set(_ENTRIES)
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise BrioError(f"{file}: its name must end in .py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
            code = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
            for added in set(_ENTRIES) - before:
                _ENTRIES[added] = replace(_ENTRIES[added], file=str(file), code=code)
        except (Exception, SystemExit) as error:
            del sys.modules[name]
            for added in set(_ENTRIES) - before:
                del _ENTRIES[added]
            raise BrioError(f"{file}: {type(error).__name__}: {error}") from error
    found = [e.name for e in list_methods() if e.make.__module__ == name]
    if not found:
        raise BrioError(f"{file}: registers no method; put the decorator @brio.methods.method(...) above your class")
    return found

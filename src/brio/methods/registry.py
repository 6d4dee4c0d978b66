"""The registry of methods: the origin, needs and settings of each, and methods from a user's own file."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ..errors import BrioError, find_nearest, nearest
from ..settings import find_numbers, replace_values, write_number

if TYPE_CHECKING:
    from ..training import Method


@dataclass(frozen=True)
class Provenance:
    """The origin of an implementation. Every table shows it with the scores of the method.

    Attributes
    ----------
    kind : str
        A short phrase, such as "textbook".
    note : str
        Details for readers; may be empty.

    Examples
    --------
    >>> print(Provenance("textbook", "with the penalty of the paper"))
    textbook (with the penalty of the paper)
    """

    kind: str
    note: str = ""

    def __str__(self) -> str:
        return f"{self.kind} ({self.note})" if self.note else self.kind


PAPERS_OWN = Provenance("the paper's own method", "no public code")
PUBLISHED = Provenance("as the published code reads")
TEXTBOOK = Provenance("textbook")
CODE_WITH_DIFFERENCES, INTENT, READING, REDESIGN = (
    "published code, with differences",
    "paper's intent",
    "our reading",
    "redesign",
)

DISPLAY_NAMES = {
    **{"ridge": "ridge regression", "logistic": "logistic regression", "svm": "linear SVM", "mlp": "MLP"},
    **{"tangent-ridge": "tangent-space ridge", "fc-tangent-ridge": "FC and tangent-space ridge"},
    **{"log-ridge": "log-connectome ridge", "core-scaffold": "CORE scaffold"},
    **{"covariates-only": "age, sex and motion alone", "length-only": "scan length alone"},
    **{"dead-rois-only": "missing regions alone", "coral": "CORAL", "vrex": "V-REx", "groupdro": "GroupDRO"},
    **{name: name.upper() for name in ("gcn", "gat", "gin", "irm", "dann", "gsat", "cepg", "agmgc", "fc-hgnn", "core")},
    **{"disc": "DisC", "disco": "DiSCO", "brainnettf": "BrainNetTF", "deci": "DeCI", "xg-gnn": "XG-GNN"},
    **{"xg-gnn-published": "XG-GNN as published", "brainood": "BrainOOD", "brainood-kl": "BrainOOD with KL"},
    **{f"brio-wo-{part}": f"BRIO w/o {part.upper()}" for part in ("rs", "tr", "sm", "sf", "qg")},
    **{"brio": "BRIO", "backbone": "BRIO backbone", "brio-plus": "BRIO plus", "brio-shuffled": "BRIO, shuffled sites"},
    **{"backbone-shuffled": "BRIO backbone, shuffled sites"},
}
"""Display names of methods in sentences and charts; other methods keep their names."""

BLOCKS = ("BRIO", "published code or equations", READING, REDESIGN, "linear", "controls", "other methods")
"""Blocks of a table of methods, in order. The last one is for users' own methods."""


def follow_code(difference: str) -> Provenance:
    """Declare that published code was followed except for ``difference``, which states what differs and why."""
    return Provenance(CODE_WITH_DIFFERENCES, difference)


def follow_paper(difference: str) -> Provenance:
    """Declare that the paper was followed if its published code differs; ``difference`` states how."""
    return Provenance(INTENT, f"published code differs: {difference}")


def reconstruct(reason: str) -> Provenance:
    """Declare that a method was written without its complete text or code; ``reason`` states the sources."""
    return Provenance(READING, reason)


def redesign(change: str) -> Provenance:
    """Declare that an unsuitable part of the published method was replaced; ``change`` says which and why.

    A score of a redesign says nothing about the published method.
    """
    return Provenance(REDESIGN, change)


def rank_block(block: str) -> int:
    """Return the position of a block in a table; blocks that are not known here come last."""
    return BLOCKS.index(block) if block in BLOCKS else len(BLOCKS)


M = TypeVar("M", bound="type[Method]")

CATALOGUE = Path(__file__).with_name("catalogue.json")
"""What is known about the methods of brio without importing them."""


@dataclass(frozen=True)
class MethodEntry:
    """A registered method."""

    name: str
    base: str  # name of the method whose class it is: its own name, unless it is a variant
    module: str  # where that class is defined
    family: str  # heading under which tables list it
    reference: str  # what to cite
    summary: str  # one line: the first of the class's docstring, or the variant's own
    provenance: Provenance
    needs: tuple[str, ...] = ()  # what it needs besides connectomes and labels, see :data:brio.training.contract.NEEDS
    needs_all: bool = True  # whether it needs all of them, or uses those covariates that there are
    transductive: bool = False  # whether unlabelled scans of the test site take part in its fit
    control: bool = False  # whether it sees no connectome at all
    linear: bool = False  # whether its margin is linear in features of the connectome
    fixed: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    tuned_over: dict[str, str] = field(default_factory=dict)  # settings that are tuned, and over which values, in words
    numbers: dict[str, dict[str, Any]] = field(default_factory=dict)
    file: str = ""  # file of a user's own method; empty for those of brio
    code: str = ""  # hash of that file, part of the key of its runs

    @property
    def method_class(self) -> type[Method]:
        """Subclass of :class:`~brio.training.Method` that implements the method; imported at first use."""
        if self.base not in _CLASSES:
            importlib.import_module(self.module)
        return _CLASSES[self.base]

    @property
    def needs_in_words(self) -> str:
        """What it needs besides connectomes and labels; empty if nothing."""
        text = ", ".join(self.needs)
        return text if self.needs_all else " or ".join(text.rsplit(", ", 1))

    @property
    def block(self) -> str:
        """Block of a table that lists the method, one of :data:`BLOCKS`."""
        kind = self.provenance.kind
        if self.control:
            return "controls"
        if kind in (READING, REDESIGN):
            return kind
        if self.family in ("linear", "BRIO"):
            return self.family
        published = (PUBLISHED.kind, TEXTBOOK.kind, CODE_WITH_DIFFERENCES, INTENT)
        return "published code or equations" if kind in published else "other methods"


_DECLARED: dict[str, MethodEntry] = {}  # what imported classes say of themselves
_CLASSES: dict[str, type[Method]] = {}  # imported classes by the name of their method


def _read_entry(facts: dict[str, Any]) -> MethodEntry:
    """Read one entry of the catalogue."""
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in facts["settings"].items()}
    return msgspec.convert(facts | {"settings": values}, MethodEntry)


_CATALOGUED = {facts["name"]: _read_entry(facts) for facts in json.loads(CATALOGUE.read_text("utf-8"))}


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
        Family of the method, shown in lists and tables.
    reference : str
        Reference to cite.
    provenance : Provenance or str
        The origin of the implementation; any text is allowed.
    needs : iterable of str
        Data needed besides connectomes and labels: ``"bold"``, ``"sites"``, ``"sex"``, ``"age"``, ``"motion"`` or
        ``"hemisphere"``.
    transductive : bool
        Whether the fit uses unlabelled scans of the test site.
    control : bool
        Whether the method is a confound baseline. Such a method uses no connectome, so an AUC above chance is a
        warning about the cohort.

    Returns
    -------
    decorator
        A decorator that registers the class and returns it.

    Raises
    ------
    BrioError
        If a need is unknown, the class does not define a required method, or the name is already used.

    Examples
    --------
    An incomplete class is rejected; for a complete one see ``docs/examples/my_method.py``.

    >>> from brio.training import NeuralMethod
    >>> @method("mine", family="mine", provenance="written for this page", reference="nobody")
    ... class Mine(NeuralMethod):
    ...     version = 1
    Traceback (most recent call last):
    brio.errors.BrioError: method 'mine': class Mine does not define network, loss
    """
    from ..training import NeuralMethod
    from ..training.contract import NEEDS

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
        settings = cls.Settings
        entry = MethodEntry(
            name=name,
            base=name,
            module=cls.__module__,
            family=family,
            reference=reference,
            summary=summary,
            provenance=provenance if isinstance(provenance, Provenance) else Provenance(provenance),
            needs=in_order,
            needs_all=cls.needs_all,
            transductive=transductive,
            control=control,
            linear=cls.is_linear and not control,
            settings=dataclasses.asdict(settings()),
            tuned_over={
                f.name: str(f.metadata["space"]) for f in dataclasses.fields(settings) if f.metadata.get("space")
            },
            numbers={key: write_number(kind) for key, kind in find_numbers(settings).items()},
        )
        _add_entry(entry)
        _CLASSES[name] = cls
        return cls

    return register


def variant(name: str, base: type[Method], summary: str, *, provenance: Provenance | None = None, **fixed: Any) -> None:
    """Register a class again under another name, with some settings fixed.

    Parameters
    ----------
    name : str
    base : type
        A class that is already registered with :func:`method`.
    summary : str
        One line that describes how the variant differs.
    provenance : Provenance, optional
        Provenance of the variant; by default the same as for the base.
    **fixed
        Fixed settings and their values. Users cannot change these settings of the variant.

    Examples
    --------
    The base must be registered first:

    >>> from brio.training import NeuralMethod
    >>> variant("mine-short", NeuralMethod, "Mine, trained for ten epochs.", epochs=10)
    Traceback (most recent call last):
    brio.errors.BrioError: method 'mine-short': class NeuralMethod is not registered; put @method(...) above it
    """
    base_entry = next((entry for entry in _DECLARED.values() if _CLASSES.get(entry.name) is base), None)
    if base_entry is None:
        raise BrioError(f"method '{name}': class {base.__name__} is not registered; put @method(...) above it")
    _add_entry(
        replace(
            base_entry,
            name=name,
            summary=summary,
            provenance=provenance or base_entry.provenance,
            fixed=fixed,
            settings=base_entry.settings | fixed,
            tuned_over={key: space for key, space in base_entry.tuned_over.items() if key not in fixed},
            file="",
            code="",
        )
    )


def _add_entry(entry: MethodEntry) -> None:
    catalogued = _CATALOGUED.get(entry.name)
    if entry.name in _DECLARED or (catalogued is not None and catalogued.module != entry.module):
        raise BrioError(f"method '{entry.name}' is registered twice; use another name")
    _DECLARED[entry.name] = entry


def list_methods() -> list[MethodEntry]:
    """List all methods: those of brio by family, then a user's own methods in order of registration."""
    return list((_CATALOGUED | _DECLARED).values())


def list_declared() -> list[MethodEntry]:
    """List the methods whose classes have been imported, in order of registration."""
    return list(_DECLARED.values())


def find_method(name: str, list_all: bool = True) -> MethodEntry:
    """Find a registered method by name."""
    known = _CATALOGUED | _DECLARED
    if name not in known:
        hint = f"; {nearest(name, known)}" if list_all or find_nearest(name, known) else ""
        raise BrioError(f"method '{name}' is unknown{hint}")
    return known[name]


def make_method(name: str, values: dict[str, Any] | None = None) -> Method:
    """Make a method with its settings."""
    entry, values = find_method(name), values or {}
    for key in values:
        if key in entry.fixed:
            raise BrioError(
                f"method '{entry.name}' fixes '{key}' to {entry.fixed[key]!r}; use '{entry.base}' to set it"
            )
    instance = entry.method_class(replace_values(entry.method_class.Settings(), {**values, **entry.fixed}))
    instance.name = entry.name  # type: ignore[misc]
    return instance


def restore_method(name: str, settings: Mapping[str, Any]) -> Method:
    """Restore a method with all of its settings from a record, including those that its name fixes."""
    fixed = find_method(name, list_all=False).fixed
    return make_method(name, {key: value for key, value in settings.items() if key not in fixed})


def load_methods(path: str | Path) -> list[str]:
    """Execute a Python file whose decorators register a user's own methods.

    The file runs with all permissions of the user, like any program: load only files that you would run yourself. A
    file that was loaded before is not executed again.
    """
    file = Path(path)
    if not file.is_file():
        raise BrioError(f"{file}: no such file; give a Python file that defines a method")
    module_name = f"brio_methods_{file.resolve()}"
    if module_name not in sys.modules:
        _run_file(file, module_name)
    names = [e.name for e in _DECLARED.values() if e.module == module_name]
    if not names:
        raise BrioError(f"{file}: registers no method; put the decorator @brio.authoring.method(...) above your class")
    return names


def _run_file(file: Path, module_name: str) -> None:
    """Run a file as a module and mark what it registers; where it fails, nothing of it stays registered."""
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise BrioError(f"{file}: the file name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    declared_before = set(_DECLARED)
    try:
        source = file.read_bytes()
        exec(compile(source, str(file), "exec"), module.__dict__)  # an import would leave a __pycache__ beside the file
        code = hashlib.sha256(source).hexdigest()[:16]
        for name in _list_own_names(declared_before):
            _DECLARED[name] = replace(_DECLARED[name], file=str(file), code=code)
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        for name in _list_own_names(declared_before):
            del _DECLARED[name]
            _CLASSES.pop(name, None)
        raise BrioError(f"{file}: {type(error).__name__}: {error}") from error


def _list_own_names(declared_before: set[str]) -> set[str]:
    """Methods that were declared since, without those of brio whose classes a user's file was the first to import."""
    return set(_DECLARED) - declared_before - set(_CATALOGUED)

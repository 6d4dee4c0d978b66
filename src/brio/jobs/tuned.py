"""Settings chosen for each fold on its validation scans, and how they are carried to other jobs."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import BrioError
from ..methods import find_method, make_method
from ..protocol import Fold
from ..training import Method
from .plan import Candidates, Plan
from .store import RunStore

__all__ = ["TUNED", "TUNING", "Tuned"]

TUNING = "tuning.json"
TUNED = " (tuned)"
"""What the folder of tuned rows ends in where the same method may be there with its own settings as well."""
_FIELDS = ("budget", "cohort", "atlas", "protocol", "validation_sites", "given", "tried", "choices")


@dataclass(frozen=True, eq=False)
class Tuned:
    """What a search chose.

    Attributes
    ----------
    budget : int
        Configurations that were tried for each method and fold.
    cohort, atlas : str
        Where it searched.
    protocol : dict
        Name and settings of the protocol and, for k-fold, whose folds are mere numbers, the cohort's fingerprint.
    validation_sites : dict
        Fold -> the sites that chose for it.
    given : dict
        Settings given by hand, which were not tuned and are carried along.
    tried : dict
        Method -> number of configurations that were tried.
    choices : dict
        Method -> fold -> values of the settings that were tuned.
    searched : path or None
        The search's store, whose runs need not be computed again.
    """

    budget: int
    cohort: str
    atlas: str
    protocol: dict[str, Any]
    validation_sites: dict[str, list[str]]
    given: dict[str, Any]
    tried: dict[str, int]
    choices: dict[str, dict[str, dict[str, Any]]]
    searched: Path | None = field(default=None)

    @classmethod
    def of(cls, found: str | Path | Tuned) -> Tuned:
        """A search from its folder."""
        if isinstance(found, Tuned):
            return found
        path = Path(found) / TUNING
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            return cls(**{name: told[name] for name in _FIELDS})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BrioError(f"{path}: not the result of 'brio tune' ({error})") from error

    @property
    def document(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _FIELDS}

    def check(self, protocol: dict[str, Any], n_seeds: int) -> None:
        """Raise an error if scans that chose could be test scans of the job the choices are carried to."""
        if protocol["name"] != self.protocol["name"]:
            raise BrioError(f"was tuned under {self.protocol['name']}, not under {protocol['name']}; tune again")
        if protocol["name"] == "kfold" and (n_seeds > 1 or protocol != self.protocol):
            raise BrioError(
                "under k-fold another seed or another split deals other scans to a fold, so its test scans may have "
                "chosen its settings; use one seed and the same cohort and folds, or loso"
            )

    def described(self, name: str) -> dict[str, Any]:
        """The choices for a method in words, for the plan."""
        where = {"budget": self.tried[name], "cohort": self.cohort, "atlas": self.atlas}
        return {**where, "folds": self.choices[name]}

    def candidates(self, name: str, values: dict[str, Any]) -> Candidates:
        """The method with the settings chosen for a fold; settings given by hand stay as they are."""
        known = {f.name for f in dataclasses.fields(find_method(name).method_class.Settings)} - set(
            find_method(name).fixed
        )
        given = {k: v for k, v in self.given.items() if k in known}
        own = {k: v for k, v in values.items() if k in known}
        made: dict[str, Method] = {}

        def of_fold(fold: Fold) -> list[Method]:
            if fold.name not in self.choices[name]:
                raise BrioError(f"method '{name}' was not tuned for fold {fold.name}; tune it with the same folds")
            if set(fold.test_sites) & set(self.validation_sites[fold.name]) and self.protocol["name"] == "loso":
                raise BrioError(f"fold {fold.name}: its test site chose its settings; tune again")
            chosen = {**given, **self.choices[name][fold.name], **own}
            key = json.dumps(chosen, sort_keys=True)
            if key not in made:
                made[key] = make_method(name, chosen)
            return [made[key]]

        return of_fold

    def lend(self, plan: Plan, store: RunStore) -> None:
        """Runs that the search has finished already."""
        if self.searched is not None:
            for key in plan.jobs:
                store.adopt(self.searched, key)

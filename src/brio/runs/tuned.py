"""Settings chosen for each fold on its validation scans, and how they are carried to other jobs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import BrioError
from ..methods import entry, make_method
from ..protocol import Fold
from ..training import Method
from .plan import Candidates, Plan
from .store import RunStore

__all__ = ["TUNING", "Tuned"]

TUNING = "tuning.json"


@dataclass(frozen=True, eq=False)
class Tuned:
    """What a search chose.

    Attributes
    ----------
    budget : int
        Configurations that were tried for each method and fold.
    cohort, atlas : str
        Where it searched.
    choices : dict
        Method -> fold -> values of the settings that were tuned.
    searched : path or None
        The search's store, whose runs need not be computed again.
    """

    budget: int
    cohort: str
    atlas: str
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
            return cls(told["budget"], told["cohort"], told["atlas"], told["choices"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BrioError(f"{path}: not the result of 'brio tune' ({error})") from error

    @property
    def document(self) -> dict[str, Any]:
        return {"budget": self.budget, "cohort": self.cohort, "atlas": self.atlas, "choices": self.choices}

    def described(self, name: str) -> dict[str, Any]:
        """The choices for a method in words, for the plan."""
        return {"budget": self.budget, "cohort": self.cohort, "atlas": self.atlas, "folds": self.choices[name]}

    def candidates(self, name: str, values: dict[str, Any]) -> Candidates:
        """The method with the settings chosen for a fold; settings given by hand stay as they are."""
        own = {k: v for k, v in values.items() if k in make_method(name).settings.__dataclass_fields__}
        own = {k: v for k, v in own.items() if k not in entry(name).fixed}
        made: dict[str, Method] = {}

        def of_fold(fold: Fold) -> list[Method]:
            if fold.name not in self.choices[name]:
                raise BrioError(f"method '{name}' was not tuned for fold {fold.name}; tune it with the same folds")
            chosen = {**self.choices[name][fold.name], **own}
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

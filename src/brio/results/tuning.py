"""``tuning.json`` and ``configurations.csv``: what a search tried and chose."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pandas as pd

from ..errors import BrioError
from ..schemas import OMIT_NONE, FieldsOf, Setting, StoredCount, StoredShare, formerly, from_json, to_json
from ..storage import write_recorded
from .files import CONFIGURATIONS, TUNING, format_csv, format_json, read_json
from .plan import TunedChoice
from .run_record import ProtocolName


@dataclass(frozen=True)
class TuningProtocol:
    """What every search stores of its protocol, besides the settings."""

    name: ProtocolName


@dataclass(frozen=True, kw_only=True)
class TuningRecord:
    """What a search chose."""

    budget: StoredCount  # configurations that were tried for each method and fold
    cohort: str  # where it searched
    atlas: str
    protocol: Annotated[dict[str, Any], FieldsOf(TuningProtocol)]
    validation_sites: dict[str, tuple[str, ...]]  # fold -> the sites that chose for it
    given_settings: dict[str, Setting] = field(metadata=formerly("given"))
    tried: dict[str, StoredCount]  # method -> number of configurations that were tried
    choices: dict[str, dict[str, dict[str, Setting]]]  # method -> fold -> values of the tuned settings
    oracle: dict[str, StoredShare] | None = field(default=None, metadata=OMIT_NONE)

    def __post_init__(self) -> None:
        for method, folds in self.choices.items():
            if method not in self.tried:
                raise BrioError(f"tried.{method} is missing")
            absent = [fold for fold in folds if fold not in self.validation_sites]
            if absent and self.protocol["name"] == "loso":
                raise BrioError(f"validation_sites.{absent[0]} is missing")

    def choice(self, method: str) -> TunedChoice:
        """Return what was chosen for a method, as a plan has it."""
        return TunedChoice(self.tried[method], self.cohort, self.atlas, self.choices[method])

    def write(self, folder: Path, configurations: pd.DataFrame) -> None:
        """Write the search to a job folder."""
        write_recorded(folder, {CONFIGURATIONS: format_csv(configurations), TUNING: format_json(to_json(self))})

    @classmethod
    def read(cls, folder: Path) -> TuningRecord:
        """Read what ``brio tune`` left in a folder."""
        path, remedy = folder / TUNING, "give the folder of 'brio tune'"
        return from_json(cls, read_json(path, remedy), path, remedy)

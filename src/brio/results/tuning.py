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

__all__ = ["TuningRecord"]


@dataclass(frozen=True)
class TuningProtocol:
    """What every search stores of its protocol, besides the settings."""

    name: ProtocolName


@dataclass(frozen=True, kw_only=True)
class TuningRecord:
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
    given_settings : dict
        Settings given by the user, which were not tuned and go with the choices.
    tried : dict
        Method -> number of configurations that were tried.
    choices : dict
        Method -> fold -> values of the tuned settings.
    oracle : dict or None
        Method -> mean AUC that choosing by the test scans would have reached; an upper bound, used for nothing.
    """

    budget: StoredCount
    cohort: str
    atlas: str
    protocol: Annotated[dict[str, Any], FieldsOf(TuningProtocol)]
    validation_sites: dict[str, tuple[str, ...]]
    given_settings: dict[str, Setting] = field(metadata=formerly("given"))
    tried: dict[str, StoredCount]
    choices: dict[str, dict[str, dict[str, Setting]]]
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
        """Write the search to a job folder.

        Parameters
        ----------
        folder : Path
        configurations : DataFrame
            One row per method, fold and configuration.
        """
        write_recorded(folder, {CONFIGURATIONS: format_csv(configurations), TUNING: format_json(to_json(self))})

    @classmethod
    def read(cls, folder: Path) -> TuningRecord:
        """Read what ``brio tune`` left in a folder."""
        path, remedy = folder / TUNING, "give the folder of 'brio tune'"
        return from_json(cls, read_json(path, remedy), path, remedy)

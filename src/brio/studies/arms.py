"""Arms of a study: a method with settings under a protocol, each an ordinary folder of runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ..errors import BrioError

__all__ = ["Arm", "Finished", "arm", "read_finished"]


@dataclass(frozen=True)
class Arm:
    """A method, the settings in which it departs from its own, and the protocol it is run under."""

    method: str
    settings: tuple[tuple[str, Any], ...] = ()
    protocol: str = "loso"

    @property
    def name(self) -> str:
        """What tables and folders call it: ``brio``, ``brio,K=2``."""
        return ",".join([self.method, *(f"{key}={value}" for key, value in self.settings)])


def arm(method: str, protocol: str = "loso", **settings: Any) -> Arm:
    """An arm from keywords.

    Examples
    --------
    >>> arm("brio", K=2).name
    'brio,K=2'
    """
    return Arm(method, tuple(settings.items()), protocol)


@dataclass(frozen=True, eq=False)
class Finished:
    """The finished runs of an arm: its rows, the summary over sites, and the folder they came from."""

    arm: Arm
    folder: Path
    rows: pd.DataFrame
    summary: dict[str, Any]

    @property
    def facts(self) -> dict[str, Any]:
        """What every row of a study says of the runs behind it."""
        found = self.summary["methods"][self.arm.method]
        return {name: found[name] for name in ("folds", "seeds", "epochs", "K")}


def read_finished(arm: Arm, folder: Path, fingerprint: str) -> Finished | None:
    """The runs of an arm in a folder of ``brio run`` or ``brio tune``; None where the folder does not hold them."""
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        rows = pd.read_csv(
            folder / "results.csv", dtype={"fold": str, "note": str}, na_values=[""], keep_default_na=False
        )
        wanted = arm.method in summary["methods"] and summary["protocol"] == arm.protocol and not summary["harmonise"]
    except (OSError, ValueError, KeyError) as error:
        raise BrioError(f"{folder}: is not a folder of finished runs ({error})") from error
    if not wanted:
        return None
    if summary["fingerprint"] != fingerprint:
        raise BrioError(f"{folder}: its runs are of another cohort, or of one with other exclusions")
    return Finished(arm, folder, rows[rows["method"] == arm.method].reset_index(drop=True), summary)

"""Arms of a study: a method with settings under a protocol, each an ordinary folder of runs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ..errors import BrioError
from ..protocol import ProtocolSettings

__all__ = ["Arm", "Finished", "HandedIn", "arm", "printed", "read_handed_in"]

_PRINTED = {
    "brio": "BRIO",
    "brio-wo-rs": "w/o RS",
    "brio-wo-tr": "w/o TR",
    "brio-wo-sm": "w/o SM",
    "brio-wo-sf": "w/o SF",
    "brio-wo-qg": "w/o QG",
}


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


def printed(name: str) -> str:
    """What readers are shown instead of an arm's name: the paper's words where it has some, settings behind them.

    Examples
    --------
    >>> printed("brio-wo-rs"), printed("brio,K=2"), printed("ridge")
    ('w/o RS', 'BRIO, K=2', 'ridge')
    """
    method, *settings = name.split(",")
    return ", ".join([_PRINTED.get(method, method), *(one.strip() for one in settings)])


@dataclass(frozen=True, eq=False)
class Finished:
    """The finished runs of an arm: its rows, the summary over sites, and the folder they came from.

    ``changed`` holds settings of runs that were handed in where they are not the method's own.
    """

    arm: Arm
    folder: Path
    rows: pd.DataFrame
    summary: dict[str, Any]
    changed: dict[str, Any] = field(default_factory=dict)

    @property
    def facts(self) -> dict[str, Any]:
        """What every row of a study says of the runs behind it."""
        found = self.summary["methods"][self.arm.method]
        counted = {"folds": self.rows["fold"].nunique(), "seeds": self.rows["seed"].nunique()}
        return counted | {name: found[name] for name in ("epochs", "K")}


@dataclass(frozen=True, eq=False)
class HandedIn:
    """A folder of ``brio run`` or ``brio tune`` whose rows stand for the methods it holds."""

    folder: Path
    rows: pd.DataFrame
    summary: dict[str, Any]

    def runs_of(self, arm: Arm, runs: Iterable[tuple[str, int]]) -> Finished | None:
        """The rows of an arm, one for each fold and seed that is asked for; None where the folder has no such arm.

        An arm with settings of its own is not in it. A fold or seed that is not there is an error: means over other
        sites would stand side by side.
        """
        there = arm.method in self.summary["methods"] and self.summary["protocol"] == arm.protocol
        if arm.settings or not there or self.summary["harmonise"]:
            return None
        mine = self.rows[self.rows["method"] == arm.method].set_index(["fold", "seed"], drop=False)
        wanted = list(runs)
        for fold, seed in wanted:
            if (fold, seed) not in mine.index:
                raise BrioError(
                    f"{self.folder}: has no run of '{arm.method}' for fold {fold}, seed {seed}, which this study "
                    "compares; run the rest there, or leave the folder out"
                )
        changed = self.summary["methods"][arm.method]["changed"]
        return Finished(arm, self.folder, mine.loc[wanted].reset_index(drop=True), self.summary, changed)


def read_handed_in(folder: Path, fingerprint: str, protocol_settings: ProtocolSettings) -> HandedIn:
    """Read a folder of finished runs; one of another cohort, or with other folds, is an error."""
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        rows = pd.read_csv(
            folder / "results.csv", dtype={"fold": str, "note": str}, na_values=[""], keep_default_na=False
        )
        print_, protocol, methods = summary["fingerprint"], summary["protocol"], summary["methods"].values()
        summary["harmonise"], rows[["method", "fold", "seed", "auc"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BrioError(f"{folder}: is not a folder of finished runs ({error})") from error
    theirs = summary.get("protocol_settings")
    if theirs is None or not all("changed" in found for found in methods):
        raise BrioError(f"{folder}: was written by an earlier version, which did not tell all settings; run it again")
    if print_ != fingerprint:
        raise BrioError(f"{folder}: its runs are of another cohort, or of one with other exclusions")
    ours = dataclasses.asdict(protocol_settings)
    for name in ["validation_sites"] if protocol == "loso" else ["n_folds", "validation_folds"]:
        if theirs.get(name) != ours[name]:
            raise BrioError(
                f"{folder}: its folds are others: protocol.{name} is {theirs.get(name)} there, {ours[name]} here"
            )
    return HandedIn(folder, rows, summary)

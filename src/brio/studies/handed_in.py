"""Rows of finished jobs that stand for arms of a study."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ..errors import BrioError
from ..jobs.execute import write_plan
from ..jobs.plan import Plan
from ..jobs.prepare import Prepared
from ..jobs.store import write_atomically
from ..jobs.tables import over_folds
from ..jobs.tuned import TUNED, TUNING, Tuned
from ..protocol import ProtocolSettings
from .arms import Arm, Finished

__all__ = ["HandedIn", "keep", "read_handed_in"]

_TEXT: dict[str, Any] = {"dtype": {"fold": str, "note": str}, "na_values": [""], "keep_default_na": False}


@dataclass(frozen=True, eq=False)
class HandedIn:
    """A folder of ``brio run`` or ``brio tune`` whose rows stand for the methods it holds."""

    folder: Path
    rows: pd.DataFrame
    summary: dict[str, Any]

    def runs_of(self, arm: Arm, runs: Iterable[tuple[str, int]]) -> Finished | None:
        """The rows of an arm, one for each fold and seed that is asked for; None where the folder has no such arm.

        An arm with settings of its own is not in it, nor is one that nobody tuned where these rows were. A fold or
        seed that is not there is an error: means over other sites would stand side by side.
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
        found = Finished(arm, self.folder, mine.loc[wanted].reset_index(drop=True), self.summary, changed)
        return found if arm.tuned or not found.tuned else None


def read_handed_in(folder: Path, fingerprint: str, protocol_settings: ProtocolSettings) -> HandedIn:
    """Read a folder of finished runs; one of another cohort, or with other folds, is an error."""
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        rows = pd.read_csv(folder / "results.csv", **_TEXT)
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


def keep(found: Finished, plan: Plan, prepared: Prepared, place: Path) -> None:
    """Write the rows that stand for an arm as a job of its own in a place, so that a report can tell of them.

    Parameters
    ----------
    plan : Plan
        Of the arm, had it been trained here; settings that were changed or tuned are put in.
    """
    name, rows = found.arm.method, found.rows
    folder = place / (found.arm.name + (TUNED if found.tuned else ""))
    told = dict(plan.facts["methods"][name])
    told["settings"] = told["settings"] | found.changed
    if (found.folder / TUNING).is_file():
        told["tuned"] = Tuned.of(found.folder).described(name)
    seeds = sorted(rows["seed"].unique().tolist())
    facts = {**plan.facts, "methods": {name: told}, "seeds": seeds, "handed_in": str(found.folder)}
    write_plan(Plan(facts, {}, [], plan.harmonise), prepared, folder)
    mine = found.summary["methods"][name] | over_folds(rows, found.arm.protocol) | {"runs": len(rows)}
    if mine["seeds"] != len(seeds):  # what averaging other seeds gives is not known from rows
        mine |= {"seeds": len(seeds), "auc_of_averaged_logits": {"mean": None, "sd": None, "interval": None, "n": 0}}
    said = found.folder / "predictions.csv"
    if said.is_file():
        table = pd.read_csv(said, **_TEXT)
        asked = table["method"].eq(name) & table["seed"].isin(seeds) & table["fold"].isin(rows["fold"])
        write_atomically(folder / "predictions.csv", table[asked].to_csv(index=False, lineterminator="\n"))
    write_atomically(folder / "results.csv", rows.to_csv(index=False, lineterminator="\n"))
    told_of = {"n_excluded": len(facts["excluded"]), "seeds": seeds, "warnings": []}
    summary = found.summary | {"methods": {name: mine}} | told_of
    write_atomically(folder / "summary.json", json.dumps(summary, indent=2) + "\n")

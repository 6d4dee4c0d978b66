"""Finished runs brought back to life: methods and outcomes with their weights, for diagnostics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..training import Method, Outcome, Run
from .execute import planned
from .prepare import Prepared
from .store import RunStore

__all__ = ["fitted_runs", "run_notes"]


def fitted_runs(prepared: Prepared, name: str, folder: Path) -> tuple[Method, list[Outcome]]:
    """A method and its fitted runs, in the order of seeds and folds, from a folder that kept their weights."""
    jobs = list(planned(prepared, [name]).jobs.values())
    store = RunStore(folder / "runs")
    outcomes = []
    for job in jobs:
        record = store.record(job.key)
        row = record["row"]
        outcomes.append(
            Outcome(
                job.run,
                np.array(record["predictions"]["logit"]),
                row["validation_auc"],
                row["selected_epoch"],
                record["notes"].get("trained_epochs"),
                row["block_length"],
                store.weights(job.key),
                record["notes"],
            )
        )
    return jobs[0].method, outcomes


def run_notes(prepared: Prepared, name: str, folder: Path) -> list[tuple[Run, dict[str, Any]]]:
    """What the runs of a method noted, in the order of seeds and folds; weights need not have been kept."""
    store = RunStore(folder / "runs")
    return [(job.run, store.record(job.key)["notes"]) for job in planned(prepared, [name]).jobs.values()]

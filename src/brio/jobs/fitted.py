"""Finished runs brought back to life: methods and fitted_runs with their weights, for diagnostics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..training import FittedRun, Method, Run, group_tensors
from .execute import planned
from .prepare import Prepared
from .store import RunStore

__all__ = ["load_fitted_runs", "load_run_details"]


def load_fitted_runs(prepared: Prepared, name: str, folder: Path) -> tuple[Method, list[FittedRun]]:
    """A method and its fitted runs, in the order of seeds and folds, from a folder that kept their weights."""
    jobs = list(planned(prepared, [name]).jobs.values())
    store = RunStore(folder / "runs")
    fitted_runs = []
    for job in jobs:
        record = store.record(job.key)
        row = record["row"]
        fitted_runs.append(
            FittedRun(
                job.run,
                np.array(record["predictions"]["logit"]),
                row["validation_auc"],
                row["selected_epoch"],
                record["details"].get("trained_epochs"),
                row["block_length"],
                *group_tensors(store.weights(job.key)),
                record["details"],
            )
        )
    return jobs[0].method, fitted_runs


def load_run_details(prepared: Prepared, name: str, folder: Path) -> list[tuple[Run, dict[str, Any]]]:
    """What the runs of a method noted, in the order of seeds and folds; weights need not have been kept."""
    store = RunStore(folder / "runs")
    return [(job.run, store.record(job.key)["details"]) for job in planned(prepared, [name]).jobs.values()]

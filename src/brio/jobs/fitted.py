"""Fitted runs of a finished job with their weights, for diagnostics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..results import RunStore
from ..results.files import RUNS
from .job import Job
from .plan import build_plan

if TYPE_CHECKING:
    from ..training import FittedRun, Method, Run

__all__ = ["load_fitted_runs", "load_run_details"]


def load_fitted_runs(job: Job, name: str, folder: Path) -> tuple[Method, list[FittedRun]]:
    """Load a method and its fitted runs, in the order of seeds and folds.

    Their ``test_logit`` has one margin per test participant, as it was stored: the mean over the scans of each.

    Parameters
    ----------
    job : Job
        As it was when the runs were trained.
    name : str
        Of the method.
    folder : Path
        Job folder that kept the weights.

    Raises
    ------
    BrioError
        If a run, or its weights, is not there.
    """
    from ..training import FittedRun, group_tensors

    planned_runs = list(build_plan(job, [name]).runs.values())
    store = RunStore(folder / RUNS)
    fitted_runs = []
    for planned in planned_runs:
        record = store.read_record(planned.key)
        row, logit = record.row, record.predictions.logit
        fitted_runs.append(
            FittedRun(
                planned.run,
                np.array([] if logit is None else logit),
                float("nan") if row.validation_auc is None else row.validation_auc,
                row.selected_epoch,
                record.details.get("trained_epochs"),
                row.block_length,
                *group_tensors(store.read_weights(planned.key)),
                record.details,
                row.steps,
            )
        )
    return planned_runs[0].method, fitted_runs


def load_run_details(job: Job, name: str, folder: Path) -> list[tuple[Run, dict[str, Any]]]:
    """Load the details that the runs of a method left, in the order of seeds and folds; weights are not needed.

    Parameters
    ----------
    job : Job
    name : str
        Of the method.
    folder : Path
        Of the job.
    """
    store = RunStore(folder / RUNS)
    planned_runs = build_plan(job, [name]).runs.values()
    return [(planned.run, store.read_record(planned.key).details) for planned in planned_runs]

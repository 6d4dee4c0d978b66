"""Fitted runs of a finished job with their weights, for diagnostics and final models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..results import RunStore
from ..results.files import RUNS
from .job import Job
from .plan import PlannedRun, build_plan

if TYPE_CHECKING:
    from ..training import FittedRun, Method


def load_fitted_runs(job: Job, name: str, folder: Path) -> tuple[Method, list[FittedRun]]:
    """Load a method and its fitted runs, in the order of seeds and folds.

    Their ``test_logit`` has one margin per test participant, as it was stored: the mean over the scans of each.
    """
    planned_runs = list(build_plan(job, [name]).runs.values())
    store = RunStore(folder / RUNS)
    return planned_runs[0].method, [load_fitted_run(planned, store) for planned in planned_runs]


def load_fitted_run(planned: PlannedRun, store: RunStore) -> FittedRun:
    """Load one fitted run."""
    from ..training import FittedRun, group_tensors

    record = store.read_record(planned.key)
    row, logit, details = record.row, record.predictions.logit, dict(record.details)
    trained_epochs = details.pop("trained_epochs", None)  # which a record adds
    return FittedRun(
        planned.run,
        np.array([] if logit is None else logit),
        float("nan") if row.validation_auc is None else row.validation_auc,
        row.selected_epoch,
        trained_epochs,
        row.block_length,
        *group_tensors(store.read_weights(planned.key)),
        details,
        row.steps,
    )

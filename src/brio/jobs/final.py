"""The runs of a final model, one for each seed, trained on all sites as a job of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from .execute import train_stacks
from .fitted import load_fitted_run
from .job import Job
from .plan import JobPlan, PlannedRun, describe_job, describe_method, run_key
from .resume import open_job

if TYPE_CHECKING:
    from ..training import FittedRun, Method, Run


def train_final_runs(job: Job, method: Method, runs: Sequence[Run], folder: Path) -> list[FittedRun]:
    """Train the runs of a final model with the engine of a job; those that are finished are not trained again."""
    with open_job(job, _plan_final_runs(job, method, runs), folder, quiet=True) as (plan, store):
        train_stacks(job, plan, store)
        return [load_fitted_run(planned, store) for planned in plan.runs.values()]


def _plan_final_runs(job: Job, method: Method, runs: Sequence[Run]) -> JobPlan:
    """Plan one run for each seed; validation sites may be named by the user, so they are part of the fold's name."""
    folds = [replace(run.fold, name=_name_fold(run)) for run in runs]
    document = describe_job(job, {method.name: describe_method(method)}, [run.seed for run in runs])
    document = replace(document, folds=tuple(sorted({fold.name for fold in folds})))
    keys = [run_key(document, method, fold, run.seed) for fold, run in zip(folds, runs, strict=True)]
    return JobPlan(document, {key: PlannedRun(method, run, key) for key, run in zip(keys, runs, strict=True)})


def _name_fold(run: Run) -> str:
    chosen_at = ", ".join(run.fold.validation_sites)
    return f"{run.fold.name}, validated at {chosen_at}" if chosen_at else run.fold.name

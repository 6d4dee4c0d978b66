"""Run a job, or a shard of it, and fit its final model."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..console import Progress, silent
from ..results import RunStore
from ..results.files import PLAN, RUNS, SEARCH
from .execute import FinishedJob, LocalEngine, Shard, execute_plan, load_fitted_run, start_job, train_stacks
from .job import Job, Say, ignore
from .plan import JobPlan, PlannedRun, build_plan, describe_job, describe_method, run_key
from .resume import open_job, read_earlier_plan
from .spec import JobSpec
from .tuning import choose_settings, plan_choice, plan_search, plan_tuned_methods, start_search

if TYPE_CHECKING:
    from ..training import FittedRun, Method, Run


def run_shard(spec: JobSpec, shard: Shard, out: Path, progress: Progress = silent, say: Say = ignore) -> bool:
    """Train one shard of a job."""
    read_earlier_plan(out)
    job, names = start_job(_with_shard(spec, shard), progress, say)
    return train_shard(job, build_plan(job, names, plan_tuned_methods(job, names)), out)


def tune_shard(
    spec: JobSpec,
    shard: Shard,
    out: Path,
    *,
    budget: int = 4,
    progress: Progress = silent,
    say: Say = ignore,
) -> bool:
    """Train one shard of a search and, once the search is finished, of the job with the settings that it chose."""
    job, drawn = start_search(_with_shard(spec, shard), out, budget, progress, say)
    plan, planned = plan_search(job, drawn), (out / PLAN).is_file()
    if not train_shard(job, plan, out / SEARCH, allow_divergence=True, allow_other_device=planned):
        say("the search is not finished: when all shards are through, give all these commands again for the next step")
        return False
    # every shard makes the same choice; the command without a shard stores it
    record, _ = choose_settings(job, plan, RunStore(out / SEARCH / RUNS), drawn, budget=budget)
    job, plan = plan_choice(job, record, list(drawn))
    return train_shard(job, plan, out, quiet=True, finished_runs=out / SEARCH / RUNS)


def _with_shard(spec: JobSpec, shard: Shard) -> JobSpec:
    return dataclasses.replace(spec, engine=LocalEngine(shard))


def train_shard(
    job: Job,
    plan: JobPlan,
    folder: Path,
    *,
    quiet: bool = False,
    allow_divergence: bool = False,
    allow_other_device: bool = True,
    finished_runs: Path | None = None,
) -> bool:
    """Train those stacks of a plan that belong to the shard of a job."""
    with open_job(job, plan, folder, quiet=quiet, allow_other_device=allow_other_device) as (plan, store):
        if finished_runs is not None:
            store.copy_finished_runs(finished_runs, plan.runs)
        train_stacks(job, plan, store, allow_divergence)
        return all(key in store for key in plan.runs)


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


def run_job(spec: JobSpec, out: Path, progress: Progress = silent, say: Say = ignore) -> FinishedJob:
    """Evaluate the methods of a specification; runs that are finished in ``out`` are not computed again."""
    read_earlier_plan(out)
    job, names = start_job(spec, progress, say)
    return FinishedJob(job, execute_plan(job, build_plan(job, names, plan_tuned_methods(job, names)), out))

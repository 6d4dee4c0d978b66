"""Executing the plan of a job: train what is missing, write the tables."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ..device import check_device_name
from ..progress import Progress, silent
from ..results import RunStore, StoredJob, prediction_rows, result_rows, summarise, write_tables
from .cohort_facts import is_label_sex
from .engines.local import LocalEngine
from .job import Job, Say, ignore, open_cohort, prepare_job
from .plan import JobPlan
from .resume import open_job
from .spec import JobSpec, check_settings, make_methods, resolve_methods, wants_all_methods


class FinishedJob(NamedTuple):
    """A job and what it left in its folder."""

    job: Job
    stored: StoredJob


def start_job(spec: JobSpec, progress: Progress = silent, say: Say = ignore) -> tuple[Job, list[str]]:
    """Check the methods and settings of a job, then its cohort."""
    names = resolve_methods(spec.methods)
    check_settings(names, spec.method_settings)
    check_device_name(spec.device)
    open_cohort(spec)  # until here nothing needs torch, so that a wrong name is reported at once
    methods = make_methods(names, spec.method_settings)  # a wrong value is reported before the cohort is audited
    job = prepare_job(spec, progress, say, methods.values())
    return job, job.runnable_methods(names) if wants_all_methods(spec.methods) else names


def train_stacks(job: Job, plan: JobPlan, store: RunStore, allow_divergence: bool = False) -> None:
    """Train the stacks of a plan that are not finished with the engine of the job."""
    engine = job.spec.engine or LocalEngine()
    engine.train(job, plan, store, allow_divergence)


def execute_plan(
    job: Job, plan: JobPlan, folder: Path, *, quiet: bool = False, finished_runs: Path | None = None
) -> StoredJob:
    """Train the runs of a plan that are not finished and write the tables of the job."""
    with open_job(job, plan, folder, quiet=quiet) as (plan, store):
        if finished_runs is not None:
            store.copy_finished_runs(finished_runs, plan.runs)
        train_stacks(job, plan, store)
        records = [store.read_record(key) for key in plan.runs]
        rows, predictions = result_rows(records), prediction_rows(records)
        summary = summarise(plan.document, rows, predictions, plan.facts, is_label_sex(job.cohort))
        write_tables(folder, rows, predictions, summary)
    return StoredJob(folder, summary, rows, plan.document, predictions)

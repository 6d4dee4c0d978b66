"""Execute a plan, in this process or by an engine, and load the fitted runs of a finished job."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..console import Progress, silent
from ..device import check_device_name
from ..errors import BrioError
from ..results import RunStore, StoredJob, prediction_rows, result_rows, summarise, write_tables
from ..results.files import RUNS
from .job import Job, Say, ignore, open_cohort, prepare_job
from .plan import JobPlan, PlannedRun, build_plan
from .resume import is_label_sex, open_job
from .spec import Engine, JobSpec, check_settings, make_methods, resolve_methods, wants_all_methods

if TYPE_CHECKING:
    from ..training import FittedRun, Method


@dataclass(frozen=True)
class Shard:
    """Stacks ``number``, ``number + count``, ... of every plan."""

    number: int  # from 1
    count: int  # of shards

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``i/n``."""
        match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text.strip())
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise BrioError(f"--shard {text}: write i/n with i from 1 to n, for example 2/8")
        return cls(int(match[1]), int(match[2]))

    def numbers(self, n_stacks: int) -> range:
        """Return the numbers of its stacks, from 1."""
        return range(self.number, n_stacks + 1, self.count)


@dataclass(frozen=True)
class LocalEngine(Engine):
    """Train stacks in this process."""

    shard: Shard | None = None  # train only these stacks. Other processes then share the folder of the job

    @property
    def shares_folder(self) -> bool:
        """Whether other processes write to the folder at the same time: if this one has a shard."""
        return self.shard is not None

    def train(self, job: Job, plan: JobPlan, store: RunStore, allow_divergence: bool = False) -> None:
        """Train one stack after the other, in the order of the plan; the first that fails ends the job."""
        from .train import close_if_finished, estimate_costs, train_stack

        costs = estimate_costs(plan, job.cohort)
        mine = range(1, len(costs) + 1) if self.shard is None else self.shard.numbers(len(costs))
        total, done = sum(costs[number - 1] for number in mine), 0.0
        for number in mine:
            cost = costs[number - 1]
            if not close_if_finished(plan, number, store):
                progress = _take_share(job.progress, done, cost, total)
                train_stack(job, plan, number, store, progress=progress, allow_divergence=allow_divergence)
            done += cost


def _take_share(progress: Progress, done: float, cost: float, total: float) -> Progress:
    """Report the progress of one stack as the share of all stacks that is done."""

    def report(message: str, share: float) -> None:
        progress(message, (done + cost * share) / total)

    return report


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

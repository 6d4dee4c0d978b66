"""One shard of a job: for job arrays of clusters, without any other program between the processes.

Every process trains its own stacks of the same plan in the same folder and writes no tables. When all are through, the
same command without a shard finds all runs finished and writes the tables.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ..progress import Progress, silent
from ..results import RunStore
from ..results.files import PLAN, RUNS, SEARCH
from .engines.local import LocalEngine, Shard
from .execute import start_job, train_stacks
from .job import Job, Say, ignore
from .plan import JobPlan, build_plan
from .resume import open_job, read_earlier_plan
from .spec import JobSpec
from .tuning import choose_settings, plan_choice, plan_search, plan_tuned_methods, start_search


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

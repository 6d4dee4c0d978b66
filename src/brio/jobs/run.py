"""Run a job: train the runs of a plan in this process or by an engine; search settings first; fit a final model.

A search tries the same number of configurations for every method, chosen on validation scans inside each fold. What was
chosen is stored in a :class:`brio.results.TuningRecord` and goes, fold by fold, to other jobs.
"""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from ..cohort.covariates import list_known_covariates
from ..console import Progress, report_part, silent
from ..device import check_device_name
from ..errors import BrioError
from ..formatting import format_count, format_time
from ..methods import find_method, list_methods, make_method
from ..results import RunStore, StoredJob, TuningRecord, prediction_rows, result_rows, summarise, write_tables
from ..results.cohort import is_label_sex, read_cohort_facts
from ..results.files import PLAN, RUNS, SEARCH
from ..results.store import list_heartbeats
from ..settings import Budget, draw_configurations, require_number
from .job import Job, Say, ignore, open_cohort, prepare_job
from .plan import JobPlan, PlannedRun, build_plan, describe_job, describe_method, method_identity, plan_runs, run_key
from .resume import open_job, read_earlier_plan, reserve_folder
from .spec import RECOMMENDED, RECOMMENDED_METHODS, Engine, JobSpec, Shard, check_settings
from .status import LEAST_SHARE

if TYPE_CHECKING:
    from ..training import FittedRun, Method, Run


PLAN_ONLY: Shard = (0, 0)


@dataclass(frozen=True)
class LocalEngine(Engine):
    """Train stacks in this process: all of a plan, those of one shard, or none."""

    shard: Shard | None = None  # i of n: stacks i, i + n, ... of every plan, none for (0, 0); others train the rest

    @classmethod
    def parse(cls, shard: str) -> LocalEngine:
        """Make the engine of a shard from ``i/n``; ``plan`` makes one that trains nothing."""
        if shard == "plan":
            return cls(PLAN_ONLY)
        match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", shard.strip())
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise BrioError(f"--shard {shard}: expected plan, or I/N with I from 1 to N, such as 2/8")
        return cls((int(match[1]), int(match[2])))

    @property
    def shares_folder(self) -> bool:
        """Whether other processes write to the folder at the same time, as they do for a shard."""
        return self.shard is not None

    def train(self, job: Job, plan: JobPlan, store: RunStore, allow_divergence: bool = False) -> None:
        """Train one stack after the other, those of other live processes last; the first that fails ends the job."""
        from .train import train_stack

        first, step = self.shard or (1, 1)
        n = len(plan.document.stacks)
        if self.shard == PLAN_ONLY:
            shards = f"--shard 1/{n} to --shard {n}/{n} train one stack each" if n > 1 else "--shard 1/1 trains it"
            return job.say(f"{format_count(n, 'stack')} in total; {shards}")
        if first > n:
            return job.say(f"shard {first} of {step} has nothing to train: the job has {format_count(n, 'stack')}")
        costs = dict(list(plan.estimate_costs(job.cohort).items())[first - 1 :: step])
        total, done = sum(costs.values()), 0.0
        largest: float | None = max(costs.values(), default=None)
        elsewhere = {heartbeat.stack for heartbeat in list_heartbeats(store.folder.parent)}
        for number, cost in sorted(costs.items(), key=lambda item: item[0] in elsewhere):
            if not plan.close_if_finished(number, store):
                report = report_part(job.progress, done / total, cost / total)
                if cost == largest:  # the first of them tells best how long the job takes
                    report, largest = announce_time(report, job.say, (total - done) / cost), None
                train_stack(job, plan, number, store, progress=report, allow_divergence=allow_divergence)
            done += cost


LEAST_SECONDS = 60.0
"""Seconds from which on the time left is said."""


def announce_time(progress: Progress, say: Say, left: float) -> Progress:
    """Return the progress of a stack that says once how long the job takes; ``left`` is its cost in such stacks."""
    start, said = time.monotonic(), False

    def report(message: str, share: float) -> None:
        nonlocal said
        if share >= LEAST_SHARE and not said:
            said, rest = True, (time.monotonic() - start) * (left / share - 1)
            if rest >= LEAST_SECONDS:
                say(f"time left: about {format_time(rest)}, estimated from the first {100 * share:.0f}% of this stack")
        progress(message, share)

    return report


# ---------------------------------------------------------------- a job, and a shard of it


def run_job(spec: JobSpec, out: Path, progress: Progress = silent, say: Say = ignore) -> StoredJob | None:
    """Evaluate the methods of a specification; runs that are finished in ``out`` are kept. Returns None for a shard."""
    read_earlier_plan(out)  # a folder of something else is refused before anything is read
    job, names = start_job(spec, progress, say)
    return _execute_or_train_shard(job, build_plan(job, names), out)


def start_job(spec: JobSpec, progress: Progress = silent, say: Say = ignore) -> tuple[Job, list[str]]:
    """Check the methods and settings of a job, then its cohort; ``all`` is every method that is not a variant."""
    every = [entry.name for entry in list_methods() if not entry.fixed]
    sets = {"all": every, RECOMMENDED: list(RECOMMENDED_METHODS)}
    names = list(dict.fromkeys(name for method in spec.methods for name in sets.get(method, [method])))
    check_settings(names, spec.method_settings)
    check_device_name(spec.device)
    spec, _ = open_cohort(spec)  # until here nothing needs torch, so that a wrong name is reported at once
    methods = [make_method(name, spec.settings_of(name)) for name in names]  # wrong values, before the audit
    job = prepare_job(spec, progress, say, methods)
    if not sets.keys() & set(spec.methods):
        return job, names
    names = job.runnable_methods(names)
    if RECOMMENDED in spec.methods:
        unsuited = {}
        if is_label_sex(job.cohort) and "sex" in list_known_covariates(job.cohort):
            unsuited["covariates-only"] = "would use sex as an input, but sex is the label here"
        if (pd.Series(job.cohort.n_frames).groupby(job.cohort.sites).nunique() == 1).all():
            unsuited["length-only"] = "cannot work, because all scans of each site have the same length"
        for name in [name for name in names if name in unsuited and name not in spec.methods]:
            names.remove(name)
            say(f"left out: method '{name}' {unsuited[name]}")
        say(f"recommended methods, {format_count(spec.seeds, 'seed')}: {', '.join(names)}")
    return job, names


def train_stacks(job: Job, plan: JobPlan, store: RunStore, allow_divergence: bool = False) -> None:
    """Train the stacks of a plan that are not finished with the engine of the job."""
    (job.spec.engine or LocalEngine()).train(job, plan, store, allow_divergence)


def execute_plan(
    job: Job, plan: JobPlan, folder: Path, *, quiet: bool = False, finished_runs: Path | None = None
) -> StoredJob:
    """Train the runs of a plan that are not finished and write the tables of the job."""
    with open_job(job, plan, folder, quiet=quiet, finished_runs=finished_runs) as (plan, store):
        train_stacks(job, plan, store)
        records = [store.read_record(key) for key in plan.runs]
        rows, predictions = result_rows(record.row for record in records), prediction_rows(records)
        summary = summarise(plan.document, rows, predictions, plan.facts, read_cohort_facts(folder))
        write_tables(folder, rows, predictions, summary)
    audited = None if job.audit is None else job.audit.to_dict()
    return StoredJob(folder, summary, rows, plan.document, predictions, audited)


def train_shard(job: Job, plan: JobPlan, folder: Path, **opening: Any) -> bool:
    """Train the stacks of a shard (``opening`` is for ``open_job``); returns whether all runs are finished."""
    with open_job(job, plan, folder, **opening) as (plan, store):
        train_stacks(job, plan, store)
        return all(key in store for key in plan.runs)


def _execute_or_train_shard(job: Job, plan: JobPlan, out: Path, **opening: Any) -> StoredJob | None:
    """Train all of a plan, or the shard of the engine of a job; then say what is left to do."""
    if job.shard is None:
        return execute_plan(job, plan, out, **opening)
    job.say(describe_shard(job.shard, train_shard(job, plan, out, **opening), out))
    return None


def describe_shard(shard: Shard, finished: bool, out: Path, what: str = "job") -> str:
    """Report that a shard of a job, study or search is trained, and what is left to do."""
    progress = f"'brio status {out}' shows the progress"
    if shard == PLAN_ONLY:
        return f"the {what} is planned, but nothing was trained; {progress}"
    to_do = "run the same command without --shard to write the tables"
    if what == "search":
        to_do = f"run the command of every shard again to train with the chosen settings, and then {to_do}"
    said = f"shard {shard[0]}/{shard[1]} of the {what} is finished"
    if finished:
        return f"{said}, and so are all others; {to_do}"
    return f"{said}, but other shards are not ({progress}). When all are finished, {to_do}"


def train_final_runs(job: Job, method: Method, runs: Sequence[Run], folder: Path) -> list[FittedRun]:
    """Train the runs of a final model with the engine of a job; those that are finished are not trained again.

    There is one run for each seed. Validation sites may be named by the user, so they are part of the fold's name.
    """
    from .train import load_fitted_run

    document = describe_job(job, {method.name: describe_method(method)}, [run.seed for run in runs])
    planned, names = {}, set()
    for run in runs:
        chosen_at = ", ".join(run.fold.validation_sites)
        name = f"{run.fold.name}, validated at {chosen_at}" if chosen_at else run.fold.name
        key = run_key(document, method.name, dataclasses.asdict(method.settings), name, run.seed)
        planned[key] = PlannedRun(method, run, key)
        names.add(name)
    plan = JobPlan(dataclasses.replace(document, folds=tuple(sorted(names))), planned)
    with open_job(job, plan, folder, quiet=True) as (plan, store):
        train_stacks(job, plan, store)
        return [load_fitted_run(planned, store) for planned in plan.runs.values()]


# ---------------------------------------------------------------- a search, and the job with what it chose


Drawn = Mapping[str, Sequence[tuple[dict[str, Any], "Method"]]]
"""Configurations of a search, by name of the method: the values of its tuned settings, and the method with them."""


def tune_job(
    spec: JobSpec,
    out: Path,
    *,
    budget: int = 4,
    oracle: bool = False,
    progress: Progress = silent,
    say: Say = ignore,
) -> StoredJob | None:
    """Try configurations of methods, choose one for each fold, and evaluate the choice with all seeds.

    A shard trains its part of the search and, once all of the search is finished, of the job; None is returned.
    """
    job, drawn = _start_search(spec, out, budget, progress, say)
    # until its plan is written, the job would copy runs that the search computed on another device
    planned = (out / PLAN).is_file()
    with open_job(job, _plan_search(job, drawn), out / SEARCH, allow_other_device=planned) as (plan, store):
        train_stacks(job, plan, store, allow_divergence=True)
        if job.shard is not None and not all(key in store for key in plan.runs):
            say(describe_shard(job.shard, False, out, "search"))
            return None
        record, table = _choose_settings(job, plan, store, drawn, budget=budget, oracle=oracle)
        if job.shard is None:  # every shard makes the same choice; the command without one stores it
            with reserve_folder(job, out):
                record.write(out, table)
    job = job.with_spec(tuned=record)
    plan = build_plan(job, list(drawn))
    return _execute_or_train_shard(job, plan, out, quiet=True, finished_runs=out / SEARCH / RUNS)


def _start_search(spec: JobSpec, out: Path, budget: int, progress: Progress, say: Say) -> tuple[Job, Drawn]:
    """Check a search and draw its configurations; settings that the user gave are not tuned."""
    require_number(budget, Budget, "budget")
    if spec.protocol == "kfold" and spec.seeds > 1:
        reason = "under k-fold with several seeds, settings would be chosen on test scans"
        raise BrioError(f"{reason}; tune with --seeds 1, or with --protocol loso")
    if not (out / SEARCH).is_dir() and read_earlier_plan(out) is not None:
        raise BrioError(f"{out}: contains a job that 'brio tune' did not write; choose another --out")
    job, names = start_job(spec, progress, say)
    drawn = {}
    for name in names:
        given = job.settings_of(name)
        tried = draw_configurations(make_method(name, given).settings, budget, {**find_method(name).fixed, **given})
        drawn[name] = [(values, make_method(name, {**given, **values})) for values in tried]
        if len(tried) == 1 < budget:
            say(f"method '{name}' has no settings to tune and is run with its current settings")
    return job, drawn


def _plan_search(job: Job, drawn: Drawn) -> JobPlan:
    """Plan the runs of a search: every configuration with seed 0."""
    described = {
        name: dataclasses.replace(describe_method(tried[0][1]), configurations=tuple(values for values, _ in tried))
        for name, tried in drawn.items()
    }
    return plan_runs(job, described, lambda name, fold: [method for _, method in drawn[name]], [0])


def _choose_settings(
    job: Job, plan: JobPlan, store: RunStore, drawn: Drawn, *, budget: int, oracle: bool = False
) -> tuple[TuningRecord, pd.DataFrame]:
    """Choose for each fold the configuration with the best validation AUC, the first where they tie; tabulate all."""
    numbered = {
        method_identity(method): (number, values)
        for tried in drawn.values()
        for number, (values, method) in enumerate(tried)
    }
    rows = []
    for key, planned in plan.runs.items():
        number, values = numbered[method_identity(planned.method)]
        row = store.read_record(key).row
        place = (planned.method.name, planned.run.fold.name, number)
        rows.append((*place, json.dumps(values, sort_keys=True), row.validation_auc, row.auc))
    table = pd.DataFrame(rows, columns=["method", "fold", "configuration", "values", "validation_auc", "test_auc"])
    scores = table.set_index(["method", "fold", "configuration"])["validation_auc"].astype(float).unstack()
    choices: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in drawn}
    for (name, fold), tries in scores.iterrows():
        if tries.isna().all():
            raise BrioError(
                f"method '{name}', fold {fold}: no configuration has a validation AUC (validation scans of only one "
                "class, or training diverged); choose other folds with --fold, or use 'brio run'"
            )
        choices[name][fold] = drawn[name][int(tries.idxmax())][0]
    table["chosen"] = [choices[r.method][r.fold] == json.loads(r.values) for r in table.itertuples(index=False)]
    reached = None
    if oracle:  # mean over folds of the best test AUC of any configuration
        reached = table.groupby(["method", "fold"])["test_auc"].max().groupby("method").mean().to_dict()
    else:
        table = table.drop(columns="test_auc")
    record = TuningRecord(
        budget=budget,
        cohort=job.cohort.name,
        atlas=job.cohort.atlas.name,
        protocol=job.protocol_identity,
        validation_sites={p.run.fold.name: p.run.fold.validation_sites for p in plan.runs.values()},
        # the settings that are not tuned: those of the user, and those that few sites ask for
        given_settings=job.spec.method_settings | {k: v for name in drawn for k, v in job.settings_of(name).items()},
        tried={name: len(tried) for name, tried in drawn.items()},
        choices=choices,
        oracle=reached,
        fingerprint=job.cohort.fingerprint,
    )
    return record, table

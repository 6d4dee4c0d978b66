"""Tuning: the same number of configurations for every method, chosen on validation scans inside each fold.

What was chosen is stored in a :class:`brio.results.TuningRecord` and goes, fold by fold, to other jobs.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from ..console import Progress, silent
from ..errors import BrioError
from ..methods import find_method, make_method
from ..protocol import Fold
from ..results import RunStore, TuningRecord
from ..results.files import PLAN, RUNS, SEARCH, TUNING
from ..settings import Budget, draw_configurations, require_number
from .execute import FinishedJob, execute_plan, start_job, train_stacks
from .job import Job, Say, ignore
from .plan import JobPlan, MethodSchedule, build_plan, describe_method, method_identity, plan_runs
from .resume import open_job, read_earlier_plan, reserve_folder
from .spec import JobSpec

if TYPE_CHECKING:
    from ..training import Method


class Configuration(NamedTuple):
    """Values of the tuned settings of a method, and the method with them."""

    values: dict[str, Any]
    method: Method


Drawn = Mapping[str, Sequence[Configuration]]
"""Configurations of a search, by name of the method."""


def tune_job(
    spec: JobSpec,
    out: Path,
    *,
    budget: int = 4,
    oracle: bool = False,
    progress: Progress = silent,
    say: Say = ignore,
) -> FinishedJob:
    """Try configurations of methods, choose one for each fold, and evaluate the choice with all seeds."""
    job, drawn = start_search(spec, out, budget, progress, say)
    record = _search(job, drawn, out, budget, oracle)
    job, plan = plan_choice(job, record, list(drawn))
    return FinishedJob(job, execute_plan(job, plan, out, quiet=True, finished_runs=out / SEARCH / RUNS))


def start_search(
    spec: JobSpec, out: Path, budget: int, progress: Progress = silent, say: Say = ignore
) -> tuple[Job, Drawn]:
    """Check a search and draw its configurations."""
    require_number(budget, Budget, "budget")
    if spec.protocol == "kfold" and spec.seeds > 1:
        raise BrioError(
            "under k-fold another seed deals other scans to a fold, so test scans would choose settings; tune with "
            "--seeds 1, or with --protocol loso"
        )
    if not (out / SEARCH).is_dir() and read_earlier_plan(out) is not None:
        raise BrioError(f"{out}: belongs to another job, not to a search: 'brio run' wrote it; choose another --out")
    job, names = start_job(spec, progress, say)
    drawn = {name: _draw_configurations(name, job.settings_of(name), budget) for name in names}
    for name, tried in drawn.items():
        if len(tried) == 1 < budget:
            say(f"method '{name}' has nothing to tune and is run with the settings it has")
    return job, drawn


def plan_search(job: Job, drawn: Drawn) -> JobPlan:
    """Plan the runs of a search: every configuration with seed 0."""
    return plan_runs(job, {name: _try_all(tried) for name, tried in drawn.items()}, [0])


def plan_choice(job: Job, record: TuningRecord, names: Sequence[str]) -> tuple[Job, JobPlan]:
    """Plan the runs with the settings that a search chose."""
    job = job.with_spec(tuned=record)
    return job, build_plan(job, names, plan_tuned_methods(job, names))


def _collect_given_settings(job: Job, names: Sequence[str]) -> dict[str, Any]:
    """Collect the settings that are not tuned: those of the user, and those that few sites ask for."""
    return job.spec.method_settings | {key: value for name in names for key, value in job.settings_of(name).items()}


def _draw_configurations(name: str, given: dict[str, Any], budget: int) -> list[Configuration]:
    """Draw the configurations of a method; settings that the user gave are not tuned."""
    drawn = draw_configurations(make_method(name, given).settings, budget, {**find_method(name).fixed, **given})
    return [Configuration(values, make_method(name, {**given, **values})) for values in drawn]


def _search(job: Job, drawn: Drawn, folder: Path, budget: int, oracle: bool) -> TuningRecord:
    """Train every configuration with seed 0, choose one for each fold, and store what was tried."""
    # until its plan is written, the job would copy runs that the search computed on another device
    planned = (folder / PLAN).is_file()
    with open_job(job, plan_search(job, drawn), folder / SEARCH, allow_other_device=planned) as (plan, store):
        train_stacks(job, plan, store, allow_divergence=True)
        record, table = choose_settings(job, plan, store, drawn, budget=budget, oracle=oracle)
        with reserve_folder(job, folder):
            record.write(folder, table)
    return record


def choose_settings(
    job: Job, plan: JobPlan, store: RunStore, drawn: Drawn, *, budget: int, oracle: bool = False
) -> tuple[TuningRecord, pd.DataFrame]:
    """Choose a configuration for each fold from the finished runs of a search; nothing is written.

    Returns table: One row per method, fold and configuration.
    """
    table = _tabulate(plan, store, drawn, oracle)
    choices = {name: _choose(table[table["method"] == name], tried) for name, tried in drawn.items()}
    table["chosen"] = [choices[r.method][r.fold] == json.loads(r.values) for r in table.itertuples(index=False)]
    record = TuningRecord(
        budget=budget,
        cohort=job.cohort.name,
        atlas=job.cohort.atlas.name,
        protocol=job.protocol_identity,
        validation_sites={p.run.fold.name: p.run.fold.validation_sites for p in plan.runs.values()},
        given_settings=_collect_given_settings(job, list(drawn)),
        tried={name: len(tried) for name, tried in drawn.items()},
        choices=choices,
        oracle=_score_oracle(table) if oracle else None,
    )
    return record, table


def _try_all(tried: Sequence[Configuration]) -> MethodSchedule:
    description = dataclasses.replace(
        describe_method(tried[0].method), configurations=tuple(one.values for one in tried)
    )
    return MethodSchedule(description, lambda fold: [one.method for one in tried])


def _tabulate(plan: JobPlan, store: RunStore, drawn: Drawn, oracle: bool) -> pd.DataFrame:
    """One row per method, fold and configuration."""
    numbered = {
        method_identity(one.method): (name, k, one.values)
        for name, tried in drawn.items()
        for k, one in enumerate(tried)
    }
    rows = []
    for key, planned in plan.runs.items():
        name, number, values = numbered[method_identity(planned.method)]
        row = store.read_record(key).row
        rows.append(
            {
                "method": name,
                "fold": planned.run.fold.name,
                "configuration": number,
                "values": json.dumps(values, sort_keys=True),
                "validation_auc": row.validation_auc,
                **({"test_auc": row.auc} if oracle else {}),
            }
        )
    return pd.DataFrame(rows)


def _choose(table: pd.DataFrame, tried: Sequence[Configuration]) -> dict[str, dict[str, Any]]:
    """Choose the configuration with the best validation AUC for each fold; the first where they tie."""
    choices = {}
    for fold, rows in table.groupby("fold", sort=True):
        ordered = rows.sort_values("configuration")
        validation_auc = ordered["validation_auc"].to_numpy(dtype=float)
        if np.isnan(validation_auc).all():
            raise BrioError(f"fold {fold}: no configuration has a score on the validation scans")
        best = int(np.nanargmax(validation_auc))
        choices[str(fold)] = tried[int(ordered["configuration"].iloc[best])].values
    return choices


def _score_oracle(table: pd.DataFrame) -> dict[str, float]:
    """Mean over folds of the best test AUC of any configuration, by method."""
    best = table.groupby(["method", "fold"])["test_auc"].max()
    return {str(name): float(value) for name, value in best.groupby("method").mean().items()}


def plan_tuned_methods(job: Job, names: Sequence[str]) -> dict[str, MethodSchedule]:
    """Plan those methods that the job has tuned settings for; the others are named, and run with their own."""
    record = job.spec.tuned
    if record is None:
        return {}
    _check_test_scans(record, job)
    tuned = [name for name in names if name in record.choices]
    if not tuned:
        raise BrioError(f"none of {', '.join(names)} was tuned there; known: {', '.join(record.choices)}")
    if len(tuned) < len(names):
        untuned = [name for name in names if name not in record.choices]
        job.say(f"not tuned there, run with their own settings: {', '.join(untuned)}")
    return {name: _plan_tuned_method(record, name, job) for name in tuned}


def _check_test_scans(record: TuningRecord, job: Job) -> None:
    """Raise an error if scans that chose settings could be test scans of the job."""
    here = job.protocol_identity
    if here["name"] != record.protocol["name"]:
        raise BrioError(f"was tuned under {record.protocol['name']}, not under {here['name']}; tune again")
    if here["name"] == "kfold" and (job.spec.seeds > 1 or here != record.protocol):
        raise BrioError(
            "under k-fold another seed or another split deals other scans to a fold, so its test scans may have "
            "chosen its settings; use one seed and the same cohort and folds, or loso"
        )


def _plan_tuned_method(record: TuningRecord, name: str, job: Job) -> MethodSchedule:
    """Run a method with the settings chosen for each fold; settings that the user gives stay as they are."""
    own = make_method(name, job.settings_of(name))
    description = dataclasses.replace(describe_method(own), tuned=record.choice(name))
    return MethodSchedule(description, _tuned_candidates(record, name, job))


def _tuned_candidates(record: TuningRecord, name: str, job: Job) -> Callable[[Fold], list[Method]]:
    then = dataclasses.replace(job.spec, settings=record.given_settings).settings_of(name)
    now = job.settings_of(name)
    made: dict[str, Method] = {}

    def candidates(fold: Fold) -> list[Method]:
        if fold.name not in record.choices[name]:
            raise BrioError(f"method '{name}' was not tuned for fold {fold.name}; tune it with the same folds")
        if record.protocol["name"] == "loso" and set(fold.test_sites) & set(record.validation_sites[fold.name]):
            raise BrioError(f"fold {fold.name}: its test site chose its settings; tune again")
        values = {**then, **record.choices[name][fold.name], **now}
        key = json.dumps(values, sort_keys=True)
        if key not in made:
            try:
                made[key] = make_method(name, values)
            except BrioError as error:
                raise BrioError(
                    f"{TUNING}: the choice of '{name}' for fold {fold.name}: {error}; tune again"
                ) from error
        return [made[key]]

    return candidates

"""Which runs a job has, under which keys, and how they are stacked."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..cohort import Cohort
from ..device import memory_budget
from ..errors import BrioError
from ..formatting import format_count
from ..methods import find_method, make_method
from ..protocol import FOLD_RULE, Fold, count_inner_folds, list_fold_names, make_folds
from ..results import Plan, PlannedMethod, RunStore, TuningRecord
from ..results.files import TUNING
from ..results.store import remove_checkpoint
from ..version import __version__
from .job import Job, check_folds, check_harmonise, check_method, check_sites

if TYPE_CHECKING:
    from ..connectome import Connectomes
    from ..training import Method, MethodFacts, Run

MOST_RUNS = 100_000
"""Runs that one job may have; a plan with more would take hours to write."""


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """One run of one method."""

    method: Method  # with the settings of this run
    run: Run  # fold and seed
    key: str  # the name under which its record is stored, see run_key

    def count_trainings(self, cohort: Cohort) -> int:
        """Count the trainings of the run: one, and one for each inner fold that chooses its number of epochs."""
        by_inner_folds = self.method.facts.chooses_epochs_by_inner_folds
        return 1 + (count_inner_folds(cohort, self.run.fold) if by_inner_folds else 0)


@dataclass(frozen=True, eq=False)
class JobPlan:
    """The plan of a job and its runs."""

    document: Plan  # what plan.json holds. It has stacks once they are decided (assign_stacks)
    runs: dict[str, PlannedRun]  # by key

    @property
    def facts(self) -> dict[str, MethodFacts]:
        """The facts that its methods declare about themselves."""
        return {planned.method.name: planned.method.facts for planned in self.runs.values()}

    def name_stack(self, number: int) -> str:
        """Name a stack, numbered from 1, by its method and folds."""
        stacks = self.document.stacks
        runs = [self.runs[key] for key in stacks[number - 1]]
        names = list(dict.fromkeys(planned.run.fold.name for planned in runs))
        folds = f"fold {names[0]}" if len(names) == 1 else f"folds {names[0]} to {names[-1]}"
        return f"{runs[0].method.name}, {folds}, stack {number} of {len(stacks)}"

    def estimate_costs(self, cohort: Cohort) -> dict[int, float]:
        """Estimate the cost of every stack, by number, in epochs of a plain network; only ratios matter."""
        costs = {k: run.method.facts.relative_cost * run.count_trainings(cohort) for k, run in self.runs.items()}
        return {n: sum(costs[key] for key in stack) for n, stack in enumerate(self.document.stacks, 1)}

    def close_if_finished(self, number: int, store: RunStore) -> bool:
        """Return whether a stack is finished; the checkpoint of one whose process died just before is removed."""
        stack = self.document.stacks[number - 1]
        finished = all(key in store for key in stack)
        if finished:
            remove_checkpoint(store.checkpoint_path(stack))
        return finished


def describe_method(method: Method) -> PlannedMethod:
    """Describe a method for the plan."""
    code_hash = find_method(method.name).code
    return PlannedMethod(method.version, dataclasses.asdict(method.settings), code_hash or None)


def build_plan(job: Job, names: Sequence[str]) -> JobPlan:
    """Plan the runs of some methods over the seeds and folds of a job; stacks are decided separately.

    Methods that a search has tuned have the settings that it chose for each fold.
    """
    methods = {name: make_method(name, job.settings_of(name)) for name in names}
    described = {name: describe_method(method) for name, method in methods.items()}
    record = job.spec.tuned
    if record is None:
        return plan_runs(job, described, lambda name, fold: [methods[name]], range(job.spec.seeds))
    for name in _check_tuning(job, record, names):
        described[name] = dataclasses.replace(described[name], tuned=record.choice(name))
    made: dict[str, Method] = {}

    def choose(name: str, fold: Fold) -> list[Method]:
        if name not in record.choices:
            return [methods[name]]
        values = _read_choice(job, record, name, fold)
        key = json.dumps([name, values], sort_keys=True)
        if key not in made:
            try:
                made[key] = make_method(name, values)
            except BrioError as error:
                where = f"the choice of '{name}' for fold {fold.name}"
                raise BrioError(f"{TUNING}: {where}: {error}; tune again") from error
        return [made[key]]

    return plan_runs(job, described, choose, range(job.spec.seeds))


def _check_tuning(job: Job, record: TuningRecord, names: Sequence[str]) -> list[str]:
    """Return those methods that a search has tuned; the others are named, and run with their own settings."""
    here = job.protocol_identity
    if here["name"] != record.protocol["name"]:
        raise BrioError(
            f"settings were tuned with --protocol {record.protocol['name']}, but this job has --protocol "
            f"{here['name']}; tune again with the protocol of the job"
        )
    if here["name"] == "kfold" and (job.spec.seeds > 1 or here != record.protocol):
        problem = "under k-fold, settings tuned with another seed or split may have been chosen on these test scans"
        raise BrioError(
            f"{problem}; use one seed with the cohort and folds of the tuning, or tune and run with --protocol loso"
        )
    tuned = [name for name in names if name in record.choices]
    if not tuned:
        raise BrioError(
            f"there are no tuned settings for {', '.join(names)}, only for {', '.join(record.choices)}; tune "
            "the methods of this job, or leave out --tuned"
        )
    then, now = (record.cohort, record.atlas), (job.cohort.name, job.cohort.atlas.name)
    if then != now or record.fingerprint not in (None, job.cohort.fingerprint):
        searched = f"{record.cohort} ({record.atlas})" if then != now else "other scans or labels of this cohort"
        job.say(f"warning: the settings were tuned on {searched}, not on the scans of this job")
    if len(tuned) < len(names):
        untuned = [name for name in names if name not in record.choices]
        job.say(
            "these methods were not tuned; they use the settings that you gave, or their defaults: "
            f"{', '.join(untuned)}"
        )
    return tuned


def _read_choice(job: Job, record: TuningRecord, name: str, fold: Fold) -> dict[str, Any]:
    """Return the settings that a search chose for a fold; those that the user gives stay as they are."""
    if fold.name not in record.choices[name]:
        raise BrioError(f"method '{name}' was not tuned for fold {fold.name}; tune it with the same folds")
    if record.protocol["name"] == "loso" and set(fold.test_sites) & set(record.validation_sites[fold.name]):
        raise BrioError(f"fold {fold.name}: its settings were chosen on its test site; tune again")
    then = dataclasses.replace(job.spec, settings=record.given_settings).settings_of(name)
    return {**then, **record.choices[name][fold.name], **job.settings_of(name)}


def plan_runs(
    job: Job,
    methods: dict[str, PlannedMethod],
    choose: Callable[[str, Fold], Sequence[Method]],
    seeds: Sequence[int],
) -> JobPlan:
    """Plan the runs of described methods; ``choose`` gives a method with its settings, one or several, for a fold."""
    from ..training import Run

    spec, cohort = job.spec, job.cohort
    check_sites(cohort, spec)
    document = describe_job(job, methods, seeds)
    names = spec.folds or list_fold_names(cohort, spec.protocol, job.protocol_settings)
    n_runs = sum(len(m.configurations or ()) or 1 for m in methods.values()) * len(names) * len(seeds)
    if n_runs > MOST_RUNS:
        counts = {"method": len(methods), "fold": len(names), "seed": len(seeds)}
        parts = ", ".join(format_count(n, word) for word, n in counts.items())
        problem = f"this job would have {n_runs:,} runs ({parts}), but at most {MOST_RUNS:,} are allowed"
        raise BrioError(f"{problem}; split it into several jobs")
    folds_of = {seed: make_folds(cohort, spec.protocol, seed, job.protocol_settings) for seed in seeds}
    check_folds(spec.folds or (), [fold.name for fold in folds_of[seeds[0]]])
    runs: dict[str, PlannedRun] = {}
    for name in methods:
        for seed in seeds:
            for fold in folds_of[seed]:
                if spec.folds is None or fold.name in spec.folds:
                    for method in choose(name, fold):
                        key = run_key(document, name, dataclasses.asdict(method.settings), fold.name, seed)
                        runs[key] = PlannedRun(method, Run(fold, seed), key)
    if not runs:
        raise BrioError("nothing to run: give at least one method and one fold")
    folds = [planned.run.fold for planned in runs.values()]
    for method in {method_identity(planned.method): planned.method for planned in runs.values()}.values():
        check_method(method, cohort, folds, spec.harmonisation_rule, job.too_few_sites)
    check_harmonise(cohort, spec.harmonisation_rule, folds)
    return JobPlan(document, runs)


def describe_job(job: Job, methods: dict[str, PlannedMethod], seeds: Sequence[int]) -> Plan:
    """Describe everything that decides the numbers of a job."""
    import torch

    spec, cohort, audit = job.spec, job.cohort, job.audit
    on_cpu = job.device.torch_device.type == "cpu"
    return Plan(
        brio=__version__,
        cohort=cohort.name,
        atlas=cohort.atlas.name,
        label=spec.label,
        fingerprint_before_exclusions=job.cohort_before_exclusions.fingerprint,
        fingerprint=cohort.fingerprint,
        n_scans=len(cohort),
        excluded={} if audit is None else audit.exclusions,
        audit=None if audit is None else dataclasses.asdict(spec.audit_rules),
        methods=methods,
        protocol=spec.protocol,
        protocol_settings=dataclasses.asdict(job.protocol_settings),
        fold_rule=FOLD_RULE if spec.protocol == "kfold" else None,
        harmonise=None if spec.harmonisation_rule.kind == "none" else dataclasses.asdict(spec.harmonisation_rule),
        seeds=tuple(seeds),
        folds=None if spec.folds is None else tuple(sorted(spec.folds)),
        device=job.device.name,
        threads=torch.get_num_threads() if on_cpu and any(map(_depends_on_threads, methods)) else None,
    )


def _depends_on_threads(name: str) -> bool:
    """Whether the number of threads may change the last digits of a method; linear models are fitted on one core."""
    from ..methods.linear.base import LinearMethod

    entry = find_method(name)
    return bool(entry.file) or not issubclass(entry.method_class, LinearMethod)


def run_key(plan: Plan, method: str, settings: Mapping[str, Any], fold: str, seed: int) -> str:
    """Compute the key of a run, which names its record.

    It is a hash of the cohort, the method (version, settings, code of a user's own file), the protocol, the
    harmonisation, the fold and the seed. Device and threads are not part of it.
    """
    identity = {
        "cohort": plan.fingerprint,
        "method": method,
        "version": plan.methods[method].version,
        "settings": settings,
        "protocol": plan.protocol,
        "protocol_settings": plan.protocol_settings,
        "fold": fold,
        "seed": seed,
    }
    code = plan.methods[method].code
    further = {"fold_rule": plan.fold_rule, "harmonise": plan.harmonise, "code": code}  # not of every run
    identity |= {name: value for name, value in further.items() if value is not None}
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:20]


def method_identity(method: Method) -> str:
    """Return name and settings of a method as one text; methods with the same text are the same."""
    return json.dumps([method.name, dataclasses.asdict(method.settings)], sort_keys=True)


def assign_stacks(plan: JobPlan, connectomes: Connectomes, runs_per_stack: int | None) -> JobPlan:
    """Decide which runs train together: those of a method with the same settings, as many as memory allows.

    The runs of a method are spread over as few stacks as possible, all but the last equally large. Under harmonisation
    every stack holds one run, because each run has connectomes of its own.
    """
    keys_by_method: dict[str, list[str]] = {}
    for planned in plan.runs.values():
        keys_by_method.setdefault(method_identity(planned.method), []).append(planned.key)
    stacks: list[tuple[str, ...]] = []
    for keys in keys_by_method.values():
        runs = [plan.runs[key] for key in keys]
        side_by_side = [max(1, one.count_trainings(connectomes.cohort) - 1) for one in runs]  # inner folds
        sizes = [n * one.method.bytes_per_run(connectomes, one.run) for n, one in zip(side_by_side, runs, strict=True)]
        max_runs = runs_per_stack or max(1, memory_budget(connectomes.device) // max(1, *sizes))
        n_stacks = -(-len(keys) // max_runs)
        size = 1 if plan.document.harmonise is not None else -(-len(keys) // n_stacks)
        stacks.extend(tuple(keys[i : i + size]) for i in range(0, len(keys), size))
    return dataclasses.replace(plan, document=dataclasses.replace(plan.document, stacks=tuple(stacks)))

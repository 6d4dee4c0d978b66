"""Which runs a job has, under which keys, and how they are stacked."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..connectome import Connectomes
from ..device import memory_budget
from ..errors import BrioError, nearest
from ..methods import find_method
from ..protocol import Fold, make_folds
from ..results import Plan, PlannedMethod
from ..training import Method, MethodFacts, Run
from ..version import __version__
from .checks import check_harmonise, check_method
from .job import Job
from .spec import make_methods

__all__ = ["JobPlan", "MethodRuns", "PlannedRun", "assign_stacks", "build_plan", "describe_method", "run_key"]


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """One run of one method, and the key under which its result is stored."""

    method: Method
    run: Run
    key: str


@dataclass(frozen=True, eq=False)
class MethodRuns:
    """How a method is run.

    Attributes
    ----------
    description : PlannedMethod
        As the plan tells it.
    candidates : function of a fold
        The method as it is run on a fold: once, or once for each configuration that is tried.
    """

    description: PlannedMethod
    candidates: Callable[[Fold], list[Method]]

    @classmethod
    def of(cls, method: Method) -> MethodRuns:
        """Run a method with the same settings on every fold."""
        return cls(describe_method(method), lambda fold: [method])


@dataclass(frozen=True, eq=False)
class JobPlan:
    """The plan of a job and its runs, by key.

    ``stored`` is what ``plan.json`` holds; it has stacks once they are decided (:func:`assign_stacks`).
    """

    stored: Plan
    runs: dict[str, PlannedRun]

    @property
    def facts(self) -> dict[str, MethodFacts]:
        """What its methods declare about themselves."""
        return {planned.method.name: planned.method.facts for planned in self.runs.values()}


def describe_method(method: Method) -> PlannedMethod:
    """Describe a method for the plan."""
    code = find_method(method.name).code
    return PlannedMethod(method.version, dataclasses.asdict(method.settings), code or None)


def build_plan(job: Job, names: Sequence[str], special: Mapping[str, MethodRuns] | None = None) -> JobPlan:
    """Plan the runs of some methods over the seeds and folds of a job; stacks are decided separately.

    Parameters
    ----------
    job : Job
    names : names of methods
    special : dict of MethodRuns, optional
        Methods that are not run with the same settings on every fold.

    Raises
    ------
    BrioError
        If a fold is unknown, or a method cannot be run on the cohort or under the protocol.
    """
    special = special or {}
    methods = make_methods(names, job.spec.method_settings)
    runs = {name: special.get(name) or MethodRuns.of(method) for name, method in methods.items()}
    return plan_runs(job, runs, job.seeds)


def plan_runs(job: Job, methods: Mapping[str, MethodRuns], seeds: Sequence[int]) -> JobPlan:
    """Plan the runs of methods that may have other settings on every fold.

    Parameters
    ----------
    job : Job
    methods : dict of MethodRuns
    seeds : ints
    """
    spec, cohort = job.spec, job.cohort
    stored = _describe_job(job, {name: one.description for name, one in methods.items()}, seeds)
    folds_of = {seed: make_folds(cohort, spec.protocol, seed, spec.protocol_settings) for seed in seeds}
    known = {fold.name for fold in folds_of[seeds[0]]}
    for name in spec.folds or ():
        if name not in known:
            raise BrioError(f"fold '{name}' is unknown; {nearest(name, known)}")
    runs: dict[str, PlannedRun] = {}
    for one in methods.values():
        for seed in seeds:
            for fold in folds_of[seed]:
                if spec.folds is None or fold.name in spec.folds:
                    for method in one.candidates(fold):
                        key = run_key(stored, method, fold, seed)
                        runs[key] = PlannedRun(method, Run(fold, seed), key)
    if not runs:
        raise BrioError("there is nothing to run: no method, or no fold, was asked for")
    folds = [planned.run.fold for planned in runs.values()]
    for method in {identify_method(planned.method): planned.method for planned in runs.values()}.values():
        check_method(method, cohort, folds, spec.harmonise)
    check_harmonise(cohort, spec.harmonise, folds)
    return JobPlan(stored, runs)


def _describe_job(job: Job, methods: dict[str, PlannedMethod], seeds: Sequence[int]) -> Plan:
    spec, cohort, audited = job.spec, job.cohort, job.audit
    return Plan(
        brio=__version__,
        cohort=cohort.name,
        atlas=cohort.atlas.name,
        fingerprint_before_exclusions=job.whole.fingerprint,
        fingerprint=cohort.fingerprint,
        n_scans=len(cohort),
        excluded={} if audited is None else {p: tuple(reasons) for p, reasons in audited.exclusions.items()},
        audit=None if audited is None else dataclasses.asdict(spec.audit_rules),
        methods=methods,
        protocol=spec.protocol,
        protocol_settings=dataclasses.asdict(spec.protocol_settings),
        harmonise=None if spec.harmonise.kind == "none" else dataclasses.asdict(spec.harmonise),
        seeds=tuple(seeds),
        folds=None if spec.folds is None else tuple(sorted(spec.folds)),
        device=job.device.name,
        threads=torch.get_num_threads() if job.device.torch_device.type == "cpu" else None,
    )


def run_key(plan: Plan, method: Method, fold: Fold, seed: int) -> str:
    """Compute the key of a run: a hash of cohort, method, its version and settings, protocol, fold and seed.

    Parameters
    ----------
    plan : Plan
        Names the cohort, the protocol and the harmonisation.
    method : Method
    fold : Fold
    seed : int
    """
    made_of: dict[str, Any] = {
        "cohort": plan.fingerprint,
        "method": method.name,
        "version": method.version,
        "settings": dataclasses.asdict(method.settings),
        "protocol": plan.protocol,
        "protocol_settings": plan.protocol_settings,
        "fold": fold.name,
        "seed": seed,
    }
    if plan.harmonise is not None:
        made_of["harmonise"] = plan.harmonise
    if find_method(method.name).code:
        made_of["code"] = find_method(method.name).code
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:20]


def identify_method(method: Method) -> str:
    """Return name and settings of a method as one text; methods with the same text are the same."""
    return json.dumps([method.name, dataclasses.asdict(method.settings)], sort_keys=True)


def assign_stacks(plan: JobPlan, connectomes: Connectomes, runs_per_stack: int | None) -> JobPlan:
    """Decide which runs train together: those of a method with the same settings, as many as memory allows.

    Harmonised runs stand alone, since each has connectomes of its own.

    Parameters
    ----------
    plan : JobPlan
    connectomes : Connectomes
    runs_per_stack : int or None
        Largest number of runs in a stack; None for what memory allows.
    """
    alike: dict[str, list[str]] = {}
    for planned in plan.runs.values():
        alike.setdefault(identify_method(planned.method), []).append(planned.key)
    stacks: list[tuple[str, ...]] = []
    for keys in alike.values():
        need = max(plan.runs[key].method.bytes_per_run(connectomes, plan.runs[key].run) for key in keys)
        most = runs_per_stack or max(1, memory_budget(connectomes.device) // max(1, need))
        count = -(-len(keys) // most)
        size = 1 if plan.stored.harmonise is not None else -(-len(keys) // count)
        stacks.extend(tuple(keys[i : i + size]) for i in range(0, len(keys), size))
    return dataclasses.replace(plan, stored=dataclasses.replace(plan.stored, stacks=tuple(stacks)))

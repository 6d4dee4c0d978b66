"""What a job is made of, which runs it has, and how they are stacked."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..cohort import Audit, AuditRules, Cohort
from ..cohort.covariates import read_covariates
from ..connectome import Connectomes, HarmonisationRule
from ..device import ComputeDevice, memory_budget
from ..errors import BrioError, nearest
from ..methods import find_method, list_methods, make_method
from ..protocol import Fold, ProtocolSettings, make_folds
from ..settings import replace_values
from ..training import Method, Run
from ..training.inputs import check_needs

__all__ = ["Candidates", "Plan", "PlannedRun", "all_asked", "method_settings", "named", "run_key", "split_settings"]

Candidates = Callable[[Fold], list[Method]]
"""A method as it is run on a fold: once, or once for each configuration that is tried."""


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """One run of one method, and the name under which its result is kept."""

    method: Method
    run: Run
    key: str


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything that decides the numbers of a job, written down before the first run.

    ``stacks`` lists the keys of the runs that train together; a job that was killed goes on with the same stacks.
    """

    facts: dict[str, Any]
    jobs: dict[str, PlannedRun]
    stacks: list[list[str]]
    harmonise: HarmonisationRule

    @property
    def document(self) -> dict[str, Any]:
        """The plan as it is written to ``plan.json``."""
        return {**self.facts, "stacks": self.stacks}


def all_asked(methods: Sequence[str] | str) -> bool:
    """Whether methods are not named, but asked for as ``all``."""
    return methods == "all" or list(methods) == ["all"]


def named(methods: Sequence[str] | str) -> list[str]:
    """Names of methods, each once; ``all`` is every one but variants of another one."""
    if all_asked(methods):
        return [e.name for e in list_methods() if not e.fixed]
    return [methods] if isinstance(methods, str) else list(dict.fromkeys(methods))


def split_settings(values: dict[str, str]) -> dict[str, dict[str, str]]:
    """Settings of the methods (under ``""``), of the protocol, the audit and the harmonisation (``audit.x``)."""
    parts: dict[str, dict[str, str]] = {"": {}, "protocol": {}, "audit": {}, "harmonise": {}}
    for name, value in values.items():
        room, _, key = name.rpartition(".")
        if room not in parts:
            known = " or ".join(f"'{p}.'" for p in parts if p)
            raise BrioError(f"setting '{name}' is unknown; settings with a dot begin with {known}")
        parts[room][key] = value
    return parts


def method_settings(names: Sequence[str], values: dict[str, Any]) -> dict[str, Method]:
    """The methods, each with the settings that it has and that its name does not fix.

    A setting that no method takes is an error that names the nearest one.
    """
    fields = {name: {f.name for f in dataclasses.fields(find_method(name).method_class.Settings)} for name in names}
    everything = set().union(*fields.values())
    for key in values:
        if key not in everything:
            raise BrioError(f"setting '{key}' is unknown to {', '.join(names)}; {nearest(key, everything)}")
        if not any(key in fields[name] and key not in find_method(name).fixed for name in names):
            fixed = find_method(next(name for name in names if key in fields[name]))
            raise BrioError(f"method '{fixed.name}' fixes '{key}' to {fixed.fixed[key]!r}")
    return {
        name: make_method(
            name, {k: v for k, v in values.items() if k in fields[name] and k not in find_method(name).fixed}
        )
        for name in names
    }


def run_key(facts: dict[str, Any], method: Method, fold: Fold, seed: int) -> str:
    """Name of a run: a hash of cohort, method, its version and settings, protocol, fold and seed."""
    made_of = {
        "cohort": facts["fingerprint"],
        "method": method.name,
        "version": method.version,
        "settings": dataclasses.asdict(method.settings),
        "protocol": facts["protocol"],
        "protocol_settings": facts["protocol_settings"],
        "fold": fold.name,
        "seed": seed,
    }
    if facts["harmonise"] is not None:
        made_of["harmonise"] = facts["harmonise"]
    if find_method(method.name).code:
        made_of["code"] = find_method(method.name).code
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:20]


def make_plan(
    cohort: Cohort,
    whole: Cohort,
    audit: Audit | None,
    rules: AuditRules,
    methods: dict[str, dict[str, Any]],
    candidates: dict[str, Candidates],
    protocol: str,
    protocol_settings: ProtocolSettings,
    harmonise: HarmonisationRule,
    seeds: Sequence[int],
    folds: Sequence[str] | None,
    device: ComputeDevice,
    version: str,
) -> Plan:
    """Plan the runs of every method over the folds and seeds of a protocol; stacks are decided separately.

    ``methods`` says in words what is run, ``candidates`` makes it for a fold.
    """
    facts: dict[str, Any] = {
        "brio": version,
        "cohort": cohort.name,
        "atlas": cohort.atlas.name,
        "fingerprint_before_exclusions": whole.fingerprint,
        "fingerprint": cohort.fingerprint,
        "n_scans": len(cohort),
        "excluded": {} if audit is None else audit.exclusions,
        "audit": None if audit is None else dataclasses.asdict(rules),
        "methods": methods,
        "protocol": protocol,
        "protocol_settings": dataclasses.asdict(protocol_settings),
        "harmonise": None if harmonise.kind == "none" else dataclasses.asdict(harmonise),
        "seeds": list(seeds),
        "folds": None if folds is None else sorted(folds),
        "device": device.name,
        "threads": torch.get_num_threads() if device.name == "cpu" else None,
    }
    jobs: dict[str, PlannedRun] = {}
    by_seed = {seed: make_folds(cohort, protocol, seed, protocol_settings) for seed in seeds}
    known = {f.name for f in by_seed[seeds[0]]}
    for name in folds or ():
        if name not in known:
            raise BrioError(f"fold '{name}' is unknown; {nearest(name, known)}")
    for made in candidates.values():
        for seed in seeds:
            for fold in by_seed[seed]:
                if folds is None or fold.name in folds:
                    for method in made(fold):
                        key = run_key(facts, method, fold, seed)
                        jobs[key] = PlannedRun(method, Run(fold, seed), key)
    if not jobs:
        raise BrioError("there is nothing to run: no method, or no fold, was asked for")
    for method in {_make(job.method): job.method for job in jobs.values()}.values():
        check_needs(cohort, method.needs, method.settings, f"method '{method.name}'")
        if harmonise.kind != "none" and ("bold" in method.needs or find_method(method.name).control):
            raise BrioError(f"method '{method.name}' does not read connectomes alone; harmonise.kind is not for it")
        if harmonise.kind != "none" and getattr(method.settings, "refit", False):
            raise BrioError(
                f"method '{method.name}': refit=true trains on validation sites, to which harmonisation is not fitted; "
                "leave out one of refit and harmonise.kind"
            )
        if method.needs_validation and not all(len(job.run.fold.validation) for job in jobs.values()):
            how = " (choose_by=source-sites does without)" if hasattr(method.settings, "choose_by") else ""
            raise BrioError(
                f"protocol.validation_sites=0: method '{method.name}' chooses its model by validation scans{how}; "
                "set protocol.validation_sites to 1 or more"
            )
    _check_harmonise(cohort, harmonise, [job.run.fold for job in jobs.values()])
    return Plan(facts, jobs, [], harmonise)


def _check_harmonise(cohort: Cohort, harmonise: HarmonisationRule, folds: Sequence[Fold]) -> None:
    """Raise what harmonisation would find wrong later, before anything is written."""
    if harmonise.kind == "none":
        if harmonise != HarmonisationRule():
            raise BrioError("harmonise.unseen and harmonise.covariates need harmonise.kind=combat")
        return
    if harmonise.covariates:
        read_covariates(cohort, ["sex", "age"], "harmonise.covariates")
    for fold in folds if harmonise.unseen == "raise" else ():
        unseen = sorted(set(cohort.sites.tolist()) - set(cohort.sites[fold.source].tolist()))
        if unseen:
            raise BrioError(
                f"fold {fold.name}: ComBat is not fitted to site {unseen[0]} (harmonise.unseen=raise); choose "
                "identity, pooled or unlabelled (transductive), or a protocol that holds out no site"
            )


def described(method: Method) -> dict[str, Any]:
    """A method in words, for the plan."""
    told = {"version": method.version, "settings": dataclasses.asdict(method.settings)}
    code = find_method(method.name).code
    return told | ({"code": code} if code else {})


def _make(method: Method) -> str:
    return json.dumps([method.name, dataclasses.asdict(method.settings)], sort_keys=True)


def stacked(plan: Plan, connectomes: Connectomes, runs_per_stack: int | None) -> Plan:
    """The plan with its stacks: all runs of a method with the same settings in as few as the memory allows.

    Harmonised runs stand alone: each has connectomes of its own.
    """
    alike: dict[str, list[str]] = {}
    for job in plan.jobs.values():
        alike.setdefault(_make(job.method), []).append(job.key)
    stacks: list[list[str]] = []
    for keys in alike.values():
        need = max(plan.jobs[key].method.bytes_per_run(connectomes, plan.jobs[key].run) for key in keys)
        room = runs_per_stack or max(1, memory_budget(connectomes.device) // max(1, need))
        count = -(-len(keys) // room)
        size = 1 if plan.harmonise.kind != "none" else -(-len(keys) // count)
        stacks.extend(keys[i : i + size] for i in range(0, len(keys), size))
    return dataclasses.replace(plan, stacks=stacks)


def protocol_of(values: dict[str, str]) -> ProtocolSettings:
    """Protocol settings from ``key=value`` text."""
    return replace_values(ProtocolSettings(), values, "protocol.")


def rules_of(values: dict[str, str]) -> AuditRules:
    """Audit rules from ``key=value`` text."""
    return replace_values(AuditRules(), values, "audit.")


def harmonise_of(values: dict[str, str]) -> HarmonisationRule:
    """Harmonisation settings from ``key=value`` text."""
    return replace_values(HarmonisationRule(), values, "harmonise.")

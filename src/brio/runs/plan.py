"""What a job is made of, which runs it has, and how they are stacked."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..cohort import Audit, AuditRules, Cohort
from ..connectome import Connectomes
from ..device import memory_budget
from ..errors import BrioError, nearest
from ..methods import entry, make_method
from ..protocol import Fold, ProtocolSettings, make_folds
from ..settings import with_values
from ..training import Method, Run

__all__ = ["Job", "Plan", "method_settings", "run_key", "split_settings"]


@dataclass(frozen=True, eq=False)
class Job:
    """One run of one method, and the name under which its result is kept."""

    method: str
    run: Run
    key: str


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything that decides the numbers of a job, written down before the first run.

    ``stacks`` lists the keys of the runs that train together; a job that was killed goes on with the same stacks.
    """

    facts: dict[str, Any]
    jobs: dict[str, Job]
    stacks: list[list[str]]
    methods: dict[str, Method]

    @property
    def document(self) -> dict[str, Any]:
        """The plan as it is written to ``plan.json``."""
        return {**self.facts, "stacks": self.stacks}


def split_settings(values: dict[str, str]) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Settings of the methods, of the protocol (``protocol.x``) and of the audit (``audit.x``)."""
    parts: dict[str, dict[str, str]] = {"": {}, "protocol": {}, "audit": {}}
    for name, value in values.items():
        room, _, key = name.rpartition(".")
        if room not in parts:
            raise BrioError(f"setting '{name}' is unknown; settings with a dot begin with 'protocol.' or 'audit.'")
        parts[room][key] = value
    return parts[""], parts["protocol"], parts["audit"]


def method_settings(names: Sequence[str], values: dict[str, Any]) -> dict[str, Method]:
    """The methods, each with the settings that it has and that its name does not fix.

    A setting that no method takes is an error that names the nearest one.
    """
    fields = {name: {f.name for f in dataclasses.fields(entry(name).make.Settings)} for name in names}
    everything = set().union(*fields.values())
    for key in values:
        if key not in everything:
            raise BrioError(f"setting '{key}' is unknown to {', '.join(names)}; {nearest(key, everything)}")
        if not any(key in fields[name] and key not in entry(name).fixed for name in names):
            fixed = entry(next(name for name in names if key in fields[name]))
            raise BrioError(f"method '{fixed.name}' fixes '{key}' to {fixed.fixed[key]!r}")
    return {
        name: make_method(name, {k: v for k, v in values.items() if k in fields[name] and k not in entry(name).fixed})
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
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:20]


def make_plan(
    cohort: Cohort,
    whole: Cohort,
    audit: Audit | None,
    rules: AuditRules,
    methods: dict[str, Method],
    protocol: str,
    protocol_settings: ProtocolSettings,
    seeds: Sequence[int],
    folds: Sequence[str] | None,
    device: torch.device,
    version: str,
) -> Plan:
    """Plan the runs of every method over the folds and seeds of a protocol; stacks are decided separately."""
    facts: dict[str, Any] = {
        "brio": version,
        "cohort": cohort.name,
        "atlas": cohort.atlas.name,
        "fingerprint_before_exclusions": whole.fingerprint,
        "fingerprint": cohort.fingerprint,
        "n_scans": len(cohort),
        "excluded": {} if audit is None else audit.exclusions,
        "audit": None if audit is None else dataclasses.asdict(rules),
        "methods": {
            name: {"version": m.version, "settings": dataclasses.asdict(m.settings)} for name, m in methods.items()
        },
        "protocol": protocol,
        "protocol_settings": dataclasses.asdict(protocol_settings),
        "seeds": list(seeds),
        "folds": None if folds is None else sorted(folds),
        "device": device.type,
        "threads": torch.get_num_threads() if device.type == "cpu" else None,
    }
    jobs: dict[str, Job] = {}
    by_seed = {seed: make_folds(cohort, protocol, seed, protocol_settings) for seed in seeds}
    known = {f.name for f in by_seed[seeds[0]]}
    for name in folds or ():
        if name not in known:
            raise BrioError(f"fold '{name}' is unknown; {nearest(name, known)}")
    for method in methods.values():
        for seed in seeds:
            for fold in by_seed[seed]:
                if folds is None or fold.name in folds:
                    key = run_key(facts, method, fold, seed)
                    jobs[key] = Job(method.name, Run(fold, seed), key)
    if not jobs:
        raise BrioError("there is nothing to run: no method, or no fold, was asked for")
    return Plan(facts, jobs, [], methods)


def stacked(plan: Plan, connectomes: Connectomes, runs_per_stack: int | None) -> Plan:
    """The plan with its stacks: all runs of a method in as few as the device's memory allows, equally full."""
    stacks: list[list[str]] = []
    for name, method in plan.methods.items():
        keys = [job.key for job in plan.jobs.values() if job.method == name]
        need = max(method.bytes_per_run(connectomes, plan.jobs[key].run) for key in keys)
        room = runs_per_stack or max(1, memory_budget(connectomes.device) // max(1, need))
        count = -(-len(keys) // room)
        size = -(-len(keys) // count)
        stacks.extend(keys[i : i + size] for i in range(0, len(keys), size))
    return dataclasses.replace(plan, stacks=stacks)


def protocol_of(values: dict[str, str]) -> ProtocolSettings:
    """Protocol settings from ``key=value`` text."""
    return with_values(ProtocolSettings(), values, "protocol.")


def rules_of(values: dict[str, str]) -> AuditRules:
    """Audit rules from ``key=value`` text."""
    return with_values(AuditRules(), values, "audit.")

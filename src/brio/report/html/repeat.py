"""What a reader needs to get the same numbers: settings, versions, commands."""

from __future__ import annotations

import dataclasses
import itertools
import shlex
from collections.abc import Iterable
from typing import Any

from ...cohort import AuditRules
from ...connectome import HarmonisationRule
from ...errors import BrioError
from ...methods import make_method
from ...protocol import ProtocolSettings
from ...results import Plan, PlannedMethod, StoredJob, StudyOptions, TunedChoice
from ...studies.study import PAPER
from .reading import Evidence, EvidenceArm

__all__ = ["commands", "in_lines", "settings_of", "versions"]


def _defaults(method: str) -> dict[str, Any] | None:
    """Settings of a method as it comes; None for one that this process does not know (a user's own)."""
    try:
        return dataclasses.asdict(make_method(method).settings)
    except BrioError:
        return None


def settings_of(arm: EvidenceArm) -> dict[str, Any]:
    """The settings of an arm, those that are not the method's defaults first."""
    planned = arm.plan.methods[arm.method]
    usual = _defaults(arm.method)
    rows = [
        {"name": name, "value": _text(value), "changed": usual is not None and usual.get(name) != value}
        for name, value in planned.settings.items()
    ]
    rows.sort(key=lambda row: not row["changed"])
    return {
        "name": arm.name,
        "method": arm.method,
        "version": planned.version,
        "family": arm.summary.family,
        "provenance": arm.summary.provenance,
        "needs": arm.summary.needs,
        "rows": rows,
        "known": usual is not None,
        "tuned": None if planned.tuned is None else _tuned(planned.tuned),
    }


def _tuned(tuned: TunedChoice) -> dict[str, Any]:
    """What the search chose for each fold."""
    folds = tuned.folds
    names = sorted({name for values in folds.values() for name in values})
    rows = [{"fold": f, "values": [_text(values.get(n)) for n in names]} for f, values in folds.items()]
    return {"budget": tuned.budget, "cohort": tuned.cohort, "names": names, "rows": rows}


def _text(value: Any) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def versions(evidence: Evidence) -> list[tuple[str, str]]:
    """Versions and devices of the finished runs."""
    found: dict[str, set[str]] = {}
    for job in evidence.jobs:
        found.setdefault("brio", set()).add(job.require_plan().brio)
        for run in job.runs:
            for name, version in run.record.versions.items():
                found.setdefault(name, set()).add(version)
            found.setdefault("device", set()).add(run.record.row.device)
    return [(name, ", ".join(sorted(said))) for name, said in found.items()]


def commands(evidence: Evidence) -> list[str]:
    """The commands that make the folder again; ``COHORT`` stands for the cohort's folder, ``REUSED`` for where folders
    with reused results are, ``METHODS.py`` for the file with a user's own methods."""
    own = _own(planned for job in evidence.jobs for planned in job.require_plan().methods.values())
    out = [_study_command(name, options, own) for name, options in _studies(evidence)]
    if not out and evidence.folder.joinpath("summary.json").is_file():
        out = [_command(evidence.jobs[0])]
    elif not out:
        out = [_command(job, f"DIR/arms/{job.folder.parent.name}/{job.folder.name}") for job in evidence.jobs]
    return [*out, "brio report DIR"]


def in_lines(command: str, width: int = 100) -> str:
    """A command over as many lines as it takes, none of which ends between an option and its value.

    Examples
    --------
    >>> print(in_lines("brio run COHORT --method ridge --method 'my own' --out DIR", 34))
    brio run COHORT --method ridge \\
        --method 'my own' --out DIR
    """
    words = shlex.split(command)
    starts = [0, *(k for k, word in enumerate(words) if word.startswith("--")), len(words)]
    lines = [""]
    for part in (shlex.join(words[a:b]) for a, b in itertools.pairwise(starts)):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines += ["   "]
        lines[-1] += f" {part}" if lines[-1] else part
    return " \\\n".join(lines)


def _studies(evidence: Evidence) -> list[tuple[str, StudyOptions]]:
    """The studies of a folder and their options; all of the paper's, where they have the same, under one name."""
    options = {s.name: s.record.options or StudyOptions(seeds=s.record.seeds) for s in evidence.studies}
    of_paper = [s.record.options for s in evidence.studies if s.name in PAPER]
    if len(of_paper) < len(PAPER) or of_paper[0] is None or any(one != of_paper[0] for one in of_paper):
        return list(options.items())
    return [("paper", of_paper[0]), *((name, one) for name, one in options.items() if name not in PAPER)]


def _study_command(name: str, options: StudyOptions, own: list[str]) -> str:
    words = ["brio", "study", name, "COHORT", *own, *_each("--method", options.methods)]
    words += ["--seeds", str(options.seeds)]
    words += _each("--set", [f"{key}={_text(value)}" for key, value in options.settings.items()])
    words += _each("--fold", options.folds)
    words += _each("--with", [f"COHORT-{atlas}" for atlas in options.companions])
    words += [] if options.exclude else ["--keep-all"]
    words += ["--device", options.device] if options.device else []
    words += ["--runs-per-stack", str(options.runs_per_stack)] if options.runs_per_stack else []
    words += _each("--reuse", [f"REUSED/{folder}" for folder in options.reuse])
    return shlex.join([*words, "--out", "DIR"])


def _own(methods: Iterable[PlannedMethod]) -> list[str]:
    """Where some of the methods of a plan are a user's own, which have code to tell them by."""
    return ["--load", "METHODS.py"] if any(planned.code for planned in methods) else []


def _each(option: str, values: Iterable[Any] | None) -> list[str]:
    return [w for value in values or () for w in (option, str(value))]


def _command(job: StoredJob, where: str = "DIR") -> str:
    plan, methods = job.require_plan(), list(job.summary.methods)
    if job.tuning is not None:
        words = ["brio", "tune", ",".join(methods), "COHORT", "--budget", str(job.tuning.budget)]
        changed = job.tuning.given_settings
    else:
        words = ["brio", "run", "COHORT", *_each("--method", methods)]
        changed = _changed(plan)
        if any(planned.tuned for planned in plan.methods.values()):
            words += ["--tuned", "TUNED"]
    words += [*_own(plan.methods.values()), "--protocol", job.summary.protocol]
    words += ["--seeds", str(len(plan.seeds))]
    words += _each("--set", [f"{name}={_text(value)}" for name, value in changed.items()])
    for prefix, usual, given in (
        ("protocol", ProtocolSettings(), plan.protocol_settings),
        ("audit", AuditRules(), plan.audit),
        ("harmonise", HarmonisationRule(), plan.harmonise),
    ):
        for name, value in (given or {}).items():
            if getattr(usual, name, value) != value:
                words += ["--set", f"{prefix}.{name}={_text(value)}"]
    words += _each("--fold", plan.folds)
    words += _each("--with", [f"COHORT-{atlas}" for atlas in list((job.audit or {}).get("atlases", {}))[1:]])
    words += ["--keep-all"] if plan.audit is None else []
    words += ["--device", plan.device]
    return shlex.join([*words, "--out", where])


def _changed(plan: Plan) -> dict[str, Any]:
    """Settings that differ from the defaults of the methods, which name some themselves."""
    out: dict[str, Any] = {}
    for name, planned in plan.methods.items():
        usual = _defaults(name)
        if usual is not None and planned.tuned is None:
            out |= {k: v for k, v in planned.settings.items() if k in usual and usual[k] != v}
    return out

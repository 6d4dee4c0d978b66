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
from .reading import Arm, Evidence, PlannedRun

__all__ = ["commands", "in_lines", "settings_of", "versions"]


def _defaults(method: str) -> dict[str, Any] | None:
    """Settings of a method as it comes; None for one that this process does not know (a user's own)."""
    try:
        return dataclasses.asdict(make_method(method).settings)
    except BrioError:
        return None


def settings_of(arm: Arm) -> dict[str, Any]:
    """The settings of an arm, those that are not the method's defaults first."""
    plan = arm.job.plan["methods"][arm.method]
    usual = _defaults(arm.method)
    rows = [
        {"name": name, "value": _text(value), "changed": usual is not None and usual.get(name) != value}
        for name, value in plan["settings"].items()
    ]
    rows.sort(key=lambda row: not row["changed"])
    tuned = plan.get("tuned")
    return {
        "name": arm.name,
        "method": arm.method,
        "version": plan.get("version"),
        "family": arm.found["family"],
        "provenance": arm.found.get("provenance", ""),
        "needs": arm.found.get("needs", []),
        "rows": rows,
        "known": usual is not None,
        "tuned": None if tuned is None else _tuned(tuned),
    }


def _tuned(tuned: dict[str, Any]) -> dict[str, Any]:
    """What the search chose for each fold."""
    folds = tuned["folds"]
    names = sorted({name for values in folds.values() for name in values})
    rows = [{"fold": f, "values": [_text(values.get(n)) for n in names]} for f, values in folds.items()]
    return {"budget": tuned["budget"], "cohort": tuned["cohort"], "names": names, "rows": rows}


def _text(value: Any) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def versions(evidence: Evidence) -> list[tuple[str, str]]:
    """Versions and devices of the finished runs."""
    found: dict[str, set[str]] = {}
    for job in evidence.jobs:
        found.setdefault("brio", set()).add(str(job.plan.get("brio", "?")))
        for record in job.records:
            for name, version in record.get("versions", {}).items():
                found.setdefault(name, set()).add(str(version))
            found.setdefault("device", set()).add(str(record["row"].get("device", "?")))
    return [(name, ", ".join(sorted(said))) for name, said in found.items()]


def commands(evidence: Evidence) -> list[str]:
    """The commands that make the folder again; ``COHORT`` stands for the cohort's folder, ``FINISHED`` for where
    folders lie whose rows were handed in, ``METHODS.py`` for the file with a user's own methods."""
    own = _own(told for job in evidence.jobs for told in job.plan["methods"].values())
    out = [_study_command(name, asked, own) for name, asked in _studies(evidence)]
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


def _studies(evidence: Evidence) -> list[tuple[str, dict[str, Any]]]:
    """The studies of a folder and how each was asked for; all of the paper's, asked for alike, under one name."""
    from ...studies.study import PAPER

    asked = {s.name: s.told.get("asked", {"seeds": s.told.get("seeds", 3)}) for s in evidence.studies}
    of_paper = [asked.get(name) for name in PAPER]
    if "methods" not in (of_paper[0] or {}) or any(one != of_paper[0] for one in of_paper):
        return list(asked.items())
    return [("paper", asked[PAPER[0]]), *((name, one) for name, one in asked.items() if name not in PAPER)]


def _study_command(name: str, asked: dict[str, Any], own: list[str]) -> str:
    words = ["brio", "study", name, "COHORT", *own, *_each("--method", asked.get("methods"))]
    words += ["--seeds", str(asked["seeds"])]
    words += _each("--set", [f"{key}={_text(value)}" for key, value in asked.get("settings", {}).items()])
    words += _each("--fold", asked.get("folds"))
    words += _each("--with", [f"COHORT-{atlas}" for atlas in asked.get("companions", ())])
    words += [] if asked.get("exclude", True) else ["--keep-all"]
    words += ["--device", asked["device"]] if "device" in asked else []
    words += ["--runs-per-stack", str(asked["runs_per_stack"])] if asked.get("runs_per_stack") else []
    words += _each("--finished", [f"FINISHED/{folder}" for folder in asked.get("finished", ())])
    return shlex.join([*words, "--out", "DIR"])


def _own(methods: Iterable[dict[str, Any]]) -> list[str]:
    """Where some of the methods of a plan are a user's own, which have code to tell them by."""
    return ["--load", "METHODS.py"] if any("code" in told for told in methods) else []


def _each(option: str, values: Iterable[Any] | None) -> list[str]:
    return [w for value in values or () for w in (option, str(value))]


def _command(job: PlannedRun, where: str = "DIR") -> str:
    plan, methods = job.plan, list(job.summary["methods"])
    if job.tuning is not None:
        words = ["brio", "tune", ",".join(methods), "COHORT", "--budget", str(job.tuning.get("budget"))]
        changed = dict(job.tuning.get("given", {}))
    else:
        words = ["brio", "run", "COHORT", *_each("--method", methods)]
        changed = _changed(plan)
        if any("tuned" in told for told in plan["methods"].values()):
            words += ["--tuned", "TUNED"]
    words += [*_own(plan["methods"].values()), "--protocol", str(job.summary["protocol"])]
    words += ["--seeds", str(len(plan["seeds"]))]
    words += _each("--set", [f"{name}={_text(value)}" for name, value in changed.items()])
    for prefix, usual in (
        ("protocol", ProtocolSettings()),
        ("audit", AuditRules()),
        ("harmonise", HarmonisationRule()),
    ):
        given = plan.get("protocol_settings" if prefix == "protocol" else prefix)
        for name, value in (given or {}).items():
            if getattr(usual, name, value) != value:
                words += ["--set", f"{prefix}.{name}={_text(value)}"]
    words += _each("--fold", plan.get("folds"))
    words += _each("--with", [f"COHORT-{atlas}" for atlas in list((job.audit or {}).get("atlases", {}))[1:]])
    words += ["--keep-all"] if plan.get("audit") is None else []
    words += ["--device", str(plan["device"])] if plan.get("device") else []
    return shlex.join([*words, "--out", where])


def _changed(plan: dict[str, Any]) -> dict[str, Any]:
    """Settings that differ from the defaults of the methods, which name some themselves."""
    out: dict[str, Any] = {}
    for name, told in plan["methods"].items():
        usual = _defaults(name)
        if usual is not None and "tuned" not in told:
            out |= {k: v for k, v in told["settings"].items() if k in usual and usual[k] != v}
    return out

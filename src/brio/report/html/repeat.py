"""What a reader needs to get the same numbers: settings, versions, commands."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Any

from ...cohort import AuditRules
from ...connectome import Harmonise
from ...errors import BrioError
from ...methods import make_method
from ...protocol import ProtocolSettings
from .reading import Arm, Evidence, Job

__all__ = ["commands", "settings_of", "versions"]


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
    folders lie whose rows were handed in."""
    out = [_study_command(evidence, name, methods) for name, methods in _asked(evidence)]
    if not out and evidence.folder.joinpath("summary.json").is_file():
        out = [_command(evidence.jobs[0])]
    elif not out:
        out = [_command(job, f"DIR/arms/{job.folder.parent.name}/{job.folder.name}") for job in evidence.jobs]
    return [*out, "brio report DIR"]


def _asked(evidence: Evidence) -> list[tuple[str, list[str]]]:
    """The studies of a folder and the methods that were asked for; all of the paper's, as it has them, by one name."""
    from ...studies.study import PAPER

    asked = [(study.name, list(study.told.get("methods") or ())) for study in evidence.studies]
    if not set(PAPER) <= {name for name, methods in asked if not methods}:
        return asked
    return [("paper", []), *((name, methods) for name, methods in asked if name not in PAPER)]


def _study_command(evidence: Evidence, name: str, methods: list[str]) -> str:
    words = ["brio", "study", name, "COHORT", *(w for m in methods for w in ("--method", m))]
    words += ["--seeds", str(evidence.studies[0].told.get("seeds", 3))]
    trained = [arm for arm in evidence.arms if "handed_in" not in arm.job.plan]
    changed: dict[str, Any] = {}
    for arm in trained:
        changed |= _changed(arm.job.plan) if arm.plain else {}
    words += [w for key, value in changed.items() for w in ("--set", f"{key}={_text(value)}")]
    here = [arm for arm in trained if arm in evidence.main] or trained
    words += _shared(here[0].job) if here else []
    given = [
        (job.folder.parent.name, Path(job.plan["handed_in"]).name) for job in evidence.jobs if "handed_in" in job.plan
    ]
    words += [w for place in dict.fromkeys(given) for w in ("--finished", f"FINISHED/{'/'.join(place)}")]
    return shlex.join([*words, "--out", "DIR"])


def _command(job: Job, where: str = "DIR") -> str:
    plan, methods = job.plan, list(job.summary["methods"])
    if job.tuning is not None:
        words = ["brio", "tune", ",".join(methods), "COHORT", "--budget", str(job.tuning.get("budget"))]
        changed = dict(job.tuning.get("given", {}))
    else:
        words = ["brio", "run", "COHORT", *(w for m in methods for w in ("--method", m))]
        changed = _changed(plan)
        if any("tuned" in told for told in plan["methods"].values()):
            words += ["--tuned", "TUNED"]
    words += ["--protocol", str(job.summary["protocol"]), "--seeds", str(len(plan["seeds"]))]
    words += [w for name, value in changed.items() for w in ("--set", f"{name}={_text(value)}")]
    return shlex.join([*words, *_shared(job), "--out", where])


def _shared(job: Job) -> list[str]:
    """What a run, a search and a study are all told: settings of protocol, audit and harmonisation, folds, device."""
    plan, words = job.plan, []
    for prefix, usual in (
        ("protocol", ProtocolSettings()),
        ("audit", AuditRules()),
        ("harmonise", Harmonise()),
    ):
        given = plan.get("protocol_settings" if prefix == "protocol" else prefix)
        for name, value in (given or {}).items():
            if getattr(usual, name, value) != value:
                words += ["--set", f"{prefix}.{name}={_text(value)}"]
    words += [w for fold in plan.get("folds") or () for w in ("--fold", str(fold))]
    others = list((job.audit or {}).get("atlases", {}))[1:]
    words += [w for atlas in others for w in ("--with", f"COHORT-{atlas}")]
    words += ["--keep-all"] if plan.get("audit") is None else []
    words += ["--device", str(plan["device"])] if plan.get("device") else []
    return words


def _changed(plan: dict[str, Any]) -> dict[str, Any]:
    """Settings that differ from the defaults of the methods, which name some themselves."""
    out: dict[str, Any] = {}
    for name, told in plan["methods"].items():
        usual = _defaults(name)
        if usual is not None and "tuned" not in told:
            out |= {k: v for k, v in told["settings"].items() if k in usual and usual[k] != v}
    return out

"""How to repeat the results of a report: settings, versions, commands."""

from __future__ import annotations

import dataclasses
import itertools
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..errors import BrioError
from ..jobs.resume import recover_options
from ..methods import make_method
from ..results import PlannedMethod, StoredJob, StoredStudy, StudyOptions
from ..results.files import SUMMARY
from ..settings import format_setting
from ..studies.study import PAPER
from .comparisons import EvidenceArm


def read_defaults(method: str) -> dict[str, Any] | None:
    """Return the default settings of a method; None for a user's own method that is not loaded."""
    try:
        return dataclasses.asdict(make_method(method).settings)
    except BrioError:
        return None


def describe_settings(arm: EvidenceArm) -> dict[str, Any]:
    """Describe the settings of an arm, those that differ from the defaults first, and those tuned for each fold."""
    planned, defaults = arm.planned, read_defaults(arm.method)
    rows = [
        {"name": name, "value": format_setting(value), "changed": defaults is not None and defaults.get(name) != value}
        for name, value in planned.settings.items()
    ]
    rows.sort(key=lambda row: not row["changed"])
    folds = planned.tuned.folds if planned.tuned else {}
    names = sorted({name for settings in folds.values() for name in settings})
    tuned = {fold: [format_setting(settings.get(name)) for name in names] for fold, settings in folds.items()}
    return {"arm": arm, "rows": rows, "known": defaults is not None, "names": names, "tuned": tuned}


def list_versions(jobs: Sequence[StoredJob]) -> list[tuple[str, str]]:
    """List the software versions and devices of the runs."""
    versions_of: dict[str, set[str]] = {}
    for job in jobs:
        versions_of.setdefault("brio", set()).add(job.require_plan().brio)
        for run in job.runs:
            for name, version in run.record.versions.items():
                versions_of.setdefault(name, set()).add(version)
            versions_of.setdefault("device", set()).add(run.record.row.device)
    return [(name, ", ".join(sorted(versions))) for name, versions in versions_of.items()]


def list_commands(folder: Path, jobs: Sequence[StoredJob], studies: Sequence[StoredStudy]) -> list[str]:
    """List the commands that compute a folder again; studies of the paper as one, if all have the same options."""
    options = {s.name: s.record.options or StudyOptions(seeds=s.record.seeds) for s in studies}
    of_paper = [s.record.options for s in studies if s.name in PAPER]
    if len(of_paper) == len(PAPER) and of_paper[0] is not None and all(one == of_paper[0] for one in of_paper):
        options = {"paper": of_paper[0]} | {name: one for name, one in options.items() if name not in PAPER}
    if options:
        load = _load_option(planned for job in jobs for planned in job.require_plan().methods.values())
        commands = [_write_study_command(name, one, load) for name, one in options.items()]
    elif folder.joinpath(SUMMARY).is_file():
        commands = [_write_job_command(jobs[0])]
    else:
        commands = [_write_job_command(job, f"DIR/arms/{job.folder.parent.name}/{job.folder.name}") for job in jobs]
    return [*commands, "brio report DIR"]


def wrap_command(command: str, width: int = 100) -> str:
    """Wrap a shell command; no line ends between an option and its value."""
    words = shlex.split(command)
    starts = [0, *(k for k, word in enumerate(words) if word.startswith("--")), len(words)]
    lines = [""]
    for part in (shlex.join(words[a:b]) for a, b in itertools.pairwise(starts)):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines += ["   "]
        lines[-1] += f" {part}" if lines[-1] else part
    return " \\\n".join(lines)


def _write_study_command(name: str, options: StudyOptions, load: list[str]) -> str:
    words = ["brio", "study", name, "COHORT", *load, *_repeat_option("--method", options.methods)]
    words += _repeat_option("--label", options.labels)
    words += ["--protocol", options.protocol] if options.protocol else []
    words += ["--seeds", str(options.seeds)]
    words += _repeat_option("--set", [f"{key}={format_setting(value)}" for key, value in options.settings.items()])
    words += _repeat_option("--fold", options.folds)
    words += _repeat_option("--with", [f"COHORT-{atlas}" for atlas in options.companions])
    words += [] if options.exclude else ["--keep-all"]
    words += ["--device", options.device] if options.device else []
    words += ["--runs-per-stack", str(options.runs_per_stack)] if options.runs_per_stack else []
    words += _repeat_option("--reuse", [f"REUSED/{folder}" for folder in options.reuse])
    return shlex.join([*words, "--out", "DIR"])


def _load_option(methods: Iterable[PlannedMethod]) -> list[str]:
    """Return the option that loads a user's own methods; the plan keeps the code of such methods alone."""
    return ["--load", "METHODS.py"] if any(planned.code for planned in methods) else []


def _repeat_option(option: str, values: Iterable[Any] | None) -> list[str]:
    return [w for value in values or () for w in (option, str(value))]


def _write_job_command(job: StoredJob, out: str = "DIR") -> str:
    plan = job.require_plan()
    options = recover_options(plan, job.tuning)
    words = ["brio", "run" if job.tuning is None else "tune", "COHORT", *_repeat_option("--method", options["method"])]
    if job.tuning is not None:
        words += ["--budget", str(options["budget"])]
    elif any(planned.tuned for planned in plan.methods.values()):
        words += ["--tuned", "TUNED"]
    words += ["--label", plan.label] if plan.label else []
    words += [*_load_option(plan.methods.values()), "--protocol", plan.protocol]
    words += ["--seeds", str(options["seeds"])]
    words += _repeat_option("--set", [f"{name}={format_setting(value)}" for name, value in options["set"].items()])
    words += _repeat_option("--fold", options["fold"])
    words += _repeat_option("--with", [f"COHORT-{atlas}" for atlas in list((job.audit or {}).get("atlases", {}))[1:]])
    words += ["--keep-all"] if options["keep-all"] else []
    words += ["--device", plan.device]
    return shlex.join([*words, "--out", out])

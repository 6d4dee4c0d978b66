"""The folder of a job: resume the job, report conflicts with it, recover its options."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from .. import storage
from ..cohort import AuditRules
from ..connectome import HarmonisationRule
from ..errors import BrioError
from ..formatting import format_count
from ..methods import find_method
from ..protocol import USUAL_VALIDATION_SITES, ProtocolSettings
from ..results import Plan, RunStore, TuningRecord, files, lock_folder, write_plan
from ..results.cohort import describe_cohort, group_participants, read_audit, read_cohort_facts, read_groups
from ..results.store import WORKERS, list_heartbeats, remove_dead_heartbeats
from ..settings import format_setting
from .job import Job, describe_rest, state_needs
from .plan import JobPlan, assign_stacks

# ---------------------------------------------------------------- the folder of a job

OTHER_OUT = "choose another --out"

_BEFORE_THE_PLAN = {
    *(files.COHORT_FACTS, files.GROUPS, files.AUDIT, files.EXCLUSIONS, files.PLAN, files.SHARED_PLAN),
    *(storage.LOCK, storage.SUMS, files.SEARCH, files.TUNING, files.CONFIGURATIONS, WORKERS),
}
"""Names left by a job that was killed while planning, and by the search before it."""


def read_earlier_plan(folder: Path) -> Plan | None:
    """Read the plan of the job that a folder belongs to; None for a new folder, and where the plan was removed."""
    names = list_names(folder)
    if (folder / files.PLAN).is_file():
        return Plan.read(folder, files.PLAN_AGAIN)
    if names <= _BEFORE_THE_PLAN or (files.RUNS in names and names & {storage.LOCK, files.SHARED_PLAN}):
        return None
    raise BrioError(f"{folder}: contains files that do not belong to a brio job; {OTHER_OUT}")


def list_names(folder: Path) -> set[str]:
    """List the content of a folder for results, without what is being written; empty if it does not exist yet."""
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise BrioError(f"{place}: is a file, not a folder; {OTHER_OUT}")
    return {path.name for path in folder.iterdir() if not storage.is_partial(path.name)} if folder.is_dir() else set()


@contextmanager
def open_job(
    job: Job,
    plan: JobPlan,
    folder: Path,
    *,
    quiet: bool = False,
    allow_other_device: bool = True,
    finished_runs: Path | None = None,
) -> Iterator[tuple[JobPlan, RunStore]]:
    """Open the folder of a job, and write its plan or resume the job that was begun there.

    The folder is reserved for this process, unless the engine of the job shares it with others: then the first process
    decides the stacks, the others must have the same job, and runs appear whole or not at all. A job that cannot be
    resumed, because the folder holds another one or a finished run is damaged, is refused before anything is written.
    Runs that another job has finished in the folder ``finished_runs`` are copied.
    """
    earlier = read_earlier_plan(folder)
    methods = {key: planned.method for key, planned in plan.runs.items()}
    if earlier is not None:  # before anything is written, the lock included
        resume_plan(earlier, plan, folder, allow_other_device)
    RunStore(folder / files.RUNS).check(plan.runs)
    if earlier is None:
        needs = state_needs(methods, job.cohort, folder, job.spec.records_only)
    if not quiet:
        job.announce_exclusions()
        if earlier is None:
            job.say(needs)
        job.announce_inputs(list(methods.values()))
        job.announce_protocol(list(methods.values()))
    shared = job.shares_folder
    with _leave_nothing_if_refused(folder), reserve_folder(job, folder):
        earlier = read_earlier_plan(folder)
        store = RunStore(folder / files.RUNS, job.spec.records_only)
        if earlier is None:
            plan = assign_stacks(plan, job.connectomes, job.spec.runs_per_stack)
            plan = _agree_on_stacks(plan, folder) if shared else plan
            write_job_plan(job, plan.document, folder)
        else:
            plan = resume_plan(earlier, plan, folder, allow_other_device)
            if not shared:
                storage.write_recorded(folder, {})  # what was killed right after its files had not recorded them yet
            _mend_cohort_files(job, plan.document, folder)
        remove_dead_heartbeats(folder, at_work=shared)
        alone = not shared and not list_heartbeats(folder)  # else others may be writing: only what is of a dead one
        store.remove_partial_runs(reserved=alone)
        for place in (folder, folder / files.CHECKPOINTS):
            storage.remove_leftovers(place, reserved=alone)
        finished = [key for key in plan.runs if key in store]
        if earlier is not None or finished:
            rest = describe_rest(methods, store)
            number = format_count(len(plan.runs), "run is", "runs are")
            job.say(f"resuming: {len(finished)} of {number} finished{'; ' if rest else ''}{rest}")
        if finished_runs is not None:
            store.copy_finished_runs(finished_runs, plan.runs)
        yield plan, store


def reserve_folder(job: Job, folder: Path) -> AbstractContextManager[None]:
    """Reserve a folder for this process, unless the engine of the job shares it with others."""
    return nullcontext() if job.shares_folder else lock_folder(folder)


@contextmanager
def _leave_nothing_if_refused(folder: Path) -> Iterator[None]:
    """Remove a folder that did not exist before, if the job is refused before it has anything to resume from."""
    missing = [place for place in (folder, *folder.parents) if not os.path.lexists(place)]
    try:
        yield
    except BrioError:
        results = [*folder.glob(f"{files.RUNS}/*"), *folder.glob(f"{files.CHECKPOINTS}/*")]
        if missing and not results and not list_heartbeats(folder):
            storage.remove_quietly(folder)
            for place in missing[1:]:
                storage.remove_empty_folder(place)
        raise


def _agree_on_stacks(plan: JobPlan, folder: Path) -> JobPlan:
    """Return a plan with the stacks of the first process that shares a folder, which may have other memory.

    Its plan lies in a folder that only one process can create. All others write the same plan as the first.
    """
    place = folder / files.SHARED_PLAN
    try:
        with storage.create_whole_folder(place) as partial:
            storage.write_new(partial / files.PLAN, files.format_json(plan.document))
            storage.write_sums(partial, [files.PLAN])
    except BrioError:
        if not place.is_dir():  # else another process was faster
            raise
    return resume_plan(Plan.read(place, f"remove {place} and run the command again"), plan, folder)


def _mend_cohort_files(job: Job, plan: Plan, folder: Path) -> None:
    """Rewrite the files stored with a plan if one is damaged; the job recomputes their content."""
    remedy = "it will be rewritten"
    try:
        for read in (read_cohort_facts, read_groups, read_audit):  # not their hashes alone: these may be of odd content
            read(folder, remedy)
        if files.is_kept(folder / files.EXCLUSIONS, remedy):
            storage.check_stored(folder / files.EXCLUSIONS, remedy)
    except BrioError as damage:
        job.say(str(damage))
        write_job_plan(job, plan, folder)


def write_job_plan(job: Job, plan: Plan, folder: Path) -> None:
    """Write the plan of a job and the facts about its cohort."""
    audited = None if job.audit is None else job.audit.to_dict()
    write_plan(folder, plan, describe_cohort(job.cohort), audited, group_participants(job.cohort))


# ---------------------------------------------------------------- the job that is there, and the job that is asked for

_PLACE = ("device", "threads")
"""Fields of a plan that say where runs are computed, not what they are."""


def resume_plan(earlier: Plan, plan: JobPlan, folder: Path, allow_other_device: bool = True) -> JobPlan:
    """Return the plan of a job that was started earlier, with its stacks."""
    here, there = plan.document.identify(), earlier.identify()
    here_as_there = here | {name: there[name] for name in _PLACE}
    store = RunStore(folder / files.RUNS)
    if allow_other_device and all(key in store for key in plan.runs):
        here = here_as_there
    if there == here:
        place = {name: here[name] for name in _PLACE}
        return dataclasses.replace(plan, document=dataclasses.replace(plan.document, stacks=earlier.stacks, **place))
    if there == here_as_there and there["device"] != here["device"]:
        devices = f"device {there['device']}, now {here['device']}"
        remedy = f"resume it with --device {there['device']}, or {OTHER_OUT}"
        raise BrioError(f"{folder}: the unfinished job was started on another device ({devices}); {remedy}")
    clashes = describe_clashes(there, here)
    more = f", and {len(clashes) - 3} more" if len(clashes) > 3 else ""
    remedy = f"{OTHER_OUT.capitalize()}, or resume that job with its own options ('brio config {folder}')"
    raise BrioError(f"{folder}: belongs to another job ({'; '.join(clashes[:3])}{more}). {remedy}")


_OF_METHOD = {
    "version": "version",
    "code": "hash of the file",
    "configurations": "configurations to try",
    "tuned": "tuned settings",
}
"""Descriptions of what a plan says about a method besides its settings."""


def describe_clashes(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """Describe how two plans differ; what one of them lacks follows from another difference."""
    stated, clashes = _state_plan(there), []
    for name, now in _state_plan(here).items():
        if (was := stated.get(name, now)) != now:
            values = f"{format_setting(was)}, now {format_setting(now)}"
            clashes.append(f"other {name}" if isinstance(was or now, dict | list) else f"{name}: {values}")
    return clashes


def _state_plan(plan: Mapping[str, Any]) -> dict[str, Any]:
    """State what a plan says, under names that users know."""
    rest: dict[str, Any] = dict.fromkeys(entry.name for entry in dataclasses.fields(Plan)) | dict(plan)
    cohort, before, n_scans, after, _ = map(
        rest.pop, ("cohort", "fingerprint_before_exclusions", "n_scans", "fingerprint", "excluded")
    )
    methods, seeds, folds, harmonise, audit = map(rest.pop, ("methods", "seeds", "folds", "harmonise", "audit"))
    stated = {
        "version of brio": rest.pop("brio"),
        "cohort": f"'{cohort}' (fingerprint {before[:12]})",
        "methods": ", ".join(methods),
        "seeds": len(seeds) if seeds == list(range(len(seeds))) else ", ".join(map(str, seeds)),
        "folds": "all" if folds is None else ", ".join(folds),
        "keep-all": audit is None,
    }
    settings = {"protocol": rest.pop("protocol_settings"), "harmonise": harmonise or {"kind": "none"}}
    for part, values in (settings | {"audit": audit or {}}).items():
        stated |= {f"setting {part}.{key}": value for key, value in values.items()}
    for name, method in methods.items():
        stated |= {f"{words} of method {name}": method.get(fact) for fact, words in _OF_METHOD.items()}
        stated |= {f"setting {key} of {name}": value for key, value in method["settings"].items()}
    stated["scans left by the exclusions (also by those of --with)"] = f"{n_scans} (fingerprint {after[:12]})"
    stated["threads (OMP_NUM_THREADS)"] = rest.pop("threads")
    return stated | {name.replace("_", " "): value for name, value in rest.items()}


# ---------------------------------------------------------------- its options, to give its command again


def recover_options(plan: Plan, tuning: TuningRecord | None = None) -> dict[str, Any]:
    """Recover the options of ``brio run`` or ``brio tune`` that decide the plan of a job.

    A plan does not record where cohorts, files with methods and searches were, nor options that affect no number.
    """
    settings = _changed_settings(plan) if tuning is None else dict(tuning.given_settings)
    for part, defaults, values in (
        # a plan has the number that "auto" came to; the usual one is what it comes to again
        ("protocol", ProtocolSettings(validation_sites=USUAL_VALIDATION_SITES), plan.protocol_settings),
        ("audit", AuditRules(), plan.audit),
        ("harmonise", HarmonisationRule(), plan.harmonise),
    ):
        known = dataclasses.asdict(defaults)
        settings |= {f"{part}.{name}": v for name, v in (values or {}).items() if known.get(name, v) != v}
    return {
        "method": list(plan.methods),
        "label": plan.label,
        "protocol": plan.protocol,
        "seeds": len(plan.seeds),
        **({} if tuning is None else {"budget": tuning.budget, "oracle": tuning.oracle is not None}),
        "set": settings,
        "fold": None if plan.folds is None else list(plan.folds),
        "keep-all": plan.audit is None,
        "device": plan.device,
        "runs-per-stack": _recover_stack_size(plan),
    }


def _changed_settings(plan: Plan) -> dict[str, Any]:
    """Collect settings that differ from the defaults of their methods; a value holds for all methods that have it."""
    changed: dict[str, Any] = {}
    for name, planned in plan.methods.items():
        defaults = _read_defaults(name)
        changed |= {k: v for k, v in planned.settings.items() if k in defaults and defaults[k] != v}
    for name, planned in plan.methods.items():
        for key in changed.keys() & _read_defaults(name).keys():
            if planned.settings.get(key) != changed[key]:
                values = f"{planned.settings.get(key)} for method '{name}' and {changed[key]} for another"
                raise BrioError(f"{files.PLAN}: setting '{key}' is {values}; use a separate command for each method")
    return changed


def _read_defaults(method: str) -> Mapping[str, Any]:
    """Return the default settings of a method that its name does not fix; none of a user's method not loaded."""
    try:
        entry = find_method(method)
    except BrioError:
        return {}
    return {key: value for key, value in entry.settings.items() if key not in entry.fixed}


def _recover_stack_size(plan: Plan) -> int | None:
    """Return the number of runs per stack, where it and not each method's need of memory decided the stacks."""
    sizes = [len(stack) for stack in plan.stacks]
    n_runs, rest = divmod(sum(sizes), max(1, len(plan.methods)))
    if not sizes or rest or len(sizes) == len(plan.methods) or plan.harmonise is not None:
        return None
    largest = max(sizes)
    n_stacks = -(-n_runs // largest)
    size = -(-n_runs // n_stacks)
    expected = [min(size, n_runs - first) for first in range(0, n_runs, size)]
    return largest if sizes == expected * len(plan.methods) else None

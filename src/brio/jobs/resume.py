"""Opening a job folder: is it new, does it hold the same job, or another one?"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from ..errors import BrioError
from ..formatting import format_count
from ..results import Plan, RunStore, lock_folder, write_plan
from ..results.checkpoint import remove_partial_checkpoints
from ..results.files import (
    AUDIT,
    CHECKPOINTS,
    COHORT_FACTS,
    CONFIGURATIONS,
    EXCLUSIONS,
    GROUPS,
    PLAN,
    PLAN_AGAIN,
    RUNS,
    SEARCH,
    SHARED_PLAN,
    SUMS,
    TUNING,
    check_file,
    format_json,
    is_kept,
)
from ..results.heartbeats import WORKERS, list_heartbeats, remove_dead_heartbeats
from ..storage import (
    LOCK,
    create_whole_folder,
    is_partial,
    remove_empty_folder,
    remove_leftovers,
    write_new,
    write_recorded,
    write_sums,
)
from ..storage.partial import remove_quietly
from .clashes import describe_clash
from .cohort_facts import describe_cohort, group_participants
from .job import Job
from .needs import describe_rest, state_needs
from .plan import JobPlan, assign_stacks

_BEFORE_THE_PLAN = {
    *(COHORT_FACTS, GROUPS, AUDIT, EXCLUSIONS, PLAN, LOCK, SUMS, SEARCH, TUNING, CONFIGURATIONS),
    *(SHARED_PLAN, WORKERS),
}
"""What a job leaves that was killed while planning, and a search that comes before it."""

_PLACE = ("device", "threads")
"""What a plan says about where runs are computed, and not about what they are."""

OTHER_OUT = "choose another --out"
WRITTEN_AGAIN = "it is written again"


def read_earlier_plan(folder: Path) -> Plan | None:
    """Read the plan of the job that a folder belongs to; None for a new folder, and where the plan was removed."""
    names = list_names(folder)
    if (folder / PLAN).is_file():
        return Plan.read(folder, PLAN_AGAIN)
    if names <= _BEFORE_THE_PLAN or (RUNS in names and names & {LOCK, SHARED_PLAN}):
        return None
    raise BrioError(f"{folder}: holds files that are not of a brio job; {OTHER_OUT}")


def list_names(folder: Path) -> set[str]:
    """List what a folder for results holds, besides what is being written; nothing where it is not there yet."""
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise BrioError(f"{place}: is a file, not a folder; {OTHER_OUT}")
    return {path.name for path in folder.iterdir() if not is_partial(path.name)} if folder.is_dir() else set()


def resume_plan(earlier: Plan, plan: JobPlan, folder: Path, allow_other_device: bool = True) -> JobPlan:
    """Return the plan of a job begun earlier with the stacks it has."""
    here, there = plan.document.identify(), earlier.identify()
    here_as_there = here | {name: there[name] for name in _PLACE}
    store = RunStore(folder / RUNS)
    if allow_other_device and all(key in store for key in plan.runs):
        here = here_as_there
    if there == here:
        document = dataclasses.replace(
            plan.document,
            device=here["device"],
            threads=here["threads"],
            stacks=earlier.stacks,
            hashes=earlier.hashes,
        )
        return dataclasses.replace(plan, document=document)
    if there == here_as_there and there["device"] != here["device"]:
        raise BrioError(
            f"{folder}: was begun on another device and is not finished (device {there['device']}, now "
            f"{here['device']}); resume it with --device {there['device']}, or {OTHER_OUT}"
        )
    words = describe_clash(there, here)
    more = f", and {len(words) - 3} more" if len(words) > 3 else ""
    raise BrioError(
        f"{folder}: belongs to another job: {'; '.join(words[:3])}{more}. {OTHER_OUT.capitalize()}, or resume that job "
        f"with its own options, which 'brio config {folder}' prints"
    )


def reserve_folder(job: Job, folder: Path) -> AbstractContextManager[None]:
    """Reserve a folder for this process, unless the engine of the job shares it with others."""
    return nullcontext() if job.shares_folder else lock_folder(folder)


@contextmanager
def open_job(
    job: Job, plan: JobPlan, folder: Path, quiet: bool = False, allow_other_device: bool = True
) -> Iterator[tuple[JobPlan, RunStore]]:
    """Open the folder of a job, and write its plan or resume the job that was begun there.

    The folder is reserved for this process, unless the engine of the job shares it with others: then the first process
    decides the stacks, the others must have the same job, and runs appear whole or not at all. A job that cannot be
    resumed, because the folder holds another one or a finished run is damaged, is refused before anything is written.
    """
    earlier = read_earlier_plan(folder)
    methods = {key: planned.method for key, planned in plan.runs.items()}
    if earlier is not None:  # before anything is written, the lock included
        resume_plan(earlier, plan, folder, allow_other_device)
    RunStore(folder / RUNS).check(plan.runs)
    if earlier is None:
        needs = state_needs(methods, job.cohort, folder, job.spec.records_only)
    if not quiet:
        job.announce_exclusions()
        if earlier is None:
            job.say(needs)
        job.announce_protocol([planned.method for planned in plan.runs.values()])
    shared = job.shares_folder
    with _leave_nothing_if_refused(folder), reserve_folder(job, folder):
        earlier = read_earlier_plan(folder)
        store = RunStore(folder / RUNS, job.spec.records_only)
        if earlier is None:
            plan = assign_stacks(plan, job.connectomes, job.spec.runs_per_stack)
            plan = _agree_on_stacks(plan, folder) if shared else plan
            write_job_plan(job, plan.document, folder)
        else:
            plan = resume_plan(earlier, plan, folder, allow_other_device)
            if not shared:
                write_recorded(folder, {})  # what was killed right after its files had not recorded them yet
            _mend_cohort_files(job, plan.document, folder)
        _remove_leftovers(store, folder, shared)
        finished = [key for key in plan.runs if key in store]
        if earlier is not None or finished:
            rest = describe_rest(methods, store)
            number = format_count(len(plan.runs), "run is", "runs are")
            job.say(f"resuming: {len(finished)} of {number} finished{'; ' if rest else ''}{rest}")
        yield plan, store


@contextmanager
def _leave_nothing_if_refused(folder: Path) -> Iterator[None]:
    """Remove a folder that was not there before, if the job is refused before it has anything to go on from."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        yield
    except BrioError:
        has_results = any(any(place.iterdir()) for place in (folder / RUNS, folder / CHECKPOINTS) if place.is_dir())
        if missing and not has_results and not list_heartbeats(folder):
            remove_quietly(folder)
            for place in missing[1:]:
                remove_empty_folder(place)
        raise


def _agree_on_stacks(plan: JobPlan, folder: Path) -> JobPlan:
    """Return a plan with the stacks of the first process that shares a folder, which may have other memory.

    Its plan lies in a folder that only one process can create. All others write the same plan as the first.
    """
    place = folder / SHARED_PLAN
    try:
        with create_whole_folder(place) as partial:
            write_new(partial / PLAN, format_json(plan.document.to_json()))
            write_sums(partial, [PLAN])
    except BrioError:
        if not place.is_dir():  # else another process was faster
            raise
    return resume_plan(Plan.read(place, f"remove {place} and give the command again"), plan, folder)


def _remove_leftovers(store: RunStore, folder: Path, shared: bool) -> None:
    """Remove what dead processes left; while others may be writing, only what is known to be of a dead one."""
    remove_dead_heartbeats(folder, at_work=shared)
    alone = not shared and not list_heartbeats(folder)
    remove_leftovers(folder, reserved=alone)
    store.remove_partial_runs(reserved=alone)
    remove_partial_checkpoints(folder / CHECKPOINTS, reserved=alone)


def _mend_cohort_files(job: Job, plan: Plan, folder: Path) -> None:
    """Write what a plan is stored with again, if a file of it is damaged; the job tells it anew."""
    if plan.hashes is None:
        return
    try:
        for path in (folder / name for name in (COHORT_FACTS, GROUPS, AUDIT, EXCLUSIONS)):
            if is_kept(path, WRITTEN_AGAIN):
                check_file(path, WRITTEN_AGAIN)
    except BrioError as damage:
        job.say(str(damage))
        write_job_plan(job, plan, folder)


def write_job_plan(job: Job, plan: Plan, folder: Path) -> None:
    """Write the plan of a job and the facts about its cohort."""
    audited = job.audit
    write_plan(
        folder,
        plan,
        describe_cohort(job.cohort),
        None if audited is None else audited.to_dict(),
        group_participants(job.cohort),
    )

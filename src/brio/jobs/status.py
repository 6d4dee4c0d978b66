"""The progress of a job, a search or a study, read from its folder by any process."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path

from ..errors import BrioError, take_first_line
from ..formatting import format_count, format_time
from ..results import Plan, RunStore
from ..results.files import CHECKPOINTS, MEMBERS, PLAN, RUNS, SEARCH, SHARED_PLAN, SUMMARY, is_kept, require_folder
from ..results.store import WORKERS, Heartbeat, list_failures, list_heartbeats

LEAST_SHARE = 0.03
"""Share of a stack after which the time of the rest is estimated from it."""


def describe_jobs(folder: Path) -> list[str]:
    """Describe the progress of the jobs in a folder: one for ``brio run``, two for ``brio tune``, one per study arm.

    Nothing is written, and the folder is not locked.
    """
    require_folder(folder)
    lines = [line for place in _find_jobs(folder) for line in _describe_job(place)]
    if not lines:
        remedy = "give the --out folder of 'brio run', 'brio tune' or 'brio study', or wait until the job is planned"
        raise BrioError(f"{folder}: contains no plan of a job ({PLAN}); {remedy}")
    return lines


def _find_jobs(folder: Path) -> Iterator[Path]:
    """Find folders with a plan, searches before the jobs that follow them."""
    for place, folders, _ in os.walk(folder):
        folders[:] = sorted(set(folders) - {RUNS, SHARED_PLAN, WORKERS, CHECKPOINTS, SEARCH})  # none has jobs inside
        yield from (Path(place, name) for name in (SEARCH, ".") if Path(place, name, PLAN).is_file())


def _describe_job(folder: Path) -> list[str]:
    """Describe the progress of a job in lines; none for reused results, which have no runs of their own."""
    plan, store = Plan.read(folder), RunStore(folder / RUNS)
    if plan.reused_from is not None:
        return []
    keys = [key for stack in plan.stacks for key in stack]
    done = [key for key in keys if key in store]
    lines = [f"{folder}: {len(done)} of {len(keys)} runs are finished ({100 * len(done) // max(1, len(keys))}%)"]
    if len(done) == len(keys):
        has_tables = is_kept(folder / SUMMARY) or folder.name in (SEARCH, MEMBERS)
        to_do = "run the command of the job without --shard to write them"
        return lines if has_tables else [*lines, f"  no tables yet; {to_do}"]
    finished = {number for number, stack in enumerate(plan.stacks, 1) if all(key in store for key in stack)}
    unfinished = set(range(1, len(plan.stacks) + 1)) - finished
    running = [heartbeat for heartbeat in list_heartbeats(folder) if heartbeat.stack in unfinished]
    at_work = {heartbeat.stack for heartbeat in running}
    failed = [failure for failure in list_failures(folder) if failure.stack not in finished | at_work]
    waiting = len(plan.stacks) - len(finished) - len(at_work) - len(failed)
    lines.append(f"  stacks: {len(finished)} done, {len(at_work)} running, {waiting} waiting, {len(failed)} failed")
    lines += [f"  running on {h.host}, process {h.process}: {h.title}, {100 * h.share:.0f}%" for h in running]
    lines += [f"  failed on {f.host}: {f.title}: {take_first_line(f.reason)}" for f in failed]
    return [*lines, f"  time left: {_describe_time_left(plan, store, running)}"]


def _describe_time_left(plan: Plan, store: RunStore, running: list[Heartbeat]) -> str:
    """Describe how long the rest of a job takes, from finished runs of the same methods and from stacks under way."""
    measured = {
        h.stack: max(0.0, time.time() - h.started) * (1 / h.share - 1) for h in running if h.share >= LEAST_SHARE
    }
    under_way = {key for number in measured for key in plan.stacks[number - 1]}
    methods = plan.find_methods()
    seconds, unknown = store.estimate_rest({key: name for key, name in methods.items() if key not in under_way})
    workers = {(heartbeat.host, heartbeat.process) for heartbeat in running}
    total = max([(seconds + sum(measured.values())) / max(1, len(workers)), *measured.values()])
    pace = "once the command of the job is run again"
    if workers:
        here = len(workers) == 1 and {host for host, _ in workers} == {platform.node()}
        pace = "on this machine" if here else f"with {format_count(len(workers), 'process', 'processes')} at work"
    if not unknown:
        return f"about {format_time(total)} {pace}, at the rate of what is finished"
    of = ", ".join(f"{name} ({format_count(n, 'run')})" for name, n in unknown.items())
    rest = f"; about {format_time(total)} for the others" if total else ""
    return f"unknown for {of} until one of its runs is finished{rest}"

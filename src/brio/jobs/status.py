"""The progress of a job, a search or a study, read from its folder by any process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from ..errors import BrioError, take_first_line
from ..formatting import format_count, format_time
from ..results import Plan, RunStore
from ..results.files import CHECKPOINTS, MEMBERS, PLAN, RUNS, SEARCH, SHARED_PLAN, SUMMARY, is_kept, require_folder
from ..results.store import WORKERS, list_failures, list_heartbeats


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
    running = [heartbeat for heartbeat in list_heartbeats(folder) if heartbeat.stack not in finished]
    at_work = {heartbeat.stack for heartbeat in running}
    failed = [failure for failure in list_failures(folder) if failure.stack not in finished | at_work]
    waiting = len(plan.stacks) - len(finished) - len(at_work) - len(failed)
    lines.append(f"  stacks: {len(finished)} done, {len(at_work)} running, {waiting} waiting, {len(failed)} failed")
    lines += [f"  running on {h.host}, process {h.process}: {h.title}, {100 * h.share:.0f}%" for h in running]
    lines += [f"  failed on {f.host}: {f.title}: {take_first_line(f.reason)}" for f in failed]
    measured = {h.stack: max(0.0, time.time() - h.started) * (1 / h.share - 1) for h in running if h.share}
    others = [key for number, stack in enumerate(plan.stacks, 1) if number not in measured for key in stack]
    missing = len(others) - sum(key in store for key in others)
    if missing and not done:
        return [*lines, "  time left: unknown until a stack is finished"]
    seconds_per_run = sum(store.read_record(key).row.seconds for key in done) / max(1, len(done))
    seconds = missing * seconds_per_run + sum(measured.values())
    workers = len({(heartbeat.host, heartbeat.process) for heartbeat in running})
    pace = f"with {format_count(workers, 'worker', 'workers')}" if workers else "once a worker is available"
    return [*lines, f"  time left: about {format_time(seconds / max(1, workers))} {pace}, at the rate so far"]

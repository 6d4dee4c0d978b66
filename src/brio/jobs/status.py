"""How far a job, a search or a study is, read from its folder by any process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import BrioError, take_first_line
from ..formatting import format_time
from ..results import Plan, RunStore
from ..results.files import CHECKPOINTS, MEMBERS, PLAN, RUNS, SEARCH, SHARED_PLAN, SUMMARY, is_kept, require_folder
from ..results.store import WORKERS, Failure, Heartbeat, list_failures, list_heartbeats


@dataclass(frozen=True)
class JobStatus:
    """How far one job is."""

    folder: Path
    n_stacks: int  # of the plan
    n_runs: int
    finished_stacks: int
    finished_runs: int
    running: list[Heartbeat] = field(default_factory=list)  # stacks that live workers train
    failed: list[Failure] = field(default_factory=list)  # stacks that are neither finished nor in training, and why
    seconds: float = 0.0  # sum over the finished runs
    has_tables: bool = False

    @property
    def waiting_stacks(self) -> int:
        """Stacks that nobody has begun."""
        begun = {heartbeat.stack for heartbeat in self.running} | {failure.stack for failure in self.failed}
        return self.n_stacks - self.finished_stacks - len(begun)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until all runs are finished, if the others take as long; None where none is finished yet."""
        if not self.finished_runs:
            return None
        workers = max(1, len({(heartbeat.host, heartbeat.process) for heartbeat in self.running}))
        return self.seconds / self.finished_runs * (self.n_runs - self.finished_runs) / workers


def read_statuses(folder: Path) -> list[JobStatus]:
    """Read how far the jobs in a folder are: one of ``brio run``, two of ``brio tune``, each arm of ``brio study``.

    Nothing is written, and no lock is asked for.
    """
    require_folder(folder)
    statuses = list(filter(None, map(_read_status, _find_jobs(folder))))
    if not statuses:
        raise BrioError(
            f"{folder}: holds no plan of a job ({PLAN}); give the --out of 'brio run', 'brio tune' or 'brio study', or "
            "wait until the job has planned its runs"
        )
    return statuses


def _find_jobs(folder: Path) -> Iterator[Path]:
    """Find folders with a plan, searches before the jobs that follow them."""
    for place, folders, _ in os.walk(folder):
        folders[:] = sorted(set(folders) - {RUNS, SHARED_PLAN, WORKERS, CHECKPOINTS, SEARCH})  # none has jobs inside
        yield from (Path(place, name) for name in (SEARCH, ".") if Path(place, name, PLAN).is_file())


def _read_status(folder: Path) -> JobStatus | None:
    """Read how far a job is; None of reused results, which have no runs of their own."""
    plan, store = Plan.read(folder), RunStore(folder / RUNS)
    if plan.reused_from is not None:
        return None
    finished = {number for number, stack in enumerate(plan.stacks, 1) if all(key in store for key in stack)}
    keys = [key for stack in plan.stacks for key in stack]
    done = [key for key in keys if key in store]
    running = [heartbeat for heartbeat in list_heartbeats(folder) if heartbeat.stack not in finished]
    settled = finished | {heartbeat.stack for heartbeat in running}
    return JobStatus(
        folder=folder,
        n_stacks=len(plan.stacks),
        n_runs=len(keys),
        finished_stacks=len(finished),
        finished_runs=len(done),
        running=running,
        failed=[failure for failure in list_failures(folder) if failure.stack not in settled],
        seconds=sum(store.read_record(key).row.seconds for key in done),
        has_tables=is_kept(folder / SUMMARY) or folder.name in (SEARCH, MEMBERS),
    )


def describe_status(status: JobStatus, name: str) -> list[str]:
    """Describe how far a job is, in lines."""
    share = 100 * status.finished_runs // max(1, status.n_runs)
    lines = [
        f"{name}: {status.finished_runs} of {status.n_runs} runs are finished ({share} %)",
        f"  stacks: {status.finished_stacks} done, {len({h.stack for h in status.running})} running, "
        f"{status.waiting_stacks} waiting, {len(status.failed)} failed",
    ]
    lines += [f"  running on {h.describe_place()}: {h.title}, {100 * h.share:.0f} %" for h in status.running]
    lines += [f"  failed on {f.host}: {f.title}: {take_first_line(f.reason)}" for f in status.failed]
    if status.finished_runs == status.n_runs:
        return (
            lines[:1] if status.has_tables else [lines[0], "  no tables yet: the command without --shard writes them"]
        )
    left = status.seconds_left
    if left is None:
        return [*lines, "  time left: not known before a stack is finished"]
    workers = len({(h.host, h.process) for h in status.running})
    pace = f"with {workers} worker{'s' if workers > 1 else ''}" if workers else "once a worker is there"
    return [*lines, f"  time left: about {format_time(left)} {pace}, if the rest takes as long"]

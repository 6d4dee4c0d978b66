"""The engine of a Dask cluster: every stack is one task, the longest first."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from contextlib import ExitStack
from typing import Any

from ...errors import BrioError, describe_error, take_first_line
from ...formatting import format_count
from ...results import RunStore
from ...results.heartbeats import Failure, list_heartbeats, record_failure
from ..job import Job
from ..plan import JobPlan
from ..spec import Engine
from .clusters import ClusterOptions, connect, require_dask
from .remote import UnfitWorkerError, make_task, train_task
from .workers import Workers

POLL_SECONDS = 1.0
VISIBLE_SECONDS = 120.0
DEADLY = 3
"""Workers that die over a stack before it is given up. One death is often that of the machine; a stack that needs more
memory than there is kills every worker that it is given to."""


class DaskEngine(Engine):
    """Train stacks on the workers of a Dask cluster, which is started when the first stack has to be trained.

    Workers read the cohort and write runs through a file system that they share with this process. The cluster holds
    nothing else: when it is lost, the same command goes on from the finished stacks. Use it as a context manager.
    """

    shares_folder = True

    def __init__(self, options: ClusterOptions, method_files: tuple[str, ...] = ()) -> None:
        require_dask(options.slurm is not None)
        self._options, self._method_files = options, method_files
        self._opened = ExitStack()
        self._client: Any = None
        self._workers: Workers | None = None

    def __enter__(self) -> DaskEngine:
        return self

    def __exit__(self, *further: object) -> None:
        self._opened.close()

    def train(self, job: Job, plan: JobPlan, store: RunStore, allow_divergence: bool = False) -> None:
        """Train stacks side by side, see :class:`brio.jobs.spec.Engine`.

        A stack that fails does not stop the others.
        """
        from ..train import close_if_finished, estimate_costs

        costs = estimate_costs(plan, job.cohort)
        waiting = [number for number in range(1, len(costs) + 1) if not close_if_finished(plan, number, store)]
        if not waiting:
            return
        waiting.sort(key=lambda number: (-costs[number - 1], number))
        client, workers = self._connect(job, plan)
        _Dispatch(client, workers, job, plan, store, costs, waiting).run(allow_divergence, self._method_files)

    def _connect(self, job: Job, plan: JobPlan) -> tuple[Any, Workers]:
        if self._workers is None:
            gpu = job.device.torch_device.type == "cuda"
            self._client = self._opened.enter_context(connect(self._options, plan.document.threads, gpu))
            self._workers = Workers(self._client, gpu, self._options.n_workers)
        return self._client, self._workers


class _Dispatch:
    """The stacks of one plan on their way to the workers and back.

    Each is given to one free worker. So a worker that dies is held against one stack, whatever the scheduler allows.
    """

    def __init__(
        self,
        client: Any,
        workers: Workers,
        job: Job,
        plan: JobPlan,
        store: RunStore,
        costs: list[float],
        waiting: list[int],
    ) -> None:
        self.client, self.workers, self.job, self.plan, self.store = client, workers, job, plan, store
        self.costs, self.waiting = costs, waiting
        self.running: dict[Any, tuple[int, str]] = {}
        self.unseen: dict[int, tuple[str, float]] = {}
        self.failed: dict[int, str] = {}
        self.deaths: Counter[int] = Counter()
        self.refused: set[int] = set()
        self.handed_out = False
        self.resources = {"GPU": 1} if job.device.torch_device.type == "cuda" else None
        self.done = sum(costs) - sum(costs[number - 1] for number in waiting)

    def run(self, allow_divergence: bool, method_files: tuple[str, ...]) -> None:
        """Hand out stacks until all are finished or failed."""
        try:
            while self.waiting or self.running or self.unseen:
                self._require_scheduler()
                for number, address in self._choose_next():
                    task = make_task(
                        self.job,
                        self.plan,
                        number,
                        self.store,
                        method_files=method_files,
                        allow_divergence=allow_divergence,
                    )
                    future = self.client.submit(
                        train_task, task, pure=False, workers=[address], resources=self.resources, retries=0
                    )
                    self.running[future] = number, address
                self._wait()
                self._collect()
                self._report()
        finally:
            with contextlib.suppress(Exception):  # the cluster may be gone
                self.client.cancel(list(self.running))
        if self.failed:
            number, reason = next(iter(self.failed.items()))
            count = f"{len(self.failed)} of {len(self.costs)} stacks failed, all others are finished"
            raise BrioError(f"{count}: {self._name(number)}: {reason}. Mend the cause and give the same command again")

    def _require_scheduler(self) -> None:
        if self.client.status not in ("running", "connecting"):
            raise BrioError(
                "the scheduler of Dask is lost; start it again and give the same command again: it goes on from the "
                "finished stacks"
            )

    def _choose_next(self) -> list[tuple[int, str]]:
        """Choose a stack for every free worker. Stacks that another client has given out are left to it."""
        from ..train import is_finished

        if self.client.status != "running":  # it tries to reach the scheduler again
            return []
        at_work = {address for _, address in self.running.values()}
        free = [address for address in self.workers.list_free(self.job) if address not in at_work]
        elsewhere = {heartbeat.stack for heartbeat in list_heartbeats(self.store.folder.parent)}
        chosen = []
        for number in list(self.waiting):
            if is_finished(self.plan, number, self.store):
                self.waiting.remove(number)
                self._finish(number)
            elif free and number not in elsewhere:
                self.waiting.remove(number)
                chosen.append((number, free.pop(0)))
        if chosen and not self.handed_out:
            self.handed_out = True
            self._suggest_smaller_stacks(len(free))
        return chosen

    def _suggest_smaller_stacks(self, n_idle: int) -> None:
        """Say that workers are left over from the start, if stacks could be smaller."""
        if n_idle and not self.waiting and any(len(stack) > 1 for stack in self.plan.document.stacks):
            n_stacks = format_count(len(self.costs), "stack", "stacks")
            self.job.say(
                f"{n_stacks} for more workers than that: --runs-per-stack makes smaller ones, in another --out"
            )

    def _wait(self) -> None:
        """Wait until a stack comes back, but not longer than a moment: workers may have come, or other clients gone."""
        end = time.monotonic() + POLL_SECONDS
        while time.monotonic() < end and all(future.status == "pending" for future in self.running):
            time.sleep(0.05)

    def _collect(self) -> None:
        """Take back what is finished, failed, or was lost with its worker or its scheduler."""
        live = self.workers.list_live()
        for future, (number, address) in list(self.running.items()):
            if future.status == "pending" and (live is None or address in live):
                continue
            del self.running[future]
            if future.status == "finished":
                self.unseen[number] = address, time.monotonic()
            elif future.status == "error":
                self._fail(number, address, future.exception())
            elif future.status == "pending":
                future.cancel()  # it waits for a worker that is gone
                self._count_deaths(number, address, 1)
            else:
                self.waiting.insert(0, number)
        self._look_for_stored_runs()

    def _look_for_stored_runs(self) -> None:
        """Look for what workers say they have stored; on a network file system it may be seen a little later."""
        from ..train import is_finished

        for number, (address, since) in list(self.unseen.items()):
            if is_finished(self.plan, number, self.store):
                del self.unseen[number]
                self._finish(number)
            elif time.monotonic() - since > VISIBLE_SECONDS:
                del self.unseen[number]
                folder = self.store.folder.resolve()
                reason = f"the worker at {address} has stored it, but it is not in {folder} here; use a folder that all"
                self._give_up(number, f"{reason} machines share")

    def _finish(self, number: int) -> None:
        self.done += self.costs[number - 1]

    def _fail(self, number: int, address: str, error: BaseException) -> None:
        from distributed.scheduler import KilledWorker

        if isinstance(error, KilledWorker):
            self._count_deaths(number, address, getattr(error, "allowed_failures", 0) + 1)
        elif isinstance(error, UnfitWorkerError) and number not in self.refused:
            self.refused.add(number)  # a second worker that cannot train it means that it is not the worker
            self.workers.exclude(address, str(error), self.job)
            self.waiting.insert(0, number)
        else:
            self._give_up(number, take_first_line(describe_error(error)))  # the record of the failure has all of it

    def _count_deaths(self, number: int, address: str, deaths: int) -> None:
        """Give a stack to another worker, unless too many have died over it."""
        self.deaths[number] += deaths
        if self.deaths[number] < DEADLY:
            self.waiting.insert(0, number)
            return
        reason = f"{self.deaths[number]} workers died over it, perhaps for want of memory; give workers more, or "
        reason += "--runs-per-stack 1"
        failure = Failure(number, self._name(number), address, reason)
        with contextlib.suppress(BrioError):  # what is said below matters more
            record_failure(self.store.folder.parent, failure)  # dead workers cannot
        self._give_up(number, reason)

    def _give_up(self, number: int, reason: str) -> None:
        self.failed[number] = reason
        self.job.say(f"failed: {self._name(number)}: {reason}")

    def _name(self, number: int) -> str:
        from ..train import name_stack

        return name_stack(self.plan, number)

    def _report(self) -> None:
        """Show the progress of all workers as one."""
        beats = {beat.stack: beat for beat in list_heartbeats(self.store.folder.parent)}
        share = self.done + sum(self.costs[number - 1] * beat.share for number, beat in beats.items())
        hosts = len({(beat.host, beat.process) for beat in beats.values()})
        titles = "; ".join(f"{beat.title} {100 * beat.share:.0f} %" for beat in list(beats.values())[:3])
        self.job.progress(f"at work: {hosts} ({titles})" if beats else "waiting", min(1.0, share / sum(self.costs)))

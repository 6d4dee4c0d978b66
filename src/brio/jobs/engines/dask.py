"""The engine of a Dask cluster: every stack is one task, the longest first."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from ...errors import BrioError
from ...results import RunStore
from ...results.heartbeats import Failure, list_heartbeats, record_failure
from ...version import __version__
from ..job import Job
from ..plan import JobPlan
from .clusters import ALLOWED_FAILURES, ClusterOptions, connect, require_dask
from .remote import OtherVersionError, describe_versions, make_task, train_task

__all__ = ["DaskEngine"]

POLL_SECONDS = 1.0


class DaskEngine:
    """Train stacks on the workers of a Dask cluster, which is started when the first stack has to be trained.

    Workers read the cohort and write runs through a file system that they share with this process. The cluster holds
    nothing else: when it is lost, the same command goes on from the finished stacks. Use it as a context manager.

    Parameters
    ----------
    options : ClusterOptions
    method_files : tuple of str
        Files with a user's own methods, which workers load.
    """

    shares_folder = True

    def __init__(self, options: ClusterOptions, method_files: tuple[str, ...] = ()) -> None:
        require_dask(options.slurm is not None)
        self._options, self._method_files = options, method_files
        self._opened = ExitStack()
        self._client: Any = None

    def __enter__(self) -> DaskEngine:
        return self

    def __exit__(self, *further: object) -> None:
        self._opened.close()

    def train(self, job: Job, plan: JobPlan, store: RunStore, allow_divergence: bool = False) -> None:
        """Train every stack that is not finished, see :class:`brio.jobs.spec.Engine`.

        Parameters
        ----------
        job : Job
        plan : JobPlan
            With its stacks.
        store : RunStore
        allow_divergence : bool
            Whether a run that diverges is stored without scores, as in a search; else its stack fails.

        Raises
        ------
        BrioError
            If a stack failed, once all others are finished; if the scheduler is lost, or a worker has another version
            of brio.
        """
        from ..train import estimate_costs, is_finished

        costs = estimate_costs(plan, job.cohort)
        waiting = [number for number in range(1, len(costs) + 1) if not is_finished(plan, number, store)]
        if not waiting:
            return
        waiting.sort(key=lambda number: (-costs[number - 1], number))
        _Dispatch(self._connect(job, plan), job, plan, store, costs, waiting).run(allow_divergence, self._method_files)

    def _connect(self, job: Job, plan: JobPlan) -> Any:
        if self._client is None:
            gpu = job.device.torch_device.type == "cuda"
            self._client = self._opened.enter_context(connect(self._options, plan.document.threads, gpu))
            self._check_versions()
        return self._client

    def _check_versions(self) -> None:
        """Ask the workers that are there for their version of brio; those that come later check it themselves."""

        def find_version() -> str:  # sent by value, since the function may not be in another version
            try:
                import brio.version

                return str(brio.version.__version__)
            except ImportError:
                return "not installed"

        for address, version in self._client.run(find_version).items():
            if version != __version__:
                raise BrioError(describe_versions(__version__, version, address))


class _Dispatch:
    """The stacks of one plan on their way to the workers and back."""

    def __init__(
        self, client: Any, job: Job, plan: JobPlan, store: RunStore, costs: list[float], waiting: list[int]
    ) -> None:
        self.client, self.job, self.plan, self.store, self.costs = client, job, plan, store, costs
        self.waiting = waiting
        self.running: dict[Any, int] = {}
        self.failed: dict[int, str] = {}
        self.resources = {"GPU": 1} if job.device.torch_device.type == "cuda" else None
        self.done = sum(costs) - sum(costs[number - 1] for number in waiting)
        self.announced = False

    def run(self, allow_divergence: bool, method_files: tuple[str, ...]) -> None:
        """Hand out stacks until all are finished or failed."""
        try:
            while self.waiting or self.running:
                self._require_scheduler()
                for number in self._choose_next():
                    task = make_task(
                        self.job,
                        self.plan,
                        number,
                        self.store,
                        method_files=method_files,
                        allow_divergence=allow_divergence,
                    )
                    future = self.client.submit(train_task, task, pure=False, resources=self.resources, retries=0)
                    self.running[future] = number
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

    def _choose_next(self) -> Iterator[int]:
        """Choose stacks for workers that have none: not more than there are workers, so that each has its own.

        A worker that dies is then held against one stack. Stacks that another client has given out are left to it.
        """
        from ..train import is_finished

        if self.client.status != "running":  # it tries to reach the scheduler again
            return
        free = max(1, self._count_workers()) - len(self.running)
        elsewhere = {heartbeat.stack for heartbeat in list_heartbeats(self.store.folder.parent)}
        for number in list(self.waiting):
            if is_finished(self.plan, number, self.store):
                self._finish(number)
            elif free > 0 and number not in elsewhere:
                self.waiting.remove(number)
                free -= 1
                yield number

    def _count_workers(self) -> int:
        try:
            workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        except OSError:  # the scheduler is just being lost, which the next round will see
            return 0
        able = [worker for worker in workers if self.resources is None or worker["resources"].get("GPU", 0) >= 1]
        if not able and not self.announced:
            self.announced = True
            self.job.say(f"waiting for a worker{' with the resource GPU=1' if self.resources else ''}")
        return len(able)

    def _wait(self) -> None:
        """Wait until a stack comes back, but not longer than a moment: workers may have come, or other clients gone."""
        end = time.monotonic() + POLL_SECONDS
        while time.monotonic() < end and all(future.status == "pending" for future in self.running):
            time.sleep(0.05)

    def _collect(self) -> None:
        """Take back what is finished, failed, or was lost with its scheduler."""
        for future in [future for future in self.running if future.status != "pending"]:
            number = self.running.pop(future)
            if future.status == "finished":
                self._finish(number)
            elif future.status == "error":
                self._fail(number, future.exception())
            else:
                self.waiting.insert(0, number)

    def _finish(self, number: int) -> None:
        if number in self.waiting:
            self.waiting.remove(number)
        self.done += self.costs[number - 1]

    def _fail(self, number: int, error: BaseException) -> None:
        from distributed.scheduler import KilledWorker

        if isinstance(error, OtherVersionError):
            raise error
        if isinstance(error, KilledWorker):
            deaths = ALLOWED_FAILURES + 1
            reason = (
                f"{deaths} workers died over it, perhaps for want of memory; give workers more, or --runs-per-stack 1"
            )
            failure = Failure(number, self._name(number), error.last_worker.address, reason)
            record_failure(self.store.folder.parent, failure)  # dead workers cannot
        elif isinstance(error, BrioError):
            reason = str(error)
        else:
            reason = f"{type(error).__name__}: {error}"
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

"""The workers of a Dask cluster: which are there, which may train, which are free."""

from __future__ import annotations

import time
from typing import Any

from ...errors import BrioError
from ...version import __version__
from ..job import Job
from .remote import describe_versions

REPLACE_SECONDS = 30.0


class Workers:
    """The workers of a cluster, as a client sees them.

    Every worker is asked for its version of brio before it gets a stack. One with another version gets none, nor does
    one that cannot do its work (:meth:`exclude`): it would fail one stack after the other while others are busy.
    """

    def __init__(self, client: Any, gpu: bool, n_wanted: int | None = None) -> None:
        self._client, self._gpu, self._n_wanted = client, gpu, n_wanted
        self._last_replaced = time.monotonic()
        self._checked: set[str] = set()
        self._excluded: dict[str, str] = {}
        self._announced = False

    def list_live(self) -> set[str] | None:
        """List the addresses of the workers that are there; None while the scheduler does not answer."""
        workers = self._ask_scheduler()
        return None if workers is None else set(workers)

    def list_free(self, job: Job) -> list[str]:
        """List workers that may train and have nothing to do, and tell the user of a job where there are none."""
        workers = self._ask_scheduler()
        if workers is None:
            return []
        self._replace_missing(len(workers))
        self._check_versions(sorted(set(workers) - self._checked), job)
        able = [address for address, facts in workers.items() if self._is_able(facts)]
        usable = [address for address in able if address in self._checked and address not in self._excluded]
        if able and all(address in self._excluded for address in able):
            reasons = list(dict.fromkeys(self._excluded[address] for address in able))
            raise BrioError(f"no worker can train: {'; '.join(reasons)}")
        if not usable and not self._announced:
            self._announced = True
            job.say(f"waiting for a worker{' with the resource GPU=1' if self._gpu else ''}")
        try:
            busy = self._client.processing()
        except OSError:  # the scheduler is just being lost, which the next round will see
            return []
        return [address for address in usable if not busy.get(address)]

    def exclude(self, address: str, reason: str, job: Job) -> None:
        """Give a worker no more stacks, and tell the user why."""
        self._excluded[address] = reason
        job.say(f"the worker at {address} gets no more stacks: {reason}")

    def _ask_scheduler(self) -> dict[str, Any] | None:
        try:
            return self._client.scheduler_info(n_workers=-1).get("workers")  # a client that gave up knows of none
        except OSError:
            return None

    def _replace_missing(self, n_live: int) -> None:
        """Ask the cluster for the workers that it shall have; it starts those that it has given up."""
        if self._n_wanted is None or n_live >= self._n_wanted:
            return
        if time.monotonic() - self._last_replaced >= REPLACE_SECONDS:
            self._last_replaced = time.monotonic()
            self._client.cluster.scale(self._n_wanted)

    def _is_able(self, facts: dict[str, Any]) -> bool:
        has_memory = facts.get("status", "running") == "running"  # Dask pauses a worker that has little left
        return has_memory and (not self._gpu or facts["resources"].get("GPU", 0) >= 1)

    def _check_versions(self, newcomers: list[str], job: Job) -> None:
        def find_version() -> str:  # sent by value, since the function may not be in another version
            try:
                import brio.version

                return str(brio.version.__version__)
            except Exception:
                return "not installed"

        if not newcomers:
            return
        try:
            versions = self._client.run(find_version, workers=newcomers, on_error="ignore")  # one may die meanwhile
        except OSError:  # the scheduler is just being lost
            return
        for address, version in versions.items():
            self._checked.add(address)
            if version != __version__:
                self.exclude(address, describe_versions(__version__, version, address), job)

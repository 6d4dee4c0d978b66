"""What a worker of a cluster does: train one stack in the folder that all workers share."""

from __future__ import annotations

import pickle
import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...cohort import Cohort, relabel
from ...device import resolve_device
from ...errors import BrioError
from ...methods import find_method, load_methods, make_method
from ...results import Plan, RunStore
from ...version import __version__
from ..job import Job
from ..plan import JobPlan, PlannedRun
from ..spec import JobSpec

if TYPE_CHECKING:
    from ...connectome import Connectomes
    from ...training import Run

_one_at_a_time = threading.Lock()
"""A worker may have several threads, but a stack takes all of its cores or its GPU."""


class UnfitWorkerError(BrioError):
    """A worker cannot train the stacks of a job: it has other files, another version or GPU, or cannot write."""


@dataclass(frozen=True)
class StackTask:
    """One stack, as it travels to a worker."""

    version: str  # of brio, that made it
    method_files: tuple[str, ...]
    content: bytes  # the rest


@dataclass(frozen=True, eq=False)
class _Content:
    spec: JobSpec
    keep: np.ndarray | None
    plan: Plan
    method: str
    settings: dict[str, Any]
    runs: dict[str, Run]
    number: int
    store: RunStore
    device: str
    allow_divergence: bool


def describe_versions(here: str, there: str, place: str) -> str:
    """Say that a worker has another version of brio."""
    return f"the worker at {place} has brio {there}, this job brio {here}; install the same version on both"


def make_task(
    job: Job,
    plan: JobPlan,
    number: int,
    store: RunStore,
    *,
    method_files: tuple[str, ...] = (),
    allow_divergence: bool = False,
) -> StackTask:
    """Make the task of one stack."""
    if isinstance(job.spec.cohort, Cohort):
        raise BrioError("workers read the cohort from its folder: save it and give the folder")
    spec = replace(
        job.spec,
        cohort=Path(job.spec.cohort).resolve(),
        companions=(),  # they have had their part in the audit
        tuned=None,
        engine=None,
        device=plan.document.device,
    )
    runs = {key: plan.runs[key].run for key in plan.document.stacks[number - 1]}
    method = plan.runs[next(iter(runs))].method  # all runs of a stack have the same, with the same settings
    content = _Content(
        spec=spec,
        keep=None if job.audit is None else np.asarray(job.audit.keep),
        plan=plan.document,
        method=method.name,
        settings=asdict(method.settings),
        runs=runs,
        number=number,
        store=RunStore(store.folder.resolve(), store.records_only),
        device=job.device.describe(),
        allow_divergence=allow_divergence,
    )
    return StackTask(__version__, method_files, pickle.dumps(content))


def train_task(task: StackTask) -> None:
    """Train the stack of a task and store its runs; nothing is done where they are finished."""
    from ..train import close_if_finished, train_stack

    if task.version != __version__:
        raise UnfitWorkerError(describe_versions(task.version, __version__, platform.node()))
    with _blame_worker():
        for file in task.method_files:
            load_methods(file)
        content: _Content = pickle.loads(task.content)
        plan, number, store = _rebuild_plan(content), content.number, content.store
    with _one_at_a_time, _limit_threads(plan.document.threads):
        if close_if_finished(plan, number, store):
            return
        with _blame_worker():
            job = _prepare_job(content)
        with _blame_worker(only_for_system=True):
            train_stack(job, plan, number, store, allow_divergence=content.allow_divergence)


@contextmanager
def _blame_worker(only_for_system: bool = False) -> Iterator[None]:
    """Hold errors against this worker: all, or those that the system caused, such as a disk that is full."""
    try:
        yield
    except BrioError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, OSError):
            cause = cause.__cause__
        if cause is None and only_for_system:
            raise
        raise UnfitWorkerError(str(error)) from error


def _rebuild_plan(content: _Content) -> JobPlan:
    """Make the method of a stack anew: the class of a user's own method cannot travel, and must be the same here."""
    entry = find_method(content.method)
    if (content.plan.methods[content.method].code or "") != (entry.code or ""):
        raise BrioError(f"{entry.file}: is another file on this worker than where the job was planned")
    values = {key: value for key, value in content.settings.items() if key not in entry.fixed}
    method = make_method(content.method, values)
    runs = {key: PlannedRun(method, run, key) for key, run in content.runs.items()}
    return JobPlan(content.plan, runs)


def _limit_threads(threads: int | None):  # type: ignore[no-untyped-def]  # a context manager of another package
    """Compute with the number of threads of the plan, on which the order of sums depends.

    None in a job on a GPU: linear models are fitted with the threads that torch has on this worker.
    """
    import torch
    from threadpoolctl import threadpool_limits

    if threads is not None:
        torch.set_num_threads(threads)  # of this thread, in which the stack is trained
    return threadpool_limits(limits=torch.get_num_threads())


def _prepare_job(content: _Content) -> Job:
    """Load the cohort of a job, without auditing it again, and find the device."""
    spec, plan = content.spec, content.plan
    device = resolve_device(spec.device)
    if device.describe() != content.device:
        raise BrioError(f"this job trains on {content.device}, the worker has {device.describe()}")
    keep = None if content.keep is None else tuple(content.keep.tolist())
    whole, used = _load_cohort(spec.cohort, spec.question, keep, plan.fingerprint)
    return Job(spec, whole, used, None, device, lambda: _estimate(used, device.torch_device))


@lru_cache(maxsize=1)
def _load_cohort(
    folder: Path, question: tuple[str, int] | None, keep: tuple[int, ...] | None, fingerprint: str
) -> tuple[Cohort, Cohort]:
    whole = Cohort.load(folder)
    whole.verify()
    whole = whole if question is None else relabel(whole, *question)
    used = whole if keep is None else whole.select(np.array(keep))
    if used.fingerprint != fingerprint:
        raise BrioError(f"{folder}: is another cohort on this worker than where the job was planned")
    return whole, used


@lru_cache(maxsize=1)
def _estimate(cohort: Cohort, device: object) -> Connectomes:
    """Estimate the connectomes once for all stacks of a job; cohorts are compared by identity."""
    from ...connectome import Connectomes

    return Connectomes(cohort, device)  # type: ignore[arg-type]

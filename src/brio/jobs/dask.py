"""The Dask engine: a cluster is started or joined, its workers train stacks in a folder that they all share.

Clusters run on this machine or through SLURM, or are joined by their address. The store of runs is all that processes
share: a run is there whole or not at all, and a stack whose runs are all there is finished. A stack is given to one
free worker at a time, and not left to Dask's own queue: Dask holds the death of a worker against every task that it
was assigned, and would give up stacks that are innocent of it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import pickle
import platform
import shutil
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import settings
from ..cohort import Cohort, relabel
from ..configuration import read_configuration
from ..device import resolve_device
from ..errors import BrioError, describe_error, nearest, take_first_line
from ..formatting import format_count
from ..methods import find_method, load_methods, make_method
from ..results import Plan, RunStore
from ..results.store import Failure, list_heartbeats, record_failure
from ..settings import require, require_number
from ..version import __version__
from .job import Job
from .plan import JobPlan, PlannedRun
from .spec import Engine, JobSpec

if TYPE_CHECKING:
    from ..connectome import Connectomes
    from ..training import Run

# ---------------------------------------------------------------- clusters

WORKER_SETTINGS = {
    # stacks hold what they need: nothing of it can be moved to a disk, and a worker that paused would never go on
    "memory.target": False,
    "memory.spill": False,
    "memory.pause": False,
    # nobody looks at the profile, and the thread that makes it takes the interpreter's lock a hundred times a second
    "profile.enabled": False,
}
"""Of workers that brio starts."""

SETTINGS = {
    # a worker that dies gives its stack back to the client, which counts deaths
    "scheduler.allowed-failures": 0,
    # a worker that comes back later is none of the cluster's any more; on a busy machine its start takes a minute
    "deploy.lost-worker-timeout": "3 minutes",
    **{f"worker.{name}": value for name, value in WORKER_SETTINGS.items()},
}
"""Of clusters that brio starts; read when a scheduler or a worker starts, or is lost."""

CONNECT_SECONDS = 30
ANY_PORT = "127.0.0.1:0"
"""Where a scheduler answers browsers; nobody needs it, and the usual port may be in use."""


NEEDED = ("workers", "cores", "memory", "walltime")
"""Keys that a file of ``--slurm`` must have."""


@dataclass(frozen=True)
class SlurmOptions:
    """What a file of ``--slurm`` says."""

    workers: int  # jobs to submit, with one worker each
    cores: int  # of each job
    memory: str  # of each job, such as 16GB and 04:00:00
    walltime: str
    gpus: int = 0  # of each job, 0 or 1
    queue: str | None = None  # partition, account, network interface, Python of the workers, folder for their output
    account: str | None = None
    interface: str | None = None
    python: str | None = None
    logs: str | None = None
    directives: list[str] = field(default_factory=list)
    prologue: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> SlurmOptions:
        """Read a TOML file."""
        document = read_configuration(path, f"--slurm takes a TOML file with {', '.join(NEEDED)}")
        kinds = {"workers": int, "cores": int, "gpus": int, "directives": list, "prologue": list}
        known = cls.__dataclass_fields__
        for key, value in document.items():
            if key not in known:
                raise BrioError(f"{path}: '{key}' is unknown; {nearest(key, known)}")
            kind = kinds.get(key, str)
            texts = kind is not list or (isinstance(value, list) and all(isinstance(one, str) for one in value))
            if not isinstance(value, kind) or isinstance(value, bool) or not texts:
                words = {int: "a whole number", list: "a list of texts", str: "text in quotes"}[kind]
                raise BrioError(f"{path}: '{key}' must be {words}")
        for key in NEEDED:
            if key not in document:
                raise BrioError(f"{path}: '{key}' is missing; it says what each job of SLURM gets")
        options = cls(**document)
        require_number(options.workers, settings.Workers, "workers")
        require_number(options.cores, settings.Count, "cores")
        require(options.gpus in (0, 1), "gpus", options.gpus, "0 or 1: a worker trains one stack at a time")
        return options

    def to_keywords(self) -> dict[str, Any]:
        """Return the arguments of ``dask_jobqueue.SLURMCluster``."""
        directives = [*([f"--gres=gpu:{self.gpus}"] if self.gpus else []), *self.directives]
        return {
            "cores": 1,  # a worker trains one stack at a time, with all cores of its job
            "processes": 1,
            "job_cpu": self.cores,
            "memory": self.memory,
            "walltime": self.walltime,
            "queue": self.queue,
            "account": self.account,
            "interface": self.interface,
            "log_directory": self.logs,
            "job_extra_directives": directives,
            "job_script_prologue": [*_list_exports(self.cores), *self.prologue],
            "worker_extra_args": ["--resources", "GPU=1"] if self.gpus else [],
            "scheduler_options": {"dashboard": False, "dashboard_address": ANY_PORT},
            **({} if self.python is None else {"python": self.python}),
        }


def _list_exports(cores: int) -> list[str]:
    """List what a script of SLURM sets for its worker, which does not see the configuration of this process."""
    exported = {f"worker.{name}".replace(".", "__").upper(): value for name, value in WORKER_SETTINGS.items()}
    return [
        *(f"export {name}={cores}" for name in _THREADS),
        *(f"export DASK_DISTRIBUTED__{name}={value}" for name, value in exported.items()),
    ]


_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class ClusterOptions:
    """Which cluster to use: one of these is given."""

    workers: int | None = None  # worker processes to start on this machine
    scheduler: str | None = None  # address of a scheduler that runs, such as tcp://10.0.0.1:8786
    slurm: SlurmOptions | None = None

    @property
    def n_workers(self) -> int | None:
        """Workers that the cluster shall have; None of one that is joined."""
        return self.workers if self.slurm is None else self.slurm.workers

    def __post_init__(self) -> None:
        if sum(value is not None for value in (self.workers, self.scheduler, self.slurm)) != 1:
            raise BrioError("--engine dask needs one of --workers N, --scheduler ADDRESS and --slurm FILE.toml")
        if self.workers is not None:
            require_number(self.workers, settings.Workers, "workers")


def require_dask(slurm: bool = False) -> None:
    """Raise an error if the packages of the extra are not installed; they are not imported."""
    for name in ("distributed", *(["dask_jobqueue"] if slurm else [])):
        if importlib.util.find_spec(name) is None:
            raise BrioError(f"--engine dask needs the package {name}, which is not installed; install brio[dask]")


@contextmanager
def connect(options: ClusterOptions, threads: int | None, gpu: bool) -> Iterator[Any]:
    """Start or join a cluster."""
    import dask
    from distributed import Client

    if gpu and options.workers is not None and options.workers > 1:
        raise BrioError(
            f"--workers {options.workers} would share one GPU; start one worker for each GPU yourself and give "
            "--scheduler ADDRESS, or use --workers 1"
        )
    with contextlib.ExitStack() as stack:
        stack.enter_context(dask.config.set({f"distributed.{name}": value for name, value in SETTINGS.items()}))
        target = options.scheduler
        if target is None:
            try:
                target = stack.enter_context(_start_cluster(options, threads, gpu))
            except (OSError, ValueError, RuntimeError) as error:
                raise BrioError(f"the cluster cannot be started: {error}") from error
        try:
            client = stack.enter_context(Client(target, timeout=CONNECT_SECONDS, set_as_default=False))
        except (OSError, ValueError) as error:
            raise BrioError(f"{options.scheduler}: no scheduler of Dask answers there ({error}); start it") from error
        yield client


def _check_script(script: str) -> None:
    """Let SLURM say whether it would accept a job. A job that it refuses would be waited for without end."""
    with tempfile.TemporaryDirectory(prefix="brio-") as folder:
        path = Path(folder) / "worker.sh"
        path.write_text(script)
        ended = subprocess.run(["sbatch", "--test-only", str(path)], capture_output=True, text=True, check=False)
    if ended.returncode:
        reason = (ended.stderr or ended.stdout).strip() or f"exit status {ended.returncode}"
        raise BrioError(f"SLURM refuses the job of a worker: {take_first_line(reason)}; mend the file of --slurm")


def _start_cluster(options: ClusterOptions, threads: int | None, gpu: bool) -> Any:
    """Start workers through SLURM or on this machine."""
    if options.slurm is not None:
        from dask_jobqueue import SLURMCluster

        if shutil.which("sbatch") is None:  # else workers would be waited for without end
            raise BrioError("sbatch: there is no such command here; give --slurm on a node that can submit jobs")
        cluster = SLURMCluster(**options.slurm.to_keywords())
        try:
            _check_script(cluster.job_script())
        except BaseException:
            cluster.close()
            raise
        cluster.scale(jobs=options.slurm.workers)
        return cluster
    import torch
    from distributed import LocalCluster

    assert options.workers is not None
    n_threads = torch.get_num_threads() if threads is None else threads  # Dask would set one
    return LocalCluster(
        n_workers=options.workers,
        threads_per_worker=1,
        processes=True,
        dashboard_address=ANY_PORT,
        silence_logs=logging.ERROR,  # deaths of workers are reported in words
        memory_limit=1.0 / options.workers,
        resources={"GPU": 1} if gpu else None,
        env={name: str(n_threads) for name in _THREADS},
    )


# ---------------------------------------------------------------- what a worker does

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
    given = job.spec.cohort
    folder = given.path if isinstance(given, Cohort) else Path(given)
    if folder is None:
        raise BrioError("workers read the cohort from its folder: save it and give the folder")
    spec = replace(
        job.spec,
        cohort=folder.resolve(),
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
    from .train import train_stack

    if task.version != __version__:
        raise UnfitWorkerError(describe_versions(task.version, __version__, platform.node()))
    with _blame_worker():
        for file in task.method_files:
            load_methods(file)
        content: _Content = pickle.loads(task.content)
        plan, number, store = _rebuild_plan(content), content.number, content.store
    with _one_at_a_time, _limit_threads(plan.document.threads):
        if plan.close_if_finished(number, store):
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
    from ..connectome import Connectomes

    return Connectomes(cohort, device)  # type: ignore[arg-type]


REPLACE_SECONDS = 30.0


class Workers:
    """The workers of a cluster, as a client sees them.

    Every worker is asked for its version of brio before it gets a stack. One with another version gets none, nor does
    one that cannot do its work (:meth:`exclude`): it would fail one stack after the other while others are busy.
    """

    def __init__(self, client: Any, gpu: bool, n_wanted: int | None = None) -> None:
        self.client, self._gpu, self._n_wanted = client, gpu, n_wanted
        self._last_replaced = time.monotonic()
        self._checked: set[str] = set()
        self._excluded: dict[str, str] = {}
        self._announced = False

    def ask_scheduler(self) -> dict[str, Any] | None:
        """Ask for the workers that are there, by address; None while the scheduler does not answer."""
        try:
            return self.client.scheduler_info(n_workers=-1).get("workers")  # a client that gave up knows of none
        except OSError:
            return None

    def list_free(self, job: Job) -> list[str]:
        """List workers that may train and have nothing to do, and tell the user of a job where there are none."""
        workers = self.ask_scheduler()
        if workers is None:
            return []
        now, wanted = time.monotonic(), self._n_wanted
        if wanted is not None and len(workers) < wanted and now - self._last_replaced >= REPLACE_SECONDS:
            self._last_replaced = now
            self.client.cluster.scale(wanted)  # it starts those that it has given up
        self._check_versions(sorted(set(workers) - self._checked), job)
        able = [
            address
            for address, facts in workers.items()
            if facts.get("status", "running") == "running"  # Dask pauses a worker that has little memory left
            and (not self._gpu or facts["resources"].get("GPU", 0) >= 1)
        ]
        usable = [address for address in able if address in self._checked and address not in self._excluded]
        if able and all(address in self._excluded for address in able):
            reasons = list(dict.fromkeys(self._excluded[address] for address in able))
            raise BrioError(f"no worker can train: {'; '.join(reasons)}")
        if not usable and not self._announced:
            self._announced = True
            job.say(f"waiting for a worker{' with the resource GPU=1' if self._gpu else ''}")
        try:
            busy = self.client.processing()
        except OSError:  # the scheduler is just being lost, which the next round will see
            return []
        return [address for address in usable if not busy.get(address)]

    def exclude(self, address: str, reason: str, job: Job) -> None:
        """Give a worker no more stacks, and tell the user why."""
        self._excluded[address] = reason
        job.say(f"the worker at {address} gets no more stacks: {reason}")

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
            versions = self.client.run(find_version, workers=newcomers, on_error="ignore")  # one may die meanwhile
        except OSError:  # the scheduler is just being lost
            return
        for address, version in versions.items():
            self._checked.add(address)
            if version != __version__:
                self.exclude(address, describe_versions(__version__, version, address), job)


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
        self._workers: Workers | None = None

    def __enter__(self) -> DaskEngine:
        return self

    def __exit__(self, *further: object) -> None:
        self._opened.close()

    def train(self, job: Job, plan: JobPlan, store: RunStore, allow_divergence: bool = False) -> None:
        """Train stacks side by side, see :class:`brio.jobs.spec.Engine`.

        A stack that fails does not stop the others.
        """
        costs = plan.estimate_costs(job.cohort)
        waiting = [number for number in range(1, len(costs) + 1) if not plan.close_if_finished(number, store)]
        if not waiting:
            return
        waiting.sort(key=lambda number: (-costs[number - 1], number))
        if self._workers is None:
            gpu = job.device.torch_device.type == "cuda"
            client = self._opened.enter_context(connect(self._options, plan.document.threads, gpu))
            self._workers = Workers(client, gpu, self._options.n_workers)
        _Dispatch(self._workers, job, plan, store, costs, waiting).run(allow_divergence, self._method_files)


class _Dispatch:
    """The stacks of one plan on their way to the workers and back.

    Each is given to one free worker. So a worker that dies is held against one stack, whatever the scheduler allows.
    """

    def __init__(
        self, workers: Workers, job: Job, plan: JobPlan, store: RunStore, costs: list[float], waiting: list[int]
    ) -> None:
        self.client, self.workers, self.job, self.plan, self.store = workers.client, workers, job, plan, store
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
                if self.client.status not in ("running", "connecting"):
                    remedy = "start it again and give the same command again: it goes on from the finished stacks"
                    raise BrioError(f"the scheduler of Dask is lost; {remedy}")
                for number, address in self._choose_next():
                    further: dict[str, Any] = {"method_files": method_files, "allow_divergence": allow_divergence}
                    task = make_task(self.job, self.plan, number, self.store, **further)
                    place = {"workers": [address], "resources": self.resources}
                    self.running[self.client.submit(train_task, task, pure=False, retries=0, **place)] = number, address
                end = time.monotonic() + POLL_SECONDS  # then workers may have come, or other clients gone
                while time.monotonic() < end and all(future.status == "pending" for future in self.running):
                    time.sleep(0.05)
                self._collect()
                self._report()
        finally:
            with contextlib.suppress(Exception):  # the cluster may be gone
                self.client.cancel(list(self.running))
        if self.failed:
            number, reason = next(iter(self.failed.items()))
            count = f"{len(self.failed)} of {len(self.costs)} stacks failed, all others are finished"
            raise BrioError(
                f"{count}: {self.plan.name_stack(number)}: {reason}. Mend the cause and give the same command again"
            )

    def _choose_next(self) -> list[tuple[int, str]]:
        """Choose a stack for every free worker. Stacks that another client has given out are left to it."""
        if self.client.status != "running":  # it tries to reach the scheduler again
            return []
        at_work = {address for _, address in self.running.values()}
        free = [address for address in self.workers.list_free(self.job) if address not in at_work]
        elsewhere = {heartbeat.stack for heartbeat in list_heartbeats(self.store.folder.parent)}
        chosen = []
        for number in list(self.waiting):
            if self.plan.close_if_finished(number, self.store):
                self.waiting.remove(number)
                self.done += self.costs[number - 1]
            elif free and number not in elsewhere:
                self.waiting.remove(number)
                chosen.append((number, free.pop(0)))
        if chosen and not self.handed_out:
            self.handed_out = True
            if free and not self.waiting and any(len(stack) > 1 for stack in self.plan.document.stacks):
                n_stacks = format_count(len(self.costs), "stack", "stacks")
                advice = "--runs-per-stack makes smaller ones, in another --out"
                self.job.say(f"{n_stacks} for more workers than that: {advice}")
        return chosen

    def _collect(self) -> None:
        """Take back what is finished, failed, or was lost with its worker or its scheduler."""
        live = self.workers.ask_scheduler()
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
        for number, (address, since) in list(self.unseen.items()):
            if self.plan.close_if_finished(number, self.store):
                del self.unseen[number]
                self.done += self.costs[number - 1]
            elif time.monotonic() - since > VISIBLE_SECONDS:
                del self.unseen[number]
                folder = self.store.folder.resolve()
                reason = f"the worker at {address} has stored it, but it is not in {folder} here; use a folder that all"
                self._give_up(number, f"{reason} machines share")

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
        failure = Failure(number, self.plan.name_stack(number), address, reason)
        with contextlib.suppress(BrioError):  # what is said below matters more
            record_failure(self.store.folder.parent, failure)  # dead workers cannot
        self._give_up(number, reason)

    def _give_up(self, number: int, reason: str) -> None:
        self.failed[number] = reason
        self.job.say(f"failed: {self.plan.name_stack(number)}: {reason}")

    def _report(self) -> None:
        """Show the progress of all workers as one."""
        beats = {beat.stack: beat for beat in list_heartbeats(self.store.folder.parent)}
        share = self.done + sum(self.costs[number - 1] * beat.share for number, beat in beats.items())
        hosts = len({(beat.host, beat.process) for beat in beats.values()})
        titles = "; ".join(f"{beat.title} {100 * beat.share:.0f} %" for beat in list(beats.values())[:3])
        self.job.progress(f"at work: {hosts} ({titles})" if beats else "waiting", min(1.0, share / sum(self.costs)))

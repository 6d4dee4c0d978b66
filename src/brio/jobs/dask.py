"""The Dask engine: a cluster is started or joined, its workers train stacks in a folder that they all share.

Clusters run on this machine or through SLURM, or are joined by their address. The store of runs is all that processes
share: a run is stored completely or not at all, and a stack is finished once all of its runs are stored.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import pickle
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .. import settings
from ..cohort import Cohort, leave_out_sites, relabel
from ..configuration import read_configuration
from ..device import resolve_device
from ..errors import BrioError, describe_error, take_first_line
from ..formatting import format_count
from ..methods import find_method, load_methods
from ..methods.registry import restore_method
from ..results import RunStore
from ..results.store import Failure, list_heartbeats, record_failure
from ..schemas import check_fields
from ..version import __version__
from .job import Job, estimate_once
from .plan import JobPlan, PlannedRun
from .spec import Question

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
    # one death is often that of the machine; a stack that needs more memory than there is kills every worker
    "scheduler.allowed-failures": 2,
    # a worker that comes back later is none of the cluster's any more; on a busy machine its start takes a minute
    "deploy.lost-worker-timeout": "3 minutes",
    **{f"worker.{name}": value for name, value in WORKER_SETTINGS.items()},
}
"""Of clusters that brio starts; read when a scheduler or a worker starts, or is lost."""

CONNECT_SECONDS = 30
ANY_PORT = "127.0.0.1:0"
"""Where a scheduler answers browsers; nobody needs it, and the usual port may be in use."""


@dataclass(frozen=True)
class SlurmOptions:
    """The content of a ``--slurm`` file."""

    workers: settings.Workers  # jobs to submit, with one worker each
    cores: settings.Count  # of each job
    memory: str  # of each job, such as 16GB and 04:00:00
    walltime: str
    gpus: Literal[0, 1] = 0  # of each job: a worker trains one stack at a time
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
        usage = "--slurm takes a TOML file with at least workers, cores, memory and walltime"
        return check_fields(cls, read_configuration(path, usage), path, f"{usage}; put text in quotes")

    def to_keywords(self) -> dict[str, Any]:
        """Return the arguments of ``dask_jobqueue.SLURMCluster``."""
        given = {"memory", "walltime", "queue", "account", "interface", "python"}
        return {
            "cores": 1,  # a worker trains one stack at a time, with all cores of its job
            "processes": 1,
            "job_cpu": self.cores,
            "log_directory": self.logs,
            "job_extra_directives": [*([f"--gres=gpu:{self.gpus}"] if self.gpus else []), *self.directives],
            "job_script_prologue": [*_list_exports(self.cores), *self.prologue],
            "worker_extra_args": ["--resources", "GPU=1"] if self.gpus else [],
            "scheduler_options": {"dashboard": False, "dashboard_address": ANY_PORT},
            **{name: value for name, value in asdict(self).items() if name in given and value is not None},
        }


def _list_exports(cores: int) -> list[str]:
    """List what a SLURM script sets for its worker, which does not see the configuration of this process."""
    exported = {f"worker.{name}".replace(".", "__").upper(): value for name, value in WORKER_SETTINGS.items()}
    return [
        *(f"export {name}={cores}" for name in _THREADS),
        *(f"export DASK_DISTRIBUTED__{name}={value}" for name, value in exported.items()),
    ]


_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class ClusterOptions:
    """Which cluster to use: exactly one of these is set."""

    workers: int | None = None  # worker processes to start on this machine
    scheduler: str | None = None  # address of a scheduler that runs, such as tcp://10.0.0.1:8786
    slurm: SlurmOptions | None = None

    def __post_init__(self) -> None:
        if sum(value is not None for value in (self.workers, self.scheduler, self.slurm)) != 1:
            raise BrioError("--engine dask needs exactly one of --workers N, --scheduler ADDRESS and --slurm FILE.toml")


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
        ways_out = "use --workers 1, or start a worker for each GPU yourself and give --scheduler ADDRESS"
        raise BrioError(f"with --workers {options.workers}, all workers would share one GPU; {ways_out}")
    with ExitStack() as stack:
        stack.enter_context(dask.config.set({f"distributed.{name}": value for name, value in SETTINGS.items()}))
        target = options.scheduler
        if target is None:
            try:
                target = stack.enter_context(_start_cluster(options, threads, gpu))
                n_workers = options.workers if options.slurm is None else options.slurm.workers
                target.adapt(minimum=n_workers, maximum=n_workers)  # others take the place of those gone for good
            except (OSError, ValueError, RuntimeError) as error:
                raise BrioError(f"the cluster could not be started: {error}") from error
        try:
            client = stack.enter_context(Client(target, timeout=CONNECT_SECONDS, set_as_default=False))
        except (OSError, ValueError) as error:
            problem, remedy = f"{options.scheduler}: no Dask scheduler answers at this address", "start the scheduler"
            if options.scheduler is None:
                problem, remedy = "the Dask scheduler that brio started does not answer", "run the command again"
            raise BrioError(f"{problem} ({error}); {remedy}") from error
        yield client


def _check_script(script: str) -> None:
    """Ask SLURM whether it would accept a job, because brio would wait forever for a job that SLURM rejects."""
    with tempfile.TemporaryDirectory(prefix="brio-") as folder:
        path = Path(folder) / "worker.sh"
        path.write_text(script)
        ended = subprocess.run(["sbatch", "--test-only", str(path)], capture_output=True, text=True, check=False)
    if ended.returncode:
        reason = (ended.stderr or ended.stdout).strip() or f"exit status {ended.returncode}"
        raise BrioError(f"SLURM rejected the worker job: {take_first_line(reason)}; correct the --slurm file")


def _start_cluster(options: ClusterOptions, threads: int | None, gpu: bool) -> Any:
    """Start workers through SLURM or on this machine."""
    if options.slurm is not None:
        from dask_jobqueue import SLURMCluster

        if shutil.which("sbatch") is None:  # else workers would be waited for without end
            raise BrioError("sbatch: command not found; use --slurm on a node that can submit jobs")
        cluster = SLURMCluster(**options.slurm.to_keywords())
        try:
            _check_script(cluster.job_script())
        except BaseException:
            cluster.close()
            raise
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


def pack_stack(job: Job, plan: JobPlan, number: int, store: RunStore, allow_divergence: bool = False) -> bytes:
    """Pack one stack with all that a worker needs to train it, for :func:`train_packed`."""
    given = job.spec.cohort
    folder = given.path if isinstance(given, Cohort) else Path(given)
    if folder is None:
        raise BrioError("workers read the cohort from a folder; save the cohort and pass its folder")
    # companions have had their part in the audit
    spec = replace(
        job.spec, cohort=folder.resolve(), companions=(), tuned=None, engine=None, device=plan.document.device
    )
    runs = {key: plan.runs[key].run for key in plan.document.stacks[number - 1]}
    method = plan.runs[next(iter(runs))].method  # all runs of a stack have the same, with the same settings
    keep = None if job.audit is None else tuple(job.audit.keep.tolist())
    store = RunStore(store.folder.resolve(), store.records_only)
    content = (spec, keep, plan.document, method.name, asdict(method.settings), runs, number, store)
    return pickle.dumps((*content, job.device.describe(), allow_divergence))


def train_packed(packed: bytes, method_files: tuple[str, ...] = ()) -> str:
    """Train a packed stack and store its runs, unless it is finished; returns why this worker cannot, else nothing.

    A worker cannot train the stack if it has other files or another GPU, or if its system fails, for example because
    the disk is full. All other errors count against the stack and are raised.
    """
    from .train import train_stack

    BrioError.names_options = True  # only the command line has workers
    prepared = False
    try:
        for file in method_files:
            load_methods(file)
        spec, keep, document, name, values, runs, number, store, device_name, allow_divergence = pickle.loads(packed)
        entry = find_method(name)  # the class of a user's own method cannot travel, and must be the same here
        if (document.methods[name].code or "") != (entry.code or ""):
            raise BrioError(
                f"{entry.file}: on this worker, the file differs from that of the job; give the worker the same file"
            )
        method = restore_method(name, values)
        plan = JobPlan(document, {key: PlannedRun(method, run, key) for key, run in runs.items()})
        with _one_at_a_time, _limit_threads(document.threads):
            if plan.close_if_finished(number, store):
                return ""
            device = resolve_device(spec.device)
            if device.describe() != device_name:
                raise BrioError(
                    f"this job trains on {device_name}, but the worker has {device.describe()}; use another worker"
                )
            cohorts = _load_cohort(spec.cohort, spec.leave_out, spec.question, keep, document.fingerprint)
            estimate = _estimate(cohorts[1], device.torch_device)
            job, prepared = Job(spec, *cohorts, None, device, estimate), True
            train_stack(job, plan, number, store, allow_divergence=allow_divergence)
    except BrioError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, OSError):
            cause = cause.__cause__
        if prepared and cause is None:
            raise
        return str(error)
    return ""


def _limit_threads(threads: int | None):  # type: ignore[no-untyped-def]  # a context manager of another package
    """Compute with the number of threads of the plan, on which the order of sums depends.

    None in a job on a GPU: linear models are fitted with the threads that torch has on this worker.
    """
    import torch
    from threadpoolctl import threadpool_limits

    if threads is not None:
        torch.set_num_threads(threads)  # of this thread, in which the stack is trained
    return threadpool_limits(limits=torch.get_num_threads())


@lru_cache(maxsize=1)
def _load_cohort(
    folder: Path, leave_out: tuple[str, ...], question: Question | None, keep: tuple[int, ...] | None, fingerprint: str
) -> tuple[Cohort, Cohort]:
    """Load a cohort, whole and as a job uses it, once for all stacks of the job; it is not audited again."""
    whole = Cohort.load(folder)
    whole.verify()
    whole = leave_out_sites(whole, leave_out)
    whole = whole if question is None else relabel(whole, *question)
    used = whole if keep is None else whole.select(np.array(keep))
    if used.fingerprint != fingerprint:
        problem = f"{folder}: on this worker, the cohort differs from that of the job"
        raise BrioError(f"{problem}; give the worker the same cohort")
    return whole, used


_estimate = lru_cache(maxsize=1)(estimate_once)
"""Estimates connectomes once for all stacks of a job; cohorts are compared by identity."""


# ---------------------------------------------------------------- what the command does

POLL_SECONDS = 1.0
VISIBLE_SECONDS = 120.0


class DaskEngine(ExitStack):
    """Train stacks on the workers of a Dask cluster, which is started when the first stack has to be trained.

    Workers read the cohort and write runs through a file system that they share with this process. The cluster holds
    nothing else: if it is lost, the same command continues from the finished stacks. Use it as a context manager.
    """

    shares_folder, shard = True, None

    def __init__(self, options: ClusterOptions, method_files: tuple[str, ...] = ()) -> None:
        super().__init__()
        require_dask(options.slurm is not None)
        self.client: Any = None
        self.options, self.method_files = options, method_files
        self.excluded: dict[str, str] = {}  # why workers get no more stacks, by address
        self.announced = False  # whether the user knows that a worker is waited for

    def train(self, job: Job, plan: JobPlan, store: RunStore, allow_divergence: bool = False) -> None:
        """Train stacks side by side, the costly ones first; one that fails does not stop the others."""
        costs = plan.estimate_costs(job.cohort)
        waiting = [number for number in costs if not plan.close_if_finished(number, store)]
        if not waiting:
            return
        waiting.sort(key=lambda number: -costs[number])
        gpu = job.device.torch_device.type == "cuda"
        if self.client is None:
            self.client = self.enter_context(connect(self.options, plan.document.threads, gpu))
        _Dispatch(self, job, plan, store, costs, waiting, gpu).run(allow_divergence)


@dataclass(eq=False)
class _Dispatch:
    """The stacks of one plan on their way to the workers and back.

    Dask chooses their workers, repeats what was lost with a worker, and counts such losses against every task that was
    assigned to the worker. A stack that kills its workers would thus make others fail too: therefore a stack waits here
    until a worker is free.
    """

    engine: DaskEngine
    job: Job
    plan: JobPlan
    store: RunStore
    costs: dict[int, float]  # of all stacks, by number
    waiting: list[int]
    gpu: bool
    running: dict[Any, int] = field(default_factory=dict)  # by future
    unseen: dict[int, tuple[str, float]] = field(default_factory=dict)  # by whom and when stored, but not seen here
    failed: dict[int, str] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    usable: list[str] = field(default_factory=list)  # workers

    def run(self, allow_divergence: bool) -> None:
        """Submit stacks until all are finished or have failed."""
        from distributed import wait

        first = True
        try:
            while self.waiting or self.running or self.unseen:
                if self.engine.client.status not in ("running", "connecting"):
                    first_step = "" if self.engine.options.scheduler is None else "start the scheduler again and "
                    remedy = f"{first_step}run the same command to resume"
                    raise BrioError(f"the connection to the Dask scheduler was lost; {remedy}")
                n_free = self._count_free()
                given = self._choose(n_free)
                for number in given:
                    packed = pack_stack(self.job, self.plan, number, self.store, allow_divergence)
                    self.running[self._submit(packed)] = number
                if given and first:
                    first = False
                    if n_free > len(given) and any(len(stack) > 1 for stack in self.plan.document.stacks):
                        n_stacks = format_count(len(given), "stack is", "stacks are")
                        self.job.say(
                            f"some workers are idle, because only {n_stacks} left to train; for more stacks, set a "
                            "smaller --runs-per-stack and use another --out"
                        )
                if self.running:  # workers may come meanwhile, or other clients go
                    with self.engine.client.as_current(), contextlib.suppress(TimeoutError, CancelledError):
                        wait(list(self.running), timeout=POLL_SECONDS, return_when="FIRST_COMPLETED")
                else:
                    time.sleep(POLL_SECONDS)
                self._collect()
                self._report()
        finally:
            with contextlib.suppress(Exception):  # the cluster may be gone
                self.engine.client.cancel(list(self.running))
        if self.failed:
            number, reason = next(iter(self.failed.items()))
            count = f"{len(self.failed)} of {len(self.costs)} stacks failed; all others are finished"
            failure = f"The first failure: {self.plan.name_stack(number)}: {reason}"
            raise BrioError(f"{count}. {failure}. Correct the problem and run the command again")

    def _count_free(self) -> int:
        """Count the workers that may train and have nothing to do; none while the scheduler does not answer."""
        if self.engine.client.status != "running":  # it tries to reach the scheduler again
            return 0
        try:
            workers = self.engine.client.scheduler_info(n_workers=-1).get("workers", {})
            tasks = self.engine.client.processing()
        except OSError:  # the scheduler is just being lost, which the next round will see
            return 0
        able = [
            address
            for address, facts in workers.items()
            if facts.get("status", "running") == "running"  # Dask pauses a worker that has little memory left
            and (not self.gpu or facts["resources"].get("GPU", 0) >= 1)
        ]
        excluded = self.engine.excluded
        self.usable = [address for address in able if address not in excluded]
        if able and not self.usable:
            reasons = dict.fromkeys(excluded[address] for address in able)
            raise BrioError(f"no worker can train: {'; '.join(reasons)}")
        if not able and not self.engine.announced:
            self.engine.announced = True
            self.job.say(f"waiting for a worker{' with the resource GPU=1' if self.gpu else ''}")
        assigned = {key for keys in tasks.values() for key in keys}
        unassigned = sum(future.key not in assigned for future in self.running)
        return sum(not tasks.get(address) for address in self.usable) - unassigned

    def _choose(self, n_free: int) -> list[int]:
        """Choose a stack for every free worker. Stacks that another process trains are left to it."""
        elsewhere = {heartbeat.stack for heartbeat in list_heartbeats(self.store.folder.parent)}
        chosen: list[int] = []
        for number in list(self.waiting):
            if self.plan.close_if_finished(number, self.store):
                self.waiting.remove(number)
            elif len(chosen) < n_free and number not in elsewhere:
                self.waiting.remove(number)
                chosen.append(number)
        return chosen

    def _submit(self, packed: bytes) -> Any:
        """Submit a stack to Dask; its result is the address of its worker, the brio there, and why it cannot train."""

        def train_here(packed: bytes, version: str, method_files: tuple[str, ...]) -> tuple[str, str, str]:
            from distributed import get_worker  # sent by value: the worker may have another brio, or none

            try:
                from brio.version import __version__ as here
            except ImportError:
                here = "not installed"
            if here != version:
                return get_worker().address, here, ""
            from brio.jobs.dask import train_packed

            return get_worker().address, here, train_packed(packed, method_files)

        options: dict[str, Any] = {"resources": {"GPU": 1} if self.gpu else None, "pure": False}
        if self.engine.excluded:
            options |= {"workers": self.usable, "allow_other_workers": True}  # others where all of these have died
        return self.engine.client.submit(train_here, packed, __version__, self.engine.method_files, **options)

    def _collect(self) -> None:
        """Collect the stacks that finished, failed, were refused by their worker or were lost with the scheduler."""
        from distributed.scheduler import KilledWorker

        for future, number in [(f, number) for f, number in self.running.items() if f.status != "pending"]:
            del self.running[future]
            try:
                address, version, reason = future.result()
            except CancelledError:
                self.waiting.insert(0, number)
            except KilledWorker as error:
                n_workers = error.allowed_failures + 1
                reason = (
                    f"{n_workers} workers died while training this stack, perhaps because memory ran out; "
                    "--runs-per-stack 1 with another --out needs less memory"
                )
                failure = Failure(number, self.plan.name_stack(number), error.last_worker.address, reason)
                with contextlib.suppress(BrioError):  # what is said below matters more
                    record_failure(self.store.folder.parent, failure)  # dead workers cannot
                self._give_up(number, reason)
            except Exception as error:
                self._give_up(number, take_first_line(describe_error(error)))  # the record of the failure has all of it
            else:
                self._answer(number, address, version, reason)
        self._look_for_stored_runs()

    def _answer(self, number: int, address: str, version: str, reason: str) -> None:
        """Handle the answer of a worker: the stack is stored, or goes to another worker."""
        if version == __version__ and not reason:
            self.unseen[number] = address, time.monotonic()
            return
        if version != __version__:
            reason = (
                f"the worker at {address} has brio {version}, but this job uses brio {__version__}; "
                "install the same version"
            )
        elif number in self.refused:  # a second worker that cannot train it means that it is not the worker
            return self._give_up(number, reason)
        else:
            self.refused.add(number)
        if address not in self.engine.excluded:
            self.engine.excluded[address] = reason
            self.job.say(f"the worker at {address} receives no more stacks: {reason}")
        self.waiting.insert(0, number)

    def _look_for_stored_runs(self) -> None:
        """Look for runs that workers report as stored; on a network file system, they may appear a little later."""
        for number, (address, since) in list(self.unseen.items()):
            if self.plan.close_if_finished(number, self.store):
                del self.unseen[number]
            elif time.monotonic() - since > VISIBLE_SECONDS:
                del self.unseen[number]
                where = f"they are not in {self.store.folder.resolve()} on this machine"
                self._give_up(number, f"the worker at {address} stored the runs, but {where}; use a shared folder")

    def _give_up(self, number: int, reason: str) -> None:
        self.failed[number] = reason
        self.job.say(f"failed: {self.plan.name_stack(number)}: {reason}")

    def _report(self) -> None:
        """Show the progress of all workers as one."""
        beats = {beat.stack: beat for beat in list_heartbeats(self.store.folder.parent)}
        left = {*self.waiting, *self.running.values(), *self.unseen, *self.failed}
        share = sum(cost for number, cost in self.costs.items() if number not in left)
        share += sum(self.costs[number] * beat.share for number, beat in beats.items() if number in left)
        hosts = len({(beat.host, beat.process) for beat in beats.values()})
        titles = "; ".join(f"{beat.title} {100 * beat.share:.0f}%" for beat in list(beats.values())[:3])
        message = f"working: {hosts} ({titles})" if beats else "waiting"
        self.job.progress(message, min(1.0, share / sum(self.costs.values())))

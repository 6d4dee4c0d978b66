"""Clusters of Dask: started on this machine or through SLURM, or joined by their address."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...configuration import read_configuration
from ...errors import BrioError, nearest, take_first_line
from ...settings import Count, Workers, require, require_number

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
        require_number(options.workers, Workers, "workers")
        require_number(options.cores, Count, "cores")
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
    settings = {f"worker.{name}".replace(".", "__").upper(): value for name, value in WORKER_SETTINGS.items()}
    return [
        *(f"export {name}={cores}" for name in _THREADS),
        *(f"export DASK_DISTRIBUTED__{name}={value}" for name, value in settings.items()),
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
            require_number(self.workers, Workers, "workers")


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

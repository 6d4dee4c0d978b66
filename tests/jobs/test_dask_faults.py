"""Faults of a cluster, with real processes on this machine: nothing lost, nothing computed again, causes named.

Every process is ended by its number. Ports are free ones of the loopback interface.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import brio as package
from commands import wait_until
from stored import read_without_seconds

pytest.importorskip("distributed", reason="the extra brio[dask] is not installed")
pytestmark = pytest.mark.soak

HERE, SOURCES = Path(__file__).parent, Path(package.__file__).parents[1]
MORTAL = ["--method", "mortal", "--load", str(HERE / "mortal_method.py")]
JOB = [*MORTAL, "--runs-per-stack", "1", "--device", "cpu", "--quiet"]
N_RUNS = 5
LIMIT = 240
"""Seconds that any process of a test may take."""


@pytest.fixture
def fate(tmp_path) -> Path:
    (tmp_path / "fate").mkdir()
    return tmp_path / "fate"


def environment(fate: Path, sources: Path = SOURCES) -> dict[str, str]:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {**os.environ, **threads, "PYTHONPATH": str(sources), "BRIO_TEST_FATE": str(fate)}


@contextmanager
def started(words: list[object], fate: Path, sources: Path = SOURCES, **keywords: object) -> Iterator[subprocess.Popen]:
    """Start a process of Python, and end it and its children at the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", *map(str, words)],
        env=environment(fate, sources) | keywords.pop("env", {}),  # type: ignore[operator]
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # so that its children end with it
        **keywords,
    )
    try:
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)


def command(folder: Path, out: Path, *further: object) -> list[object]:
    return ["brio", "run", folder, "--out", out, *JOB, *further]


def finish(process: subprocess.Popen) -> tuple[int, str]:
    said, _ = process.communicate(timeout=LIMIT)
    return process.returncode, said


def run(folder: Path, out: Path, fate: Path, *further: object) -> tuple[int, str]:
    with started(command(folder, out, *further), fate) as process:
        return finish(process)


def runs_of(out: Path) -> dict[str, int]:
    return {p.name: p.stat().st_ino for p in (out / "runs").glob("*") if not p.name.startswith(".")}


@pytest.fixture(scope="module")
def local(folder, tmp_path_factory) -> Path:
    """The job without a cluster."""
    place = tmp_path_factory.mktemp("faults")
    (place / "fate").mkdir()
    status, said = run(folder, place / "local", place / "fate")
    assert status == 0, said
    return place / "local"


def assert_same(out: Path, local: Path) -> None:
    assert read_without_seconds(out) == read_without_seconds(local)


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def scheduler(port: int) -> list[object]:
    return ["distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard"]


def worker(port: int, *further: object) -> list[object]:
    fixed = ["--nthreads", 1, "--no-dashboard", "--host", "127.0.0.1", "--local-directory"]
    return ["distributed.cli.dask_worker", f"tcp://127.0.0.1:{port}", *further, *fixed]


@contextmanager
def cluster(port: int, fate: Path, *further: object) -> Iterator[list[object]]:
    """A scheduler and one worker, as a user starts them; yields the options that join them."""
    scratch = fate.parent / "scratch"
    with started(scheduler(port), fate), started([*worker(port, *further), scratch], fate):
        yield ["--engine", "dask", "--scheduler", f"tcp://127.0.0.1:{port}"]


def test_two_worker_processes_give_the_files_of_the_local_engine(folder, tmp_path, fate):
    words = ["--method", "gcn", "--set", "epochs=3"]
    assert run(folder, tmp_path / "local", fate, *words)[0] == 0
    status, said = run(folder, tmp_path / "out", fate, *words, "--engine", "dask", "--workers", 2)
    assert status == 0, said
    assert_same(tmp_path / "out", tmp_path / "local")


def test_a_worker_killed_in_the_middle_of_a_stack(folder, local, tmp_path, fate):
    (fate / "kill").touch()
    status, said = run(folder, tmp_path / "out", fate, "--engine", "dask", "--workers", 2)
    assert status == 0, said
    assert not (fate / "kill").exists(), "a worker was killed"
    assert len(list(fate.glob("trained-*"))) == N_RUNS + 1, "one stack alone was trained twice"
    assert_same(tmp_path / "out", local)


def test_a_stack_that_kills_three_workers_is_named_and_the_rest_goes_on(folder, local, tmp_path, fate):
    (fate / "deadly").write_text("site02")
    out = tmp_path / "out"
    status, said = run(folder, out, fate, "--engine", "dask", "--workers", 1)
    assert status == 2, said
    assert "1 of 5 stacks failed; all others are finished" in " ".join(said.split())
    assert "The first failure: mortal, fold site02" in " ".join(said.split())
    assert "3 workers died while training this stack" in said
    assert len(list(fate.glob("trained-site02-*"))) == 3
    assert len(runs_of(out)) == N_RUNS - 1
    before = runs_of(out)
    with started(["brio", "status", out], fate) as process:
        assert "3 workers died while training this stack" in finish(process)[1]
    (fate / "deadly").unlink()
    status, said = run(folder, out, fate, "--engine", "dask", "--workers", 1)
    assert status == 0, said
    assert before.items() <= runs_of(out).items()
    assert_same(out, local)


def test_the_client_is_killed_and_started_again(folder, local, tmp_path, fate, port):
    out = tmp_path / "out"
    (fate / "slow").write_text("0.5")
    with cluster(port, fate) as join:
        with started(command(folder, out, *join), fate) as process:
            wait_until(lambda: len(runs_of(out)) >= 2)
            process.kill()
            process.wait(30)
        before = runs_of(out)
        assert len(before) < N_RUNS
        status, said = run(folder, out, fate, *join)
        assert status == 0, said
    assert before.items() <= runs_of(out).items()
    assert len(list(fate.glob("trained-*"))) == N_RUNS, "what the worker had begun was left to it"
    assert_same(out, local)


def test_the_scheduler_is_killed_and_started_again(folder, local, tmp_path, fate, port):
    out = tmp_path / "out"
    (fate / "slow").write_text("0.5")
    join = ["--engine", "dask", "--scheduler", f"tcp://127.0.0.1:{port}"]
    with started(command(folder, out, *join), fate) as process:
        with started(scheduler(port), fate), started([*worker(port), tmp_path / "scratch"], fate):
            wait_until(lambda: runs_of(out))
        status, said = finish(process)
    assert status == 2, said
    assert "the connection to the Dask scheduler was lost" in said
    assert "Traceback" not in said
    before = runs_of(out)
    with cluster(port, fate) as join:
        status, said = run(folder, out, fate, *join)
    assert status == 0, said
    assert before.items() <= runs_of(out).items()
    assert_same(out, local)


SBATCH = """#!/bin/sh
# stands in for SLURM: keeps the script, and runs it on this machine
[ "$1" = --test-only ] && exit 0
cp "$1" "{jobs}/script-$$"
sh "$1" > "{jobs}/out-$$" 2>&1 &
echo $! > "{jobs}/pid-$$"
echo "Submitted batch job $$"
"""


def test_workers_through_slurm(folder, local, tmp_path, fate):
    jobs, tools = tmp_path / "jobs", tmp_path / "tools"
    jobs.mkdir()
    tools.mkdir()
    (tools / "sbatch").write_text(SBATCH.format(jobs=jobs))
    (tools / "scancel").write_text("#!/bin/sh\n")
    for tool in tools.iterdir():
        tool.chmod(0o755)
    options = ["workers = 1", "cores = 1", 'memory = "3GB"', 'walltime = "00:10:00"', 'queue = "short"']
    options += ['interface = "lo"', 'directives = ["--nice=100"]', 'prologue = ["export BRIO_TEST_PROLOGUE=1"]']
    (tmp_path / "slurm.toml").write_text("\n".join(options) + "\n")
    words = command(folder, tmp_path / "out", "--engine", "dask", "--slurm", tmp_path / "slurm.toml")
    path = {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    with started(words, fate, env=path, cwd=tmp_path) as process:
        status, said = finish(process)
        assert status == 0, (said, [p.read_text()[-2000:] for p in jobs.glob("out-*")])
    (script,) = jobs.glob("script-*")
    for line in ("#SBATCH -p short", "#SBATCH --nice=100", "#SBATCH --cpus-per-task=1", "export OMP_NUM_THREADS=1"):
        assert line in script.read_text()
    assert_same(tmp_path / "out", local)

"""The Dask engine with a cluster inside this process: the same files, failures named, nothing trained twice.

Real worker processes are in ``test_dask_faults.py``.
"""

import contextlib
import dataclasses
import importlib.util
import json
import os
import pickle
from concurrent.futures import CancelledError
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from ridge_jobs import RIDGE

from brio.errors import BrioError
from brio.jobs import JobSpec, prepare_job
from brio.jobs import dask as engine
from brio.jobs.dask import ClusterOptions, DaskEngine, SlurmOptions, connect, pack_stack, require_dask, train_packed
from brio.jobs.plan import assign_stacks, build_plan
from brio.methods import Ridge
from brio.results import RunStore
from brio.version import __version__
from commands import refuse
from stored import read_without_seconds

distributed = pytest.importorskip("distributed", reason="the extra brio[dask] is not installed")

DASK = ["--engine", "dask", "--workers", "1"]


def watch_fits(monkeypatch, fails_at: str = "") -> list[str]:
    """Record the first fold of every stack that is trained; one fails."""
    fit, trained = Ridge.fit, []

    def watched(self, connectomes, runs, *further, **keywords):
        trained.append(runs[0].fold.name)
        if runs[0].fold.name == fails_at:
            raise BrioError("this stack does not like its worker")
        return fit(self, connectomes, runs, *further, **keywords)

    monkeypatch.setattr(Ridge, "fit", watched)
    return trained


def test_a_failed_stack_is_named_and_the_rest_goes_on(brio, folder, whole, tmp_path, on_dask, monkeypatch):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        trained = watch_fits(patch, fails_at="site01")
        said = brio("run", folder, "--out", out, *RIDGE, *DASK).refuse()
    assert "1 of 3 stacks failed; all others are finished" in said.err
    assert "folds site01 to site02" in said.err
    assert "this stack does not like its worker" in said.err
    assert sorted(trained) == ["site01", "site03", "site05"]
    assert "1 failed" in brio("status", out).out
    trained = watch_fits(monkeypatch)
    assert brio("run", folder, "--out", out, *RIDGE, *DASK).status == 0
    assert trained == ["site01"]
    assert read_without_seconds(out) == read_without_seconds(whole), "the same files as the local engine"


FIT = ["--method", "gcn", "--set", "epochs=2", "--seeds", "2", "--runs-per-stack", "1", "--device", "cpu", "--quiet"]


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_same_model_as_the_local_engine(brio, folder, tmp_path, on_dask):
    """Seeds are stacks of their own; nothing is left beside the model."""
    for place, further in (("local", []), ("out", DASK)):
        brio("fit", folder, "--out", tmp_path / place, *FIT, *further).succeed()
    assert read_files(tmp_path / "out") == read_files(tmp_path / "local")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["local", "out"]


def test_the_same_evidence_from_where_a_fit_was_stopped(brio, folder, tmp_path, on_dask, monkeypatch):
    """The member and the folds that were finished before are not fitted again; a file of somebody else stays."""
    words = ["--method", "ridge", "--runs-per-stack", "2", "--evaluate", "--device", "cpu", "--quiet"]
    assert brio("fit", folder, "--out", tmp_path / "local", *words).status == 0
    with monkeypatch.context() as patch:
        trained = watch_fits(patch, fails_at="site03")
        said = brio("fit", folder, "--out", tmp_path / "out", *words, *DASK).refuse()
    assert "this stack does not like its worker" in said.err
    assert sorted(trained) == ["all", "site01", "site03", "site05"]
    assert not (tmp_path / "out").exists()
    (tmp_path / "out.job" / "notes.txt").write_text("mine")
    trained = watch_fits(monkeypatch)
    assert brio("fit", folder, "--out", tmp_path / "out", *words, *DASK).status == 0
    assert trained == ["site03", "all", "all"]  # then the halves of the attack that the card reports
    assert read_files(tmp_path / "out") == read_files(tmp_path / "local")
    assert [path.name for path in (tmp_path / "out.job").iterdir()] == ["notes.txt"]


def test_a_fit_with_other_validation_sites_is_another_job(brio, folder, tmp_path, on_dask, monkeypatch):
    words = ["fit", folder, "--out", tmp_path / "out", *FIT, *DASK]
    with monkeypatch.context() as patch:
        patch.setattr("brio.models.fit.complete_model", lambda *args: (_ for _ in ()).throw(BrioError("stop here")))
        assert "stop here" in brio(*words, "--validation-site", "site02").err
    said = brio(*words, "--validation-site", "site03").refuse()
    assert "folds: all, validated at site02, now all, validated at site03" in " ".join(said.err.split())


@pytest.fixture
def work(folder, tmp_path):
    job = prepare_job(JobSpec(folder, device="cpu"))
    plan = assign_stacks(build_plan(job, ["ridge"]), job.connectomes, 2)
    store = RunStore(tmp_path / "job" / "runs")
    store.remove_partial_runs()
    return job, plan, store


class FakeFuture:
    """A task that has come to its end: with its result, an error, or cancelled with its scheduler."""

    def __init__(self, outcome: object) -> None:
        self.outcome, self.status, self.key = outcome, "finished", str(id(self))

    def result(self):
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class FakeClient:
    """A scheduler with some workers. ``answer`` says what comes of a stack; by default its worker trains it."""

    status = "running"

    def __init__(self, workers: str, answer=lambda number, packed: None, busy: str = "") -> None:
        self.workers, self.answer, self.busy = workers, answer, busy
        self.given: list[tuple[int, list[str] | None]] = []

    def scheduler_info(self, n_workers: int = 5) -> dict:
        return {"workers": {name: {"resources": {}, "status": "running"} for name in self.workers}}

    def processing(self) -> dict:
        return dict.fromkeys(self.busy, ("task of somebody else",))

    def submit(self, function, packed, version, method_files, *, workers=None, **options) -> FakeFuture:
        number = pickle.loads(packed)[6]
        self.given.append((number, workers))
        outcome = self.answer(number, packed)
        return FakeFuture(("a", __version__, train_packed(packed)) if outcome is None else outcome)

    def cancel(self, futures) -> None: ...

    as_current = staticmethod(contextlib.nullcontext)


@pytest.fixture
def train(work, monkeypatch):
    """Train the stacks of a job on a fake cluster; returns what the user is told."""
    monkeypatch.setattr(engine, "POLL_SECONDS", 0.0)
    monkeypatch.setattr("distributed.wait", lambda *args, **kwargs: None)

    def run(client: FakeClient) -> list[str]:
        (job, plan, store), said = work, []
        monkeypatch.setattr(engine, "connect", lambda *args: contextlib.nullcontext(client))
        with DaskEngine(ClusterOptions(workers=1)) as cluster:
            cluster.train(dataclasses.replace(job, say=said.append), plan, store)
        assert all(key in store for key in plan.runs)
        return said

    return run


def test_one_stack_for_each_free_worker_and_none_of_another_client(train, work, monkeypatch):
    client, workers = FakeClient("abc", busy="b"), work[2].folder.parent / "workers"
    workers.mkdir()
    beat = {"stack": 2, "title": "", "host": "elsewhere", "process": 1, "started": 0.0, "share": 0.0}
    (workers / "stack-2-0.json").write_text(json.dumps(beat))
    rounds = []

    def wait(*args, **kwargs):
        rounds.append([number for number, _ in client.given])
        (workers / "stack-2-0.json").unlink(missing_ok=True)  # the other client has lost it

    monkeypatch.setattr("distributed.wait", wait)
    train(client)
    assert rounds == [[1, 3], [1, 3, 2]]


def test_more_workers_than_stacks_are_worth_a_word(train):
    assert train(FakeClient("abcd")) == [
        "some workers are idle, because only 3 stacks are left to train; for more stacks, set a smaller "
        "--runs-per-stack and use another --out"
    ]


def test_a_worker_with_another_version_gets_nothing_more(train):
    with pytest.raises(BrioError, match="no worker can train: the worker at a has brio not installed"):
        train(FakeClient("a", lambda number, packed: ("a", "not installed", "")))
    client = FakeClient("ab", lambda number, packed: ("a", "9.9", "") if len(client.given) == 1 else None)
    said = train(client)
    assert [f"the worker at a has brio 9.9, but this job uses brio {__version__}" in line for line in said] == [True]
    assert {workers and tuple(workers) for _, workers in client.given[2:]} == {("b",)}


def test_a_worker_that_cannot_write_gets_nothing_more_and_its_stack_goes_elsewhere(train):
    full = "a", __version__, "the disk is full"
    client = FakeClient("ab", lambda number, packed: full if len(client.given) == 1 else None)
    assert "the worker at a receives no more stacks: the disk is full" in train(client)
    assert (1, ["b"]) in client.given


def test_a_stack_that_two_workers_cannot_train_has_failed(train, work):
    def answer(number, packed):
        return (("a", "b")[len(client.given) > 3], __version__, "no such atlas") if number == 1 else None

    client = FakeClient("abc", answer)
    refuse(r"1 of 3 stacks failed; all others are finished\. .* failure: .*: no such atlas\. Correct", train, client)
    assert [number for number, _ in client.given] == [1, 2, 3, 1]


def test_runs_that_only_their_worker_can_see_are_named(train, monkeypatch):
    """As where a folder of the same name is another one on every machine."""
    monkeypatch.setattr(engine, "VISIBLE_SECONDS", 0.0)
    with pytest.raises(BrioError, match=r"the worker at a stored the runs, but they are not in .* use a shared folder"):
        train(FakeClient("a", lambda number, packed: ("a", __version__, "")))


def test_a_stack_that_was_lost_with_the_scheduler_is_given_again(train):
    client = FakeClient("a", lambda number, packed: CancelledError() if len(client.given) == 1 else None)
    train(client)
    assert [number for number, _ in client.given] == [1, 1, 2, 3]


@pytest.mark.parametrize("lost", ["scheduler_info", "processing"])
def test_nothing_is_given_out_while_the_scheduler_does_not_answer(train, monkeypatch, lost):
    client, asked = FakeClient("a"), []
    ask = getattr(client, lost)

    def fail_first(*args, **kwargs):
        asked.append(len(client.given))
        if len(asked) == 1:
            raise OSError("the scheduler is lost")
        return ask(*args, **kwargs)

    monkeypatch.setattr(client, lost, fail_first)
    train(client)
    assert asked[:2] == [0, 0]


def test_a_scheduler_that_is_lost_for_good_is_named(train):
    client = FakeClient("a")
    client.status = "closed"
    refuse("the connection to the Dask scheduler was lost; .*run the same command", train, client)


def test_what_the_system_does_is_held_against_the_worker_and_nothing_else(work, monkeypatch):
    def fail(*args, **kwargs):
        try:
            raise cause
        except Exception as error:
            raise BrioError("no luck") from error

    monkeypatch.setattr("brio.jobs.train.train_stack", fail)
    cause = OSError("the disk is full")
    job, plan, store = work
    assert train_packed(pack_stack(job, plan, 1, store)) == "no luck"
    cause = ValueError("the method is wrong")
    refuse("no luck", train_packed, pack_stack(job, plan, 1, store))


def test_a_finished_stack_is_not_trained_again_and_leaves_no_checkpoint(work, monkeypatch):
    """Its checkpoint is that of a worker that was killed after it had stored the last run."""
    job, plan, store = work
    packed = pack_stack(job, plan, 1, store)
    assert train_packed(packed) == ""
    assert all(key in store for key in plan.document.stacks[0])
    checkpoint = store.checkpoint_path(plan.document.stacks[0])
    checkpoint.parent.mkdir()
    checkpoint.touch()
    monkeypatch.setattr(Ridge, "fit", lambda *args, **kwargs: pytest.fail("a finished stack was trained again"))
    assert train_packed(packed) == ""
    assert not checkpoint.exists()


def test_a_worker_refuses_what_is_not_as_in_the_job(work, monkeypatch):
    job, plan, store = work
    other = dataclasses.replace(plan, document=dataclasses.replace(plan.document, fingerprint="0" * 8))
    assert "on this worker, the cohort differs from" in train_packed(pack_stack(job, other, 1, store))
    refuse("workers read the cohort from a folder", pack_stack, job.with_spec(cohort=job.cohort), plan, 1, store)
    packed = pack_stack(job, plan, 1, store)
    monkeypatch.setattr("brio.device.ComputeDevice.describe", lambda device: "cuda (another)")
    assert "trains on cpu, but the worker has cuda (another)" in train_packed(packed)


def test_a_missing_package_is_named(monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "dask_jobqueue" else find_spec(name))
    require_dask()
    refuse(r"needs the package dask_jobqueue.*install brio\[dask\]", require_dask, slurm=True)


NEEDED = 'cores = 4\nmemory = "16GB"\nwalltime = "4:00:00"\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (NEEDED, "workers is missing; --slurm takes a TOML file with"),
        ('workers = "2"\n', "workers is '2', expected a whole number from 1 to 10,000"),
        ("workers = 2\ncores = true\n", "cores is true, expected a whole number"),
        ("wokers = 2\n", "did you mean 'workers'"),
        (f"workers = 2\n{NEEDED}directives = [1]\n", r"directives\[0\] is 1, expected text"),
        (f"workers = 2\n{NEEDED}gpus = 2\n", "gpus is 2, expected 0 or 1"),
    ],
)
def test_a_wrong_file_for_slurm(text, problem, tmp_path):
    (tmp_path / "slurm.toml").write_text(text)
    refuse(problem, SlurmOptions.read, tmp_path / "slurm.toml")


def test_a_file_for_slurm_says_what_each_job_gets(tmp_path):
    needed = f"workers = 2\n{NEEDED}"
    (tmp_path / "slurm.toml").write_text(f'{needed}gpus = 1\ndirectives = ["--nice"]\nprologue = ["module load x"]\n')
    options = SlurmOptions.read(tmp_path / "slurm.toml")
    assert options.workers == 2
    keywords = options.to_keywords()
    asked = {"cores": 1, "processes": 1, "job_cpu": 4, "memory": "16GB", "walltime": "4:00:00"}
    asked |= {"job_extra_directives": ["--gres=gpu:1", "--nice"], "worker_extra_args": ["--resources", "GPU=1"]}
    assert {name: keywords[name] for name in asked} == asked
    assert keywords["job_script_prologue"][0] == "export OMP_NUM_THREADS=4"
    assert keywords["job_script_prologue"][-1] == "module load x"
    for name in ("MEMORY__PAUSE", "PROFILE__ENABLED"):
        assert f"export DASK_DISTRIBUTED__WORKER__{name}=False" in keywords["job_script_prologue"]
    assert "python" not in keywords, "that of the client is the default"
    (tmp_path / "slurm.toml").write_text(f'{needed}python = "/opt/python"\n')
    keywords = SlurmOptions.read(tmp_path / "slurm.toml").to_keywords()
    assert (keywords["python"], keywords["job_extra_directives"]) == ("/opt/python", [])


def refuse_connection(message: str, options: ClusterOptions, gpu: bool = False) -> None:
    with pytest.raises(BrioError, match=message), connect(options, 1, gpu=gpu):
        pass


SMALL = SlurmOptions(workers=1, cores=1, memory="1GB", walltime="01:00:00")


@pytest.mark.parametrize(
    ("memory", "message"),
    [("1GB", "sbatch: command not found"), ("lots", "the cluster could not be started: .*lots")],
)
def test_a_cluster_of_slurm_that_cannot_be_started(memory, message, tmp_path, monkeypatch):
    pytest.importorskip("dask_jobqueue")
    if memory == "lots":
        (tmp_path / "sbatch").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    refuse_connection(message, ClusterOptions(slurm=dataclasses.replace(SMALL, memory=memory)))


def test_workers_do_not_share_a_gpu():
    refuse_connection("would share one GPU", ClusterOptions(workers=2), gpu=True)


def test_a_job_that_slurm_refuses_is_not_waited_for(tmp_path, monkeypatch):
    pytest.importorskip("dask_jobqueue")
    said = "sbatch: error: invalid partition specified: shrot"
    (tmp_path / "sbatch").write_text(f"#!/bin/sh\ngrep -q -- '-p shrot' $2 && echo '{said}' >&2\nexit 1\n")
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    asked = ClusterOptions(slurm=dataclasses.replace(SMALL, queue="shrot", interface="lo"))
    refuse_connection(f"rejected the worker job: {said}; correct the --slurm file", asked)


@pytest.fixture
def recorded_cluster(monkeypatch):
    """What a cluster and its client were asked for, instead of starting them."""
    asked = {}

    class FakeCluster(contextlib.nullcontext):
        def __init__(self, **options):
            super().__init__(self)
            asked.update(options)

        def adapt(self, **options):
            asked.update(options)

    monkeypatch.setattr("distributed.LocalCluster", FakeCluster)
    monkeypatch.setattr("distributed.Client", lambda target, **options: contextlib.nullcontext(target))
    return asked


def test_workers_of_this_machine_get_their_threads_and_their_gpu(recorded_cluster):
    with connect(ClusterOptions(workers=3), 2, gpu=False):
        pass
    numbers = [recorded_cluster[name] for name in ("n_workers", "minimum", "maximum")]
    assert numbers == [3, 3, 3], "also when some are gone for good"
    assert recorded_cluster["resources"] is None
    assert recorded_cluster["env"]["OMP_NUM_THREADS"] == "2"
    with connect(ClusterOptions(workers=1), None, gpu=True):
        assert recorded_cluster["resources"] == {"GPU": 1}
        names = "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"  # Dask would set each to 1
        assert recorded_cluster["env"] == dict.fromkeys(names, str(torch.get_num_threads()))  # for linear models


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setattr("distributed.Client", Mock(side_effect=OSError("timed out")))
    no_answer = r"tcp://127.0.0.1:1: no Dask scheduler answers at this address \(timed out\)"
    refuse_connection(no_answer, ClusterOptions(scheduler="tcp://127.0.0.1:1"))

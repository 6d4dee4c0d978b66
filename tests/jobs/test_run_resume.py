"""A job that was killed goes on and ends in the bytes of one that was not; a folder belongs to one job."""

import dataclasses
import json
import os
import shutil
import signal
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from brio.device import ComputeDevice
from brio.errors import BrioError
from brio.jobs import JobSpec, prepare_job
from brio.jobs.plan import JobPlan, build_plan
from brio.jobs.resume import describe_clashes, resume_plan
from brio.methods import Ridge
from brio.storage import SUMS
from brio.training import NeuralMethod
from commands import command, refuse, wait_until
from doctored import change_json
from stored import name_leftover, read_without_seconds

JOB = ["--method", "brio", "--method", "ridge", "--runs-per-stack", "2"]
N_RUNS = 2 * 5


@pytest.fixture(scope="module")
def finished(brio, folder, tiny, tmp_path_factory) -> Path:
    """The job done without disturbance; never changed by a test."""
    out = tmp_path_factory.mktemp("runs") / "finished"
    assert brio("run", folder, "--out", out, *JOB, *tiny).status == 0
    stacks = json.loads((out / "plan.json").read_text())["stacks"]
    assert [len(s) for s in stacks] == [2, 2, 1] * 2
    return out


@pytest.fixture
def copy(finished, tmp_path) -> Path:
    shutil.copytree(finished, tmp_path / "copy")
    return tmp_path / "copy"


def assert_same(out: Path, other: Path) -> None:
    mine, theirs = read_without_seconds(out), read_without_seconds(other)
    assert mine.keys() == theirs.keys()
    assert [name for name in mine if mine[name] != theirs[name]] == []
    assert sum(name.endswith("weights.safetensors") for name in mine) == N_RUNS


def times(out: Path) -> dict[str, int]:
    return {str(p.relative_to(out)): p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file() and p.name != ".lock"}


# ---------------------------------------------------------------- killed


def start(*words: object) -> int:
    """Give a command in a copy of this process; returns its number."""
    child = os.fork()
    if child == 0:
        try:
            command(*words)
        finally:
            os._exit(0)
    return child


def runs_of(out: Path) -> list[str]:
    return [p.name for p in (out / "runs").glob("*") if p.suffix != ".partial"]


@pytest.fixture(scope="module")
def killed(folder, tiny, tmp_path_factory) -> dict[str, Path]:
    """What a process left that was killed after its plan, and after its first run; never changed by a test.

    One process does for both: at the first moment it is stopped, and its files are copied as a kill would leave them.
    """
    place = tmp_path_factory.mktemp("killed")
    out = place / "after a run"
    process = start("run", folder, "--out", out, *JOB, *tiny)
    wait_until((out / "plan.json").is_file)
    os.kill(process, signal.SIGSTOP)
    os.waitid(os.P_PID, process, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    shutil.copytree(out, place / "after the plan")
    os.kill(process, signal.SIGCONT)
    wait_until(lambda: runs_of(out))
    os.kill(process, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    return {"plan": place / "after the plan", "run": out}


@pytest.mark.parametrize("when", ["plan", "run"])
def test_killed_after_the_plan_and_after_the_first_run(brio, killed, finished, folder, tiny, tmp_path, when):
    out = shutil.copytree(killed[when], tmp_path / "killed")
    done = len(runs_of(out))
    assert (when == "run") <= done < N_RUNS
    assert not (out / "results.csv").exists()
    passing = (SUMS, ".partial", f"workers{os.sep}")  # what is being written, and the heartbeat of the killed process
    before = {name: time for name, time in times(out).items() if not any(part in name for part in passing)}
    said = brio("run", folder, "--out", out, *JOB, *tiny).succeed()
    assert f"resuming: {done} of {N_RUNS} runs are finished" in said.out
    assert_same(out, finished)
    assert before.items() <= times(out).items()  # what was finished stayed as it was


def test_killed_while_planning_or_writing(brio, finished, copy, folder, tiny):
    """What a kill at other moments leaves: files of no name yet, a plan half written."""
    key = json.loads((copy / "plan.json").read_text())["stacks"][3][1]
    shutil.rmtree(copy / "runs")
    tables = ("results.csv", "predictions.csv", "sites.csv", "covariances.csv", "summary.json")
    for name in ("plan.json", *tables):
        (copy / name).unlink()
    name_leftover(copy).write_text('{"brio": "0.')
    brio("run", folder, "--out", copy, *JOB, *tiny).succeed()
    assert_same(copy, finished)
    leftover = name_leftover(copy / "runs")
    (copy / "runs" / key).rename(leftover)
    (leftover / "run.json").unlink()
    (copy / "results.csv").rename(name_leftover(copy))
    (copy / "summary.json").unlink()
    assert brio("run", folder, "--out", copy, *JOB, *tiny).status == 0
    assert_same(copy, finished)


# ---------------------------------------------------------------- nothing is computed twice


def test_finished_runs_are_not_computed_again(brio, finished, copy, folder, tiny, monkeypatch):
    for method in (NeuralMethod, Ridge):
        monkeypatch.setattr(method, "fit", Mock(side_effect=AssertionError("a finished run was trained again")))
    for name in ("results.csv", "predictions.csv", "summary.json"):
        (copy / name).unlink()
    before = times(copy / "runs")
    said = brio("run", folder, "--out", copy, *JOB, *tiny).succeed()
    assert f"resuming: {N_RUNS} of {N_RUNS} runs are finished" in said.out
    assert times(copy / "runs") == before
    assert_same(copy, finished)
    assert (copy / "results.csv").read_bytes() == (finished / "results.csv").read_bytes()


@pytest.mark.parametrize(("stack", "runs_per_stack"), [(1, 2), (4, 2), (1, 5)])  # of brio, of ridge
def test_a_run_missing_from_a_stack_is_computed_again(brio, finished, copy, folder, tiny, stack, runs_per_stack):
    """In its own stack: another number of runs per stack asked for later would change the rounding."""
    gone, other = json.loads((copy / "plan.json").read_text())["stacks"][stack]
    shutil.rmtree(copy / "runs" / gone)
    before = times(copy / "runs")
    said = brio("run", folder, "--out", copy, *JOB[:-1], runs_per_stack, *tiny).succeed()
    assert f"resuming: {N_RUNS - 1} of {N_RUNS} runs are finished" in said.out
    assert_same(copy, finished)
    after = times(copy / "runs")
    assert before.items() <= after.items()
    assert {name.split(os.sep)[0] for name in after.keys() - before.keys()} == {gone}
    assert f"{other}{os.sep}run.json" in before


# ---------------------------------------------------------------- a folder belongs to one job


@pytest.fixture
def plan_on(folder):
    """The plan of a job as it is made on another device; nothing is computed for it."""
    job = prepare_job(JobSpec(folder, device="cpu"))

    def plan_on(device: str) -> JobPlan:
        on = ComputeDevice(torch.device(device.removesuffix("-tf32")), tf32=device == "cuda-tf32")
        return build_plan(dataclasses.replace(job, device=on), ["ridge"])

    return plan_on


@pytest.mark.parametrize(("begun", "now"), [("cuda", "cuda-tf32"), ("cuda-tf32", "cuda"), ("cuda", "cpu")])
def test_a_job_does_not_go_on_in_another_precision(plan_on, begun, now, tmp_path):
    earlier = dataclasses.replace(plan_on(begun).document, stacks=(("a",),))
    assert earlier.device == begun, "the word that --device takes"
    assert resume_plan(earlier, plan_on(begun), tmp_path).document.stacks == (("a",),)
    with pytest.raises(BrioError, match=f"device {begun}, now {now}.*--device {begun}") as told:
        resume_plan(earlier, plan_on(now), tmp_path)
    assert str(tmp_path) in str(told.value)
    assert set(plan_on(begun).runs) == set(plan_on(now).runs), "runs are named by what they are made of, not where"


def test_a_finished_job_is_read_on_any_device(plan_on, tmp_path):
    begun, here = plan_on("cuda-tf32"), plan_on("cpu")
    earlier = dataclasses.replace(begun.document, stacks=(("a",),))
    keys = list(begun.runs)
    for key in keys[:-1]:
        (tmp_path / "runs" / key).mkdir(parents=True)
    refuse("device cuda-tf32, now cpu", resume_plan, earlier, here, tmp_path)  # one run is left
    (tmp_path / "runs" / keys[-1]).mkdir()
    read = resume_plan(earlier, here, tmp_path).document
    assert (read.device, read.threads) == ("cuda-tf32", None), "where it was computed"
    assert read.stacks == (("a",),)
    refuse(r"belongs to another job.*seeds", resume_plan, dataclasses.replace(earlier, seeds=(7,)), here, tmp_path)


def elsewhere(*plans: Path) -> None:
    """As if jobs had been begun on a GPU."""
    for path in plans:
        change_json(path, lambda plan: plan.update(device="cuda-tf32", threads=None))


def test_a_tuned_job_takes_up_no_search_of_another_device(brio, folder, tmp_path):
    """Else its runs with seed 0 would be those of one device, and the others those of another."""
    out, words = tmp_path / "out", [folder, "--method", "gcn", "--budget", "2", "--seeds", "2", "--set", "epochs=2"]
    assert brio("tune", *words, "--out", out).status == 0
    elsewhere(out / "plan.json", out / "search" / "plan.json")
    before = read_without_seconds(out)
    assert brio("tune", *words, "--out", out).status == 0, "all of it is finished"
    assert read_without_seconds(out) == before
    shutil.rmtree(out / "runs")
    (out / "plan.json").unlink()
    for name in ("results.csv", "predictions.csv", "summary.json"):
        (out / name).unlink()
    said = brio("tune", *words, "--out", out).refuse()
    assert "--device cuda-tf32" in said.err
    assert not (out / "plan.json").exists()


@pytest.mark.parametrize("name", ["thesis.docx", "runs/notes.txt", "results.csv"])
def test_a_folder_with_other_files(brio, folder, tiny, tmp_path, name):
    out = tmp_path / "documents"
    (out / name).parent.mkdir(parents=True)
    (out / name).write_text("mine")
    said = brio("run", folder, "--out", out, *JOB, *tiny).refuse()
    assert said.err.startswith("brio: ")
    assert "files that do not belong to a brio job" in said.err
    assert [p for p in out.rglob("*") if p.is_file()] == [out / name]
    assert (out / name).read_text() == "mine"


# ---------------------------------------------------------------- every entry of a plan that differs, in words

ENTRIES = {
    "brio": ("0.2.0", "0.3.0"),
    "cohort": ("north", "south"),
    "atlas": ("AAL116", "AAL116"),
    "fingerprint_before_exclusions": ("0123456789abcdef", "f" * 16),
    "fingerprint": ("fedcba", "a"),
    "n_scans": (40, 39),
    "excluded": ([], ["x"]),
    "methods": (
        {
            "ridge": {"version": 1, "code": "a", "settings": {"penalties": 5}},
            "gcn": {"settings": {"patience": 25, "refit": False}, "configurations": [{"width": 2}]},
        },
        {
            "ridge": {"version": 2, "code": "b", "settings": {"penalties": 5}},
            "gcn": {"tuned": {"folds": {}}, "settings": {"patience": None, "refit": True}},
            "svm": {"version": 1, "code": "c", "settings": {"penalties": 5}},
        },
    ),
    "protocol": ("loso", "kfold"),
    "seeds": ([0], [3, 5]),
    "folds": (None, ["site01", "site02"]),
    "protocol_settings": ({"validation_sites": 2}, {"validation_sites": 1}),
    "harmonise": (None, {"kind": "combat"}),
    "audit": ({"min_frames": 40}, {"min_frames": 30}),
    "device": ("cpu", "cuda"),
    "threads": (1, 2),
    "runs_per_stack": (None, 2),
    "new_option": (None, True),
}
"""What a plan says, there and here; the commands that differ in one entry are among ``tests/cli/test_mistakes.py``."""


def test_what_differs_is_described():
    there, here = ({name: values[k] for name, values in ENTRIES.items()} for k in (0, 1))
    assert describe_clashes(there, there) == []
    assert describe_clashes(there, here) == [
        "version of brio: 0.2.0, now 0.3.0",
        "cohort: 'north' (fingerprint 0123456789ab), now 'south' (fingerprint ffffffffffff)",
        "methods: ridge, gcn, now ridge, gcn, svm",
        "seeds: 1, now 3, 5",
        "folds: all, now site01, site02",
        "setting protocol.validation_sites: 2, now 1",
        "setting harmonise.kind: none, now combat",
        "setting audit.min_frames: 40, now 30",
        "version of method ridge: 1, now 2",
        "hash of the file of method ridge: a, now b",
        "other configurations to try of method gcn",
        "other tuned settings of method gcn",
        "setting patience of gcn: 25, now none",
        "setting refit of gcn: false, now true",
        "scans left by the exclusions (also by those of --with): 40 (fingerprint fedcba), now 39 (fingerprint a)",
        "threads (OMP_NUM_THREADS): 1, now 2",
        "protocol: loso, now kfold",
        "device: cpu, now cuda",
        "runs per stack: none, now 2",
        "new option: none, now true",
    ]

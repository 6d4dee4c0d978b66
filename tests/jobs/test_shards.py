"""Shards of a job, a search and a study: the same files as without, whoever comes first and however often."""

import json
import os
import shutil
import threading
from pathlib import Path

import pytest
from job_contents import content_without_seconds

from brio.errors import BrioError
from brio.jobs import JobSpec, prepare_job
from brio.jobs.plan import build_plan
from brio.jobs.run import LocalEngine, train_shard
from brio.methods import Ridge
from brio.results import RunStore

RIDGE = ["--method", "ridge", "--runs-per-stack", "2", "--device", "cpu", "--quiet"]
N_STACKS = 3


@pytest.fixture(scope="module")
def whole(brio, folder, tmp_path_factory) -> Path:
    """The job without shards."""
    out = tmp_path_factory.mktemp("shards") / "whole"
    assert brio("run", folder, "--out", out, *RIDGE).status == 0
    return out


def runs_of(out: Path) -> set[str]:
    return {path.name for path in (out / "runs").iterdir()}


def stacks_of(out: Path) -> list[list[str]]:
    return json.loads((out / "plan.json").read_text())["stacks"]


def test_shards_make_up_the_job(brio, folder, whole, tmp_path, monkeypatch):
    out = tmp_path / "out"
    said = brio("run", folder, "--out", out, *RIDGE, "--shard", "2/2").succeed()
    stacks = stacks_of(out)
    assert len(stacks) == N_STACKS
    assert runs_of(out) == set(stacks[1])
    assert not (out / "results.csv").exists()
    assert "other runs are not" in said.out
    said = brio("run", folder, "--out", out, *RIDGE, "--shard", "1/2")
    assert "all runs are finished" in said.out
    assert not (out / "results.csv").exists()
    monkeypatch.setattr(Ridge, "fit", lambda *args, **kwargs: pytest.fail("a finished run was trained again"))
    assert brio("run", folder, "--out", out, *RIDGE, "--shard", "1/2").status == 0
    assert brio("run", folder, "--out", out, *RIDGE).status == 0
    assert content_without_seconds(out) == content_without_seconds(whole)


def test_the_first_process_decides_the_stacks(brio, folder, tmp_path):
    """As on machines whose memory differs."""
    out = tmp_path / "out"
    assert brio("run", folder, "--out", out, *RIDGE, "--shard", "1/2").status == 0
    (out / "plan.json").unlink()  # the first was killed before it wrote the plan, after the stacks were decided
    other = [*RIDGE[:3], "5", *RIDGE[4:]]
    assert brio("run", folder, "--out", out, *other, "--shard", "2/2").status == 0
    assert len(stacks_of(out)) == N_STACKS


def test_two_shards_of_the_same_number_at_once(folder, tmp_path, monkeypatch):
    """Both train the same stack and store it at the same moment; one record stays, and it is whole."""
    job = prepare_job(JobSpec(folder, device="cpu", engine=LocalEngine((1, 1))))
    both, write = threading.Barrier(2, timeout=60), RunStore._write_files

    def write_together(store, key, files):
        both.wait()
        write(store, key, files)

    monkeypatch.setattr(RunStore, "_write_files", write_together)
    ended: list[bool] = []

    def train() -> None:
        ended.append(train_shard(job, build_plan(job, ["ridge"]), tmp_path / "out", quiet=True))

    threads = [threading.Thread(target=train) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert ended == [True, True]
    store = RunStore(tmp_path / "out" / "runs")
    store.check(os.listdir(store.folder))
    assert not (tmp_path / "out" / "workers").exists()


def test_a_job_beside_a_live_shard_leaves_its_half_written_runs(brio, folder, tmp_path):
    """Without a shard the folder is reserved, but a shard does not ask for the lock."""
    out = tmp_path / "out"
    assert brio("run", folder, "--out", out, *RIDGE, "--shard", "1/2").status == 0
    partial = out / "runs" / ".brio-00000000-1-00000000-0.partial"  # of another machine
    partial.mkdir()
    beat = {"stack": 1, "title": "ridge", "host": "elsewhere", "process": 1, "started": 0.0, "share": 0.5}
    (out / "workers").mkdir()
    (out / "workers" / "stack-1-00000000.json").write_text(json.dumps(beat))
    assert brio("run", folder, "--out", out, *RIDGE).status == 0
    assert partial.is_dir()
    shutil.rmtree(out / "workers")
    assert brio("run", folder, "--out", out, *RIDGE).status == 0
    assert not partial.exists()


def test_shards_of_a_search(brio, folder, tmp_path):
    words = ["--method", "ridge", "--runs-per-stack", "2", "--device", "cpu", "--quiet", "--seeds", "1"]
    assert brio("tune", folder, "--out", tmp_path / "whole", *words).status == 0
    out = tmp_path / "out"
    said = brio("tune", folder, "--out", out, *words, "--shard", "2/2")
    assert "the search is not finished" in said.out
    assert not (out / "plan.json").exists()
    for shard in ("1/2", "2/2"):
        assert brio("tune", folder, "--out", out, *words, "--shard", shard).status == 0
    assert not (out / "tuning.json").exists()
    assert "all runs are finished" in brio("tune", folder, "--out", out, *words, "--shard", "1/2").out
    assert brio("tune", folder, "--out", out, *words).status == 0
    assert content_without_seconds(out) == content_without_seconds(tmp_path / "whole")


def test_shards_of_a_study(brio, folder, tmp_path, undrawn):
    words = ["study", "comparison", folder, "--method", "ridge", "--method", "svm", "--seeds", "1", "--device", "cpu"]
    out = tmp_path / "out"
    for shard in ("1/2", "2/2"):
        said = brio(*words, "--out", out, "--quiet", "--shard", shard).succeed()
    assert "all runs are finished" in said.out
    assert not (out / "studies").exists()
    assert brio(*words, "--out", out, "--quiet").status == 0
    assert (out / "studies" / "comparison" / "table.csv").is_file()


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/2/3", "-1/2"])
def test_no_such_shard(text):
    with pytest.raises(BrioError, match="for example 2/8"):
        LocalEngine.parse(text)

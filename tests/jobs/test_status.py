"""Several processes on one job: how far they are (``brio status``), whatever they left, and shards."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from ridge_jobs import N_STACKS, RIDGE

from brio.cli import main
from brio.errors import BrioError
from brio.jobs import JobSpec, prepare_job
from brio.jobs.plan import build_plan
from brio.jobs.run import LocalEngine, train_shard
from brio.methods import Ridge
from brio.results import RunStore, store
from brio.results.store import list_failures, list_heartbeats, report_stack
from commands import refuse
from doctored import change_json
from stored import read_without_seconds

HERE = platform.node()


@pytest.fixture(scope="module")
def begun(brio, folder, tmp_path_factory) -> Path:
    """A job of three stacks, of which the second is finished."""
    out = tmp_path_factory.mktemp("status") / "begun"
    assert brio("run", folder, "--out", out, *RIDGE, "--shard", "2/3").status == 0
    return out


@pytest.fixture
def copy(begun, tmp_path) -> Path:
    return Path(shutil.copytree(begun, tmp_path / "copy"))


def add_worker(
    out: Path, stack: int, host: str, process: int | None, age: float = 0.0, share: float = 0.25, since: float = 600.0
) -> None:
    """Add the file of a worker that did a share of a stack in some seconds; it is dead where no process is given."""
    if process is None:
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait()
        process = ended.pid
    (out / "workers").mkdir(exist_ok=True)
    path = out / "workers" / f"stack-{stack}-{process}-{stack}.json"
    facts = {"stack": stack, "title": f"ridge, stack {stack}", "host": host, "process": process}
    path.write_text(json.dumps({**facts, "started": time.time() - since, "share": share}))
    os.utime(path, (time.time() - age, time.time() - age))


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        (
            [],
            ["2 of 5 runs are finished (40%)", "1 done, 0 running, 2 waiting, 0 failed", "once the command"],
        ),
        (
            [(1, "node7", 41), (3, HERE, os.getpid()), (2, "node8", 42)],  # the last has not removed its file yet
            [
                "stacks: 1 done, 2 running, 0 waiting, 0 failed",
                "running on node7, process 41: ridge, stack 1, 25%",
                f"running on {HERE}, process {os.getpid()}: ridge, stack 3",
                "with 2 processes at work",
            ],
        ),
        ([(1, "node7", 41, store.EXPIRES + 60), (3, HERE, None)], ["stacks: 1 done, 0 running, 2 waiting, 0 failed"]),
    ],
    ids=["nobody", "somebody", "the dead"],
)
def test_what_is_done_and_who_is_at_work(brio, copy, workers, expected):
    for worker in workers:
        add_worker(copy, *worker)
    said = brio("status", copy).succeed()
    assert [part for part in expected if part not in said.out] == []
    assert "node8" not in said.out


def test_time_left_from_finished_stacks(brio, copy):
    """Two runs of 600 s are finished; the other three take 1800 s, or half of it with two workers that just began."""
    for path in (copy / "runs").glob("*/run.json"):
        change_json(path, lambda record: record["row"].update(seconds=600.0))
    assert "about 30 min" in brio("status", copy).out
    add_worker(copy, 1, "node7", 41, share=0.0)
    add_worker(copy, 3, "node7", 42, share=0.0)
    assert "about 15 min with 2 processes" in brio("status", copy).out


def test_time_left_of_a_stack_that_is_slower_than_those_before(brio, copy):
    """Half an hour is left of a stack of which a quarter took ten minutes, however quick finished stacks were."""
    shutil.rmtree(copy / "runs")
    assert "time left: unknown for ridge (5 runs)" in brio("status", copy).out
    add_worker(copy, 1, HERE, os.getpid(), share=0.01)
    assert "time left: unknown for ridge (5 runs)" in brio("status", copy).out, "too early to say"
    shutil.rmtree(copy / "workers")
    for stack in (1, 2, 3):
        add_worker(copy, stack, "node7", 40 + stack)
    assert "time left: about 30 min with 3 processes" in brio("status", copy).out


def test_time_left_is_that_of_each_method_and_of_this_machine(brio, folder, tmp_path):
    """Ridge took 10 s a run and svm 100 s; nobody knows of gcn, until one of its stacks is under way here."""
    methods = ["--method", "ridge", "--method", "svm", "--method", "gcn", "--device", "cpu", "--quiet"]
    words = ["run", folder, "--out", tmp_path / "job", *methods, "--set", "epochs=1", "--runs-per-stack", "2"]
    for shard in ("1/9", "2/9", "5/9"):  # of three stacks a method; of ridge one run is left
        brio(*words, "--shard", shard).succeed()
    for path in (tmp_path / "job" / "runs").glob("*/run.json"):
        change_json(
            path, lambda record: record["row"].update(seconds={"ridge": 10, "svm": 100}[record["row"]["method"]])
        )
    said = brio("status", tmp_path / "job").succeed().out
    assert "unknown for gcn (5 runs)" in said
    assert "about 5 min for the others" in said, "10 s and 300 s"
    add_worker(tmp_path / "job", 7, HERE, os.getpid(), since=300.0, share=0.5)
    said = brio("status", tmp_path / "job").succeed().out
    assert "unknown for gcn (3 runs)" in said
    assert "about 10 min for the others" in said
    for stack in (8, 9):
        add_worker(tmp_path / "job", stack, HERE, os.getpid(), since=300.0, share=0.5)
    assert "about 20 min on this machine" in brio("status", tmp_path / "job").succeed().out


def test_a_defect_names_its_stack_before_the_trace(brio, folder, copy, monkeypatch, capsys):
    defect = RuntimeError("no kernel image\nException raised from launch at Context.cpp:7\nframe #0: launch()")
    monkeypatch.setattr(Ridge, "fit", Mock(side_effect=defect))
    monkeypatch.setattr(sys, "argv", ["brio", "run", str(folder), "--out", str(copy), *RIDGE, "--shard", "1/3"])
    with pytest.raises(RuntimeError, match="no kernel image") as raised:
        main()
    said = capsys.readouterr().err
    title = re.search("brio: unexpected RuntimeError while training (ridge, fold.*, stack 1 of 3); finished", said)
    assert title is not None, said
    assert raised.value.__notes__ == [f"while training {title[1]}"]
    lines = brio("status", copy).out.splitlines()
    assert f"  failed on {HERE}: {title[1]}: RuntimeError: no kernel image" in lines
    assert not any("frame" in line for line in lines)
    assert "frame #0" in (copy / "workers" / "failed-1.json").read_text()


def fill_memory(*args, **kwargs):
    torch.empty(10**16, dtype=torch.uint8)


ON_A_GPU = Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"))


@pytest.mark.parametrize("fit", [Mock(side_effect=MemoryError), ON_A_GPU, fill_memory], ids=["numpy", "GPU", "CPU"])
def test_lack_of_memory_is_no_defect(brio, folder, copy, monkeypatch, fit):
    monkeypatch.setattr(Ridge, "fit", fit)
    ended = brio("run", folder, "--out", copy, *RIDGE, "--shard", "1/3").refuse()
    assert "not enough memory; close other programs" in ended.err
    assert "defect" not in ended.err


def test_failed_with_the_reason_until_it_is_finished(brio, folder, copy, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Ridge, "fit", Mock(side_effect=BrioError("the disk of this worker is full")))
        assert brio("run", folder, "--out", copy, *RIDGE, "--shard", "1/3").status == 2
    said = brio("status", copy)
    assert "stacks: 1 done, 0 running, 1 waiting, 1 failed" in said.out
    assert f"failed on {HERE}: ridge" in said.out
    assert "the disk of this worker is full" in said.out
    assert brio("run", folder, "--out", copy, *RIDGE, "--shard", "1/3").status == 0
    assert "0 failed" in brio("status", copy).out
    assert not (copy / "workers").exists()


NO_PROCESS = '{"stack": 1, "title": "", "host": "HERE", "process": 9223372036854775807, "started": 0}'


@pytest.mark.parametrize("text", ["", "[]", "{}", "\udcff", NO_PROCESS])
def test_a_file_that_says_nothing_is_passed_over(brio, copy, text):
    """Half of a file on a network drive, of another version, or of a process with a number that none can have."""
    (copy / "workers").mkdir()
    for name in ("stack-1-0.json", "failed-3.json"):
        (copy / "workers" / name).write_bytes(text.replace("HERE", HERE).encode(errors="surrogateescape"))
    said = brio("status", copy).succeed()
    assert "stacks: 1 done, 0 running, 2 waiting, 0 failed" in said.out


def test_a_finished_job_in_one_line_unless_it_lacks_its_tables(brio, folder, copy, tmp_path):
    """A search and the members of a model have none."""
    assert brio("run", folder, "--out", copy, *RIDGE).status == 0
    assert brio("status", copy).out == f"{copy}: 5 of 5 runs are finished (100%)\n"
    (copy / "summary.json").unlink()
    assert "summary.json: is missing, although SHA256SUMS lists it" in brio("status", copy).err
    lines = (copy / "SHA256SUMS").read_text().splitlines(keepends=True)
    (copy / "SHA256SUMS").write_text("".join(line for line in lines if "summary.json" not in line))
    assert "no tables yet" in brio("status", copy).out
    for place in (tmp_path / "tuned" / "search", tmp_path / "model.job" / "members"):
        shutil.copytree(copy, place)
        assert "no tables yet" not in brio("status", place.parent).out


def test_a_search_and_a_study_have_several_jobs(brio, begun, tmp_path):
    assert "this folder does not exist" in brio("status", tmp_path / "missing").err
    assert "contains no plan of a job" in brio("status", tmp_path).err
    for place in ("tuned/search", "study/arms/loso/ridge", "study/arms/loso/svm"):
        shutil.copytree(begun, tmp_path / place)
    assert f"{tmp_path / 'tuned' / 'search'}: 2 of 5" in brio("status", tmp_path / "tuned").out
    assert brio("status", tmp_path / "study").out.count("2 of 5 runs") == 2


def test_a_heartbeat_is_renewed_and_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "BEAT_SECONDS", 0.01)
    with report_stack(tmp_path, 4, "ridge") as report:
        assert [(beat.stack, beat.process) for beat in list_heartbeats(tmp_path)] == [(4, os.getpid())]
        report(0.5)
        end = time.monotonic() + 30
        while list_heartbeats(tmp_path)[0].share != 0.5 and time.monotonic() < end:
            time.sleep(0.005)
        assert list_heartbeats(tmp_path)[0].share == 0.5
    assert not any(tmp_path.iterdir())


def test_a_finished_stack_leaves_no_heartbeat_of_a_worker_that_died_over_it(tmp_path):
    add_worker(tmp_path, 4, "node7", 41)
    add_worker(tmp_path, 41, "node7", 42)
    with report_stack(tmp_path, 4, "ridge"):
        assert len(list_heartbeats(tmp_path)) == 3
    assert [beat.stack for beat in list_heartbeats(tmp_path)] == [41]


def test_an_interrupted_stack_has_not_failed(tmp_path):
    with pytest.raises(KeyboardInterrupt), report_stack(tmp_path, 4, "ridge"):
        raise KeyboardInterrupt
    assert list_failures(tmp_path) == []


# ---------------------------------------------------------------- shards, whoever comes first


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
    assert "but other shards are not" in said.out
    said = brio("run", folder, "--out", out, *RIDGE, "--shard", "1/2")
    assert "and so are all others" in said.out
    assert not (out / "results.csv").exists()
    monkeypatch.setattr(Ridge, "fit", lambda *args, **kwargs: pytest.fail("a finished run was trained again"))
    assert brio("run", folder, "--out", out, *RIDGE, "--shard", "1/2").status == 0
    assert brio("run", folder, "--out", out, *RIDGE).status == 0
    assert read_without_seconds(out) == read_without_seconds(whole)


def test_a_job_is_planned_and_a_shard_without_a_stack_says_so(brio, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(Ridge, "fit", lambda *args, **kwargs: pytest.fail("a run was trained"))
    out = tmp_path / "out"
    said = brio("run", folder, "--out", out, *RIDGE, "--shard", "plan").succeed()
    assert (
        f"{N_STACKS} stacks in total; --shard 1/{N_STACKS} to --shard {N_STACKS}/{N_STACKS} train one stack each\n"
        in said.out
    )
    assert "nothing was trained" in said.out
    assert f"{N_STACKS} waiting" in brio("status", out).out
    said = brio("run", folder, "--out", out, *RIDGE, "--shard", "7/8").succeed()
    assert f"shard 7 of 8 has nothing to train: the job has {N_STACKS} stacks\n" in said.out


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

    def write_together(*args):
        both.wait()
        write(*args)

    monkeypatch.setattr(RunStore, "_write_files", write_together)
    with ThreadPoolExecutor(2) as pool:
        opened = [(job, build_plan(job, ["ridge"]), tmp_path / "out") for _ in range(2)]
        assert list(pool.map(lambda given: train_shard(*given, quiet=True), opened)) == [True, True]
    RunStore(tmp_path / "out" / "runs").check(os.listdir(tmp_path / "out" / "runs"))
    assert not (tmp_path / "out" / "workers").exists()


def test_a_job_beside_a_live_shard_leaves_its_half_written_runs(brio, folder, tmp_path):
    """Without a shard the folder is reserved, but a shard does not ask for the lock."""
    out = tmp_path / "out"
    assert brio("run", folder, "--out", out, *RIDGE, "--shard", "1/2").status == 0
    partial = out / "runs" / ".brio-00000000-1-00000000-0.partial"  # of another machine
    partial.mkdir()
    add_worker(out, 1, "elsewhere", 1)
    assert brio("run", folder, "--out", out, *RIDGE).status == 0
    assert partial.is_dir()
    shutil.rmtree(out / "workers")
    assert brio("run", folder, "--out", out, *RIDGE).status == 0
    assert not partial.exists()


def test_what_another_process_trains_comes_last(brio, folder, copy, monkeypatch):
    add_worker(copy, 1, "elsewhere", 1)
    fit, trained = Ridge.fit, []
    monkeypatch.setattr(Ridge, "fit", lambda *a, **k: trained.append(a[2][0].fold.name) or fit(*a, **k))
    brio("run", folder, "--out", copy, *RIDGE).succeed()
    assert trained == ["site05", "site01"], "the third stack, then the first"


def test_shards_of_a_search(brio, folder, tmp_path):
    words = [*RIDGE, "--seeds", "1"]
    assert brio("tune", folder, "--out", tmp_path / "whole", *words).status == 0
    out = tmp_path / "out"
    said = brio("tune", folder, "--out", out, *words, "--shard", "2/2")
    assert "shard 2/2 of the search is finished, but other shards are not" in said.out
    assert "run the command of every shard again to train with the chosen settings" in said.out
    assert not (out / "plan.json").exists()
    for shard in ("1/2", "2/2"):
        assert brio("tune", folder, "--out", out, *words, "--shard", shard).status == 0
    assert not (out / "tuning.json").exists()
    assert "and so are all others" in brio("tune", folder, "--out", out, *words, "--shard", "1/2").out
    assert brio("tune", folder, "--out", out, *words).status == 0
    assert read_without_seconds(out) == read_without_seconds(tmp_path / "whole")


def test_shards_of_a_study(brio, folder, tmp_path, undrawn):
    words = ["study", "comparison", folder, "--method", "ridge", "--method", "svm", "--seeds", "1", "--device", "cpu"]
    out = tmp_path / "out"
    for shard in ("1/2", "2/2"):
        said = brio(*words, "--out", out, "--quiet", "--shard", shard).succeed()
    assert "and so are all others" in said.out
    assert not (out / "studies").exists()
    assert brio(*words, "--out", out, "--quiet").status == 0
    assert (out / "studies" / "comparison" / "table.csv").is_file()


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/2/3", "-1/2"])
def test_no_such_shard(text):
    refuse("such as 2/8", LocalEngine.parse, text)


# ---------------------------------------------------------------- finished methods of an unfinished job


@pytest.fixture(scope="module")
def partly(brio, folder, tmp_path_factory) -> tuple[Path, Path]:
    """A job of three methods of which two are finished, and the job of those two."""
    place, runs = tmp_path_factory.mktemp("partly"), ["--seeds", "3", "--device", "cpu", "--quiet"]
    methods = ["--method", "ridge", "--method", "gcn", "--method", "svm", "--set", "epochs=1"]
    brio("run", folder, "--out", place / "partly", *methods, *runs, "--shard", "1/3").succeed()
    brio("run", folder, "--out", place / "partly", *methods, *runs, "--shard", "3/3").succeed()
    brio("run", folder, "--out", place / "two", *methods[:2], *methods[4:6], *runs).succeed()
    return place / "partly", place / "two"


def test_finished_methods_of_an_unfinished_job_are_shown_as_preliminary(brio, partly, tmp_path):
    out, two = partly
    before = sorted(path for path in out.rglob("*"))
    for words in (["table"], ["table", "--compare", "ridge"], ["compare"]):
        said = brio(words[0], out, *words[1:]).succeed()
        first, _, rest = said.out.partition("\n\n")
        assert first.startswith("Preliminary: ")
        assert "gcn (15 runs)" in first
        expected = brio(words[0], two, *words[1:]).succeed().out
        assert rest.replace("partly", "two") == expected
    page = tmp_path / "page.html"
    brio("report", out, "--out", page).succeed()
    for path in (page, page.with_name("MODEL_CARD.md")):
        text = path.read_text()
        assert text.index("Preliminary: ") < text.index("ridge", text.index("Preliminary: "))
        assert "gcn (15 runs)" in text
    brio("report", two, "--out", page).succeed()
    assert "Preliminary" not in page.read_text()
    assert sorted(path for path in out.rglob("*")) == before, "nothing is written to the job"


def test_tables_are_written_of_finished_jobs_alone(brio, partly, copy, tmp_path):
    out, _ = partly
    brio("table", out, "--csv", tmp_path / "runs.csv").refuse()
    brio("compare", out, "--out", tmp_path / "joined").refuse()
    assert list(tmp_path.iterdir()) == [copy]
    for words in (["table"], ["compare"], ["report"]):
        assert "brio status" in brio(*words, copy).refuse_in_a_line(), "no method is finished"

"""Two commands on one folder at once: one wins, the other says so, and what is there is whole."""

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from small_jobs import RUN

from brio import Cohort
from brio.results import StoredJob
from commands import command


def run_at_once(*actions: Callable[[], int]) -> list[int | None]:
    """Run actions in children of this process that start together; returns their exit statuses."""
    context = multiprocessing.get_context("fork")
    together = context.Barrier(len(actions))

    def start(action: Callable[[], int]) -> None:
        together.wait()
        os._exit(action())

    children = [context.Process(target=start, args=(action,)) for action in actions]
    for child in children:
        child.start()
    for child in children:
        child.join()
    return [child.exitcode for child in children]


def act(where: Path, *words: object) -> Callable[[], int]:
    """Return a command as an action that keeps what it says on standard error."""

    def run() -> int:
        said = command(*words)
        where.write_text(said.err)
        return said.status

    return run


def save_at_once(here: Path, k: int) -> None:
    out, cohort = here / f"saved {k}", Cohort.load(here / "cohort")
    words = ("atlas", "cohort", "rois.tsv", "--by-order", "--out", out)
    (here / "rois.tsv").write_text("name\n" + "".join(f"r{i}\n" for i in range(cohort.n_rois)))
    statuses = run_at_once(act(here / "one", *words), act(here / "two", *words))
    assert sorted(statuses) == [0, 2], ((here / "one").read_text(), (here / "two").read_text())
    loser = here / ("one" if statuses[0] else "two")
    answers = (
        "another brio process is writing this folder",
        "another process has written this folder",
        "already exists",
    )
    said = " ".join(loser.read_text().split())  # lines are wrapped behind the path, which may be long
    assert any(words in said for words in answers), said
    Cohort.load(out).verify()
    saved = {f"saved {i}" for i in range(k + 1)}
    assert {path.name for path in here.iterdir()} == {"cohort", "job", "rois.tsv", "one", "two"} | saved


def run_job_at_once(here: Path, k: int) -> None:
    words = ("run", "cohort", "--out", f"job {k}", *RUN)
    statuses = run_at_once(act(here / "one", *words), act(here / "two", *words))
    assert 0 in statuses
    for name, status in zip(("one", "two"), statuses, strict=True):
        if status:  # the other came second; had it come much later, it would have resumed a finished job
            assert status == 2
            assert "another brio process is using this folder" in " ".join((here / name).read_text().split())
    job = StoredJob.read(here / f"job {k}")
    assert len(job.runs) == len(job.rows) == 5
    assert not list((here / f"job {k}").rglob("*.partial"))


def report_at_once(here: Path, k: int) -> None:
    (here / "job" / "report.html").unlink(missing_ok=True)
    resume, page = ("run", "cohort", "--out", "job", *RUN), ("report", "job")
    assert run_at_once(act(here / "one", *resume), act(here / "two", *page)) == [0, 0], (here / "two").read_text()
    assert "</html>" in (here / "job" / "report.html").read_text("utf-8")
    StoredJob.read(here / "job")


BOTH = [save_at_once, run_job_at_once, report_at_once]


def test_two_at_once(here):
    save_at_once(here, 0)


@pytest.mark.soak
@pytest.mark.parametrize("both", BOTH)
def test_two_at_once_twenty_times(both, here):
    for k in range(20):
        both(here, k)

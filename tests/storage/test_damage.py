"""Each stored file damaged in turn: the first command that reads it says so, and what it advises helps."""

import shutil
from pathlib import Path

import pytest
from small_jobs import RUN

from brio import BrioError, Cohort
from brio.results import RunStore, StoredJob
from brio.storage import SUMS
from commands import command

DAMAGES = ("flipped", "cut", "emptied", "removed")
JOB_FILES = ("summary.json", "results.csv", "plan.json", "predictions.csv", "audit.json", "facts.json", "groups.csv")


def damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "removed":
        path.unlink()
        return
    if how == "flipped":
        content[content.index(b"json") - 10 if path.name == SUMS else len(content) // 2] ^= 1  # of a hash that is used
    path.write_bytes({"flipped": content, "cut": content[: len(content) // 2], "emptied": b""}[how])


def refuse(*words: object) -> str:
    """Return the one line that a refused command prints."""
    return command(*words).refuse_in_a_line()


def take_snapshot(folder: Path) -> dict[Path, int]:
    """All files, and when each was written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("how", DAMAGES)
def test_every_file_is_missed_by_its_reader(here, how):
    """Without the command around it, which takes longer."""
    job = here / "job"
    run = sorted((job / "runs").iterdir())[1]
    cases = [(job / name, lambda: StoredJob.read(job)) for name in (*JOB_FILES, SUMS)]
    cases += [(path, lambda: RunStore(job / "runs").check([run.name])) for path in run.iterdir()]
    cases += [(path, lambda: Cohort.load(here / "cohort").verify()) for path in (here / "cohort").iterdir()]
    for path, read in cases:
        read()
        kept = path.read_bytes()
        damage(path, how)
        with pytest.raises(BrioError) as told:
            read()
        assert path.name in str(told.value) or (path.name == SUMS and "changed or damaged" in str(told.value))
        path.write_bytes(kept)


def test_a_refused_resume_changes_nothing(here):
    """Not even what it would mend of its own."""
    run = sorted((here / "job" / "runs").iterdir())[1]
    damage(run / "run.json", "flipped")
    damage(here / "job" / "facts.json", "removed")
    (here / "job" / ".lock").unlink()
    before = take_snapshot(here)
    assert "run.json: has been changed" in refuse("run", "cohort", "--out", "job", *RUN)
    assert take_snapshot(here) == before


@pytest.mark.soak
def test_what_is_advised_helps(here):
    before = StoredJob.read(here / "job")
    resume = ("run", "cohort", "--out", "job", *RUN)
    for name in ("plan.json", SUMS):
        damage(here / "job" / name, "cut")
        assert "remove plan.json" in refuse(*resume)
        (here / "job" / "plan.json").unlink()
        assert "5 of 5 runs are finished" in command(*resume).out
    run = sorted((here / "job" / "runs").iterdir())[2]
    damage(run / "weights.safetensors", "flipped")
    assert f"{run.name}/weights.safetensors: has been changed" in (line := refuse(*resume))
    assert "remove the folder of this run and run the command of the job again" in line
    shutil.rmtree(run)
    assert "4 of 5 runs are finished" in command(*resume).out
    for name in ("results.csv", "summary.json", "predictions.csv", "facts.json", "groups.csv", "audit.json"):
        for how in DAMAGES:
            damage(here / "job" / name, how)
            assert name in refuse("table", "job")
            assert command(*resume).status == 0
            assert command("table", "job").status == 0, (name, how)
    after = StoredJob.read(here / "job")
    assert after.plan == before.plan
    assert after.rows.drop(columns="seconds").equals(before.rows.drop(columns="seconds"))
    assert after.summary == before.summary


@pytest.mark.soak
def test_a_run_that_is_gone_is_missed_by_a_report(here):
    shutil.rmtree(sorted((here / "job" / "runs").iterdir())[0])
    assert "is missing; run the command of the job again" in refuse("report", "job")


def test_foreign_files_are_not_replaced(here, monkeypatch):
    monkeypatch.setattr("brio.report.write.render_page", lambda contents: '<meta name="generator" content="brio 1">')
    (here / "MODEL_CARD.md").write_text("# My own model\n")
    assert "MODEL_CARD.md: exists and was not written by brio" in refuse("report", "job", "--out", "x.html")
    assert not (here / "x.html").exists()
    (here / "MODEL_CARD.md").unlink()
    assert command("report", "job", "--out", "x.html").status == 0
    assert command("report", "job", "--out", "x.html").status == 0, "its own it replaces"
    (here / "x.html").write_text("<html>mine</html>")
    assert "x.html: exists and was not written by brio" in refuse("report", "job", "--out", "x.html")
    assert "is the folder of a job" in refuse("compare", "job", "--out", "job")

"""Commands on a full disk, interrupted or killed at any step of writing: nothing half, and the same command ends whole.

A few steps of each command in every run of the tests, all of them in the soak tests.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from small_jobs import RUN, STUDY

from commands import Said, command
from faults import Step, die_at, failing, list_steps, raising
from stored import read_without_seconds

QUIET = ("--device", "cpu", "--quiet")
COMMANDS: dict[str, tuple[object, ...]] = {
    "import": ("import", "table", "files", "--out", "new"),
    "run": ("run", "cohort", "--out", "new", *RUN),
    "report": ("report", "job", "--out", "new/page.html"),
    "fit": ("fit", "cohort", "--method", "ridge", "--out", "new", *QUIET),
    "tune": ("tune", "cohort", "--out", "new", "--method", "svm", "--budget", 2, "--seeds", 1, *QUIET),
    "study": ("study", *STUDY[:1], "cohort", "--out", "new", *STUDY[1:]),
}


@pytest.fixture
def place(here, monkeypatch) -> Path:
    """A cohort, a job, and files to import; figures are not drawn, which takes longest."""
    monkeypatch.setattr("brio.studies.study.render_figure", lambda figure, kind: b"drawn")
    (here / "files").mkdir()
    rows = [{"participant_id": f"p{k}", "site": f"s{k % 2}", "label": k // 2 % 2} for k in range(8)]
    for row in rows:
        np.save(here / "files" / f"{row['participant_id']}.npy", np.random.default_rng(8).normal(size=(30, 4)))
    pd.DataFrame(rows).to_csv(here / "files" / "participants.tsv", sep="\t", index=False)
    return here


def choose(steps: list[Step], few: int | None) -> Iterator[int]:
    """All numbers of steps, or a few that are spread over them and are of every kind."""
    if few is None:
        yield from range(len(steps))
        return
    first_of_kind = {step.name: number for number, step in reversed(list(enumerate(steps)))}
    yield from sorted({*first_of_kind.values(), *np.linspace(0, len(steps) - 1, few).astype(int).tolist()})


def run_and_compare(name: str, place: Path, disturb: Callable[[int, Callable[[], Said]], None], few: int | None) -> int:
    """Disturb a command at its steps, give it again, and compare with what it leaves undisturbed."""
    words, out = COMMANDS[name], place / "new"
    steps = list_steps(lambda: command(*words))
    whole, around = read_without_seconds(out), {path.name for path in place.iterdir()}
    count = 0
    for number in choose(steps, few):
        shutil.rmtree(out)
        disturb(number, lambda: command(*words))
        if name in ("import", "fit") and out.exists():
            assert read_without_seconds(out) == whole, "whole or not at all"
        else:
            command(*words).succeed()
            assert read_without_seconds(out) == whole, (number, steps[number])
        assert {path.name for path in place.iterdir()} == around, (number, steps[number])
        count += 1
    return count


def fill_disk(number: int, run: Callable[[], Said]) -> None:
    with failing(number):
        said = run()
    if said.status != 0:  # the very last steps may fail without harm
        assert "the disk is full; free some space and try again" in said.refuse_in_a_line()
    assert not list(Path().rglob("*.partial"))


def press_ctrl_c(number: int, run: Callable[[], Said]) -> None:
    with raising(number, KeyboardInterrupt):
        said = run()
    assert said.status == 130, said
    assert said.err.startswith("brio: interrupted; run the same command again"), said
    assert said.err.count("\n") == 1
    assert not list(Path().rglob("*.partial"))


def test_an_import_on_a_full_disk_is_given_again(place):
    assert run_and_compare("import", place, fill_disk, few=1) >= 3


def test_ctrl_c_leaves_nothing_of_an_import(place):
    press_ctrl_c(5, lambda: command(*COMMANDS["import"]))
    assert not (place / "new").exists()


def test_a_job_on_a_full_disk_goes_on(place):
    fill_disk(60, lambda: command(*COMMANDS["run"]))
    said = command(*COMMANDS["run"]).succeed()
    assert "of 5 runs are finished" in said.out
    assert read_without_seconds(place / "new") == read_without_seconds(place / "job")


def _kill(number: int, when: str, run: Callable[[], Said]) -> None:
    assert die_at(number, when, run)


@pytest.mark.soak
@pytest.mark.parametrize("disturb", [fill_disk, press_ctrl_c])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_disturbed_at_every_step(name, disturb, place):
    print(name, disturb.__name__, run_and_compare(name, place, disturb, few=None), "steps")


@pytest.mark.soak
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_killed_at_every_step(name, when, place):
    print(name, when, run_and_compare(name, place, lambda n, run: _kill(n, when, run), few=None), "steps")

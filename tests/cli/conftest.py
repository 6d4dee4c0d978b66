"""The command line inside this process, and a small cohort with a job on it."""

import contextlib
import io
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest

from brio.cli import main
from brio.cohort.simulate import Simulation, simulate


@dataclass(frozen=True)
class Answer:
    """What a command printed and how it ended."""

    status: int
    out: str
    err: str


def command(*words: object) -> Answer:
    """Run ``brio`` with these words; an error that is not meant for people comes through."""
    out, err, status = io.StringIO(), io.StringIO(), 0
    argv = mock.patch.object(sys, "argv", ["brio", *map(str, words)])
    with argv, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            status = int(end.code or 0)
    return Answer(status, out.getvalue(), err.getvalue())


@pytest.fixture
def brio():
    """Run a command."""
    return command


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    """A cohort of five sites and a job on it; copied, never changed."""
    place = tmp_path_factory.mktemp("made")
    simulate(Simulation(n_sites=5, per_class=3, n_rois=8, frames=60)).save(place / "cohort")
    words = ["--method", "ridge", "--device", "cpu", "--out", place / "job", "--quiet"]
    assert command("run", place / "cohort", *words).status == 0
    return place


@pytest.fixture
def here(made, tmp_path, monkeypatch) -> Path:
    """A working folder with both."""
    shutil.copytree(made, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"

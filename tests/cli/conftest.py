"""The command line inside this process, and a small cohort with a job on it."""

import shutil
from pathlib import Path

import pytest

from brio.cohort.simulate import Simulation, simulate
from commands import command


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

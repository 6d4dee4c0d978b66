"""One small cohort and what commands make of it, with methods in closed form."""

import shutil
from pathlib import Path

import pytest
from small_jobs import RUN

from brio.cohort.simulate import Simulation, simulate
from commands import command


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    """A cohort and a finished job; never changed by a test."""
    place = tmp_path_factory.mktemp("storage")
    simulate(Simulation(n_sites=4, per_class=3, n_rois=8, frames=60)).save(place / "cohort")
    assert command("run", place / "cohort", "--out", place / "job", *RUN).status == 0
    return place


@pytest.fixture
def here(made, tmp_path, monkeypatch) -> Path:
    """A folder to work in, with copies of the cohort and the job."""
    for name in ("cohort", "job"):
        shutil.copytree(made / name, tmp_path / "here" / name)
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"

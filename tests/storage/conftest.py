"""One small cohort and what commands make of it, with methods in closed form."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from small_jobs import RUN, STUDY, TUNE

from brio.cohort.simulate import Simulation, simulate
from commands import Said, command


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    """A cohort and a finished job; never changed by a test."""
    place = tmp_path_factory.mktemp("storage")
    simulate(Simulation(n_sites=4, per_class=3, n_rois=8, frames=60)).save(place / "cohort")
    assert command("run", place / "cohort", "--out", place / "job", *RUN).status == 0
    return place


@pytest.fixture(scope="session")
def made_more(made) -> Path:
    """The same with a study, a search and a model; takes longer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("brio.studies.study.render_figure", lambda figure, kind: f"<svg>{kind}</svg>".encode())
        assert command("study", *STUDY[:1], made / "cohort", "--out", made / "study", *STUDY[1:]).status == 0
    assert command("tune", made / "cohort", "--out", made / "tuned", *TUNE).status == 0
    assert command("fit", made / "cohort", "--method", "ridge", "--out", made / "model", "--device", "cpu").status == 0
    return made


@pytest.fixture
def here(made, tmp_path, monkeypatch) -> Path:
    """A folder to work in, with copies of the cohort and the job."""
    for name in ("cohort", "job"):
        shutil.copytree(made / name, tmp_path / "here" / name)
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def here_with_more(made_more, tmp_path, monkeypatch) -> Path:
    """A folder to work in, with copies of everything."""
    shutil.copytree(made_more, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def refuse() -> Callable[..., str]:
    """Return the one line that a refused command prints."""

    def run(*words: object) -> str:
        said: Said = command(*words)
        assert said.status == 2, said
        assert said.err.startswith("brio: "), said
        assert said.err.count("\n") == 1, said
        return said.err

    return run

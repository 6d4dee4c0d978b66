"""Finished jobs to report on, with names that would do harm if they were not escaped."""

import shutil
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from harmful import NASTY, SITES

from brio import Cohort, run
from brio.cohort.atlas import Atlas
from brio.cohort.simulate import Simulation, simulate
from brio.report.html import figures
from brio.report.write import write_report
from made_cohorts import rebuild
from stored import rehash


@pytest.fixture(scope="session", autouse=True)
def show_all_factors():
    """Show factors of runs that do not agree, as such tiny ones."""
    with mock.patch.object(figures, "LEAST_AGREEMENT", -1.0):
        yield


TINY = {"epochs": 4, "T_w": 2, "M": 2, "K": 2, "cell_batch": 4}


@pytest.fixture(scope="session")
def cohort() -> Cohort:
    """Five sites whose names are code, an atlas with such a region, and one duplicate scan."""
    made = simulate(Simulation(n_sites=5, per_class=5, n_rois=8, frames=60))
    index = [*range(len(made)), 2]
    rois = made.atlas.rois.copy()
    rois.loc[0, "name"] = NASTY
    return rebuild(
        made,
        index=index,
        site=[SITES[made.sites[i]] for i in index],
        participant_id=[f"<b>who{i:03d}</b>" for i in range(len(index))],
        atlas=Atlas("<i>atlas</i>", rois),
        classes=("control", "patient"),
        name="<em>cohort</em> & co",
    )


@pytest.fixture(scope="session")
def finished(cohort, tmp_path_factory) -> Path:
    """A folder of ``brio run`` with three methods and three seeds."""
    folder = tmp_path_factory.mktemp("report") / "run"
    run(cohort, ["brio", "ridge", "covariates-only"], seeds=3, out=folder, settings=TINY, device="cpu")
    return folder


@pytest.fixture(scope="session")
def by_folds(cohort, tmp_path_factory) -> Path:
    """A folder of ``brio run`` by k-fold with three seeds."""
    folder = tmp_path_factory.mktemp("report") / "kfold"
    settings = {"protocol.n_folds": 4, "protocol.validation_folds": 1}
    run(cohort, ["ridge"], seeds=3, protocol="kfold", settings=settings, out=folder, device="cpu")
    return folder


@pytest.fixture(scope="session")
def renamed(finished, tmp_path_factory) -> Path:
    """The same, and a method of the user's own whose name is code too."""
    folder = tmp_path_factory.mktemp("report") / "renamed"
    shutil.copytree(finished, folder)
    new = "<img src=x onerror=window.pwned=1>"
    for path in [*folder.glob("*.json"), *folder.glob("*.csv"), *folder.glob("runs/*/run.json")]:
        path.write_text(path.read_text().replace("covariates-only", new))
    return rehash(folder)


@pytest.fixture(scope="session")
def page(finished) -> str:
    """The report of the finished runs."""
    return write_report(finished).read_text(encoding="utf-8")


@pytest.fixture
def copy(finished, tmp_path, monkeypatch) -> Path:
    """A copy of the finished job that a test may change; pages lack the interactive brain, which takes long."""
    monkeypatch.setattr(figures, "render_brain_viewer", lambda *_: None)
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    for name in ("report.html", "MODEL_CARD.md"):
        (folder / name).unlink(missing_ok=True)
    return rehash(folder)


@pytest.fixture
def rewrite(copy) -> Callable[[], str]:
    """A function that writes the report of the copy, which has the hashes of its changed files then."""
    return lambda: write_report(rehash(copy)).read_text(encoding="utf-8")

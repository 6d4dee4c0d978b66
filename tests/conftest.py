"""What all tests share: where the real scans are, and small cohorts.

Other people's packages that serve as oracles (torch_geometric, POT, arch, nilearn, ...) are imported inside the tests
that use them: every process collects every test, and would wait for all of them. Tests against torch_geometric, which
takes longest, are one group for the same reason.
"""

import contextlib
import functools
import gc
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings

from brio.errors import BrioError

# a busy machine is no defect: no property is held to the time that an example takes, or that drawing it takes
settings.register_profile("brio", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("brio")
# messages are compared as they are written, with options; tests/test_messages.py reads them as users of Python do
BrioError.names_options = True

TOGETHER = (
    *("jobs", "models", "report", "studies"),
    *(f"cohort/test_{name}.py" for name in ("audit_abide", "known_atlases", "simulate")),
)
"""Folders and files whose tests share what takes long to compute or import: one process runs all of them."""
MANY = 20
"""Tests of a file that are dealt together."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for garbage neither during the collection nor, later, among what it made, which stays to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests that share something into one group, for ``--dist loadgroup``.

    Groups are begun in the order of their size. The tests of a file are a group if they share a fixture, which each
    process would compute, or if they are many, since dealing tests one by one costs more than a short test. The others
    are dealt one by one at the end, so that no process waits for the other.
    """
    here = Path(__file__).parent
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    for path, tests in files.items():
        if here not in path.parents:  # an example in a docstring
            for item in tests:
                item.add_marker(pytest.mark.xdist_group("examples"))
            continue
        place = path.relative_to(here)
        folder = next((known for known in TOGETHER if place.is_relative_to(known)), None)
        together = len(tests) >= MANY or any(_shares_fixture(item) for item in tests)
        for item in tests:
            name = getattr(item, "callspec", None)
            if folder is not None:
                item.add_marker(pytest.mark.xdist_group(folder))
            elif path.name == "test_contract.py" and name is not None and "name" in name.params:
                item.add_marker(pytest.mark.xdist_group(f"contract of {name.params['name']}"))
            elif together and item.get_closest_marker("xdist_group") is None:
                item.add_marker(pytest.mark.xdist_group(str(place)))


def _shares_fixture(item: pytest.Item) -> bool:
    """Whether a test asks for a fixture of these tests that lasts longer than a test."""
    info = getattr(item, "_fixtureinfo", None)
    asked = (
        []
        if info is None
        else [info.name2fixturedefs[name][-1] for name in info.names_closure if name in info.name2fixturedefs]
    )
    return any(fixture.baseid not in ("", "tests") and fixture.scope in ("module", "session") for fixture in asked)


@pytest.fixture(scope="session", autouse=True)
def commands_built_once() -> Iterator[None]:
    """Typer builds every command of the application anew for each command that is given; here they are kept."""
    import typer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture(scope="session", autouse=True)
def audits_kept() -> Iterator[None]:
    """Jobs on the same scans share their audit, which takes longest of what a job does before it trains."""
    from pandas.util import hash_pandas_object

    from brio.jobs import job

    kept, audit = {}, job.audit

    def identify(cohort):
        content = cohort.frames.tobytes(), hash_pandas_object(cohort.participants).to_numpy().tobytes()
        return cohort.name, cohort.atlas.name, cohort.fingerprint, *map(hash, content)

    def audit_once(cohort, rules, companions):
        key = (rules, *map(identify, (cohort, *companions)))
        if key not in kept:
            kept[key] = audit(cohort, rules, companions)
        return kept[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "audit", audit_once)
        yield


@pytest.fixture(scope="session", autouse=True)
def temporary_folders(tmp_path_factory) -> Iterator[None]:
    """Folders of jobs without ``out`` lie among those of the tests, and are removed with them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
        yield


@pytest.fixture(scope="session", autouse=True)
def unsynced() -> Iterator[None]:
    """Tests do not wait until files are on the disk: no power fails between two of them."""
    with mock.patch.multiple("brio.storage.disk", sync=lambda descriptor: None, sync_folder=lambda folder: None):
        yield


@pytest.fixture
def undrawn(monkeypatch) -> None:
    """Figures of studies are made but not rendered, which takes longest."""

    def count_axes(figure, kind):
        return f"{len(figure.axes)} axes".encode()

    monkeypatch.setattr("brio.studies.study.render_figure", count_axes)


@pytest.fixture(scope="session")
def abide_folder() -> Path:
    """The folder of packed ABIDE scans; the tests that need it skip, and say so, where it is absent."""
    named = os.environ.get("BRIO_ABIDE")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "abide"
    if not (folder / "participants.tsv").is_file():
        pytest.skip("the real scans are not here: set BRIO_ABIDE to their folder")
    return folder


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    """A cohort of five sites and a finished job on it; copied, never changed."""
    from brio.cohort.simulate import Simulation, simulate
    from commands import command

    place = tmp_path_factory.mktemp("made")
    simulate(Simulation(n_sites=5, per_class=3, n_rois=8, frames=60)).save(place / "cohort")
    words = ["--method", "ridge", "--device", "cpu", "--quiet"]
    command("run", place / "cohort", "--out", place / "job", *words).succeed()
    return place


@pytest.fixture
def here(made, tmp_path, monkeypatch) -> Path:
    """A working folder with both."""
    shutil.copytree(made, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture(scope="module")
def client() -> Iterator[object]:
    """A Dask scheduler and a worker in this process."""
    distributed = pytest.importorskip("distributed", reason="the extra brio[dask] is not installed")
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0", silence_logs=50
    )
    with cluster, distributed.Client(cluster, set_as_default=False) as client:
        yield client


@pytest.fixture
def on_dask(client, monkeypatch) -> None:
    """Commands with ``--engine dask`` use the scheduler of this process."""
    from brio.jobs import dask as engine

    @contextlib.contextmanager
    def join(options, threads, gpu):
        yield client

    monkeypatch.setattr(engine, "connect", join)
    monkeypatch.setattr(engine, "POLL_SECONDS", 0.05)


@pytest.fixture
def last_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose the last checkpoint always, so that whole trainings are compared, not their first epochs."""
    import numpy as np

    from brio.training.trainer import BestValidationEpoch

    monkeypatch.setattr(BestValidationEpoch, "score", lambda self, logit: np.nextafter(self.best.clip(0), 2))

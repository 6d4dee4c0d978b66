"""What all tests share: where the real scans are, and small cohorts.

Other people's packages that serve as oracles (torch_geometric, POT, arch, nilearn, ...) are imported inside the tests
that use them: every process collects every test, and would wait for all of them. Tests against torch_geometric, which
takes longest, are one group for the same reason.
"""

import functools
import gc
import os
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from unittest import mock

import pytest

TOGETHER = (
    *("jobs", "models", "report", "studies"),
    *(f"cohort/test_{name}.py" for name in ("audit_abide", "known_atlases", "simulate")),
)
"""Folders and files whose tests share what takes long to compute or import: one process runs all of them."""


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
    """Put tests that share fitted runs into one group, for ``--dist loadgroup``."""
    here = Path(__file__).parent
    for item in items:
        if here not in item.path.parents:
            continue
        place, name = item.path.relative_to(here), getattr(item, "callspec", None)
        group = next((known for known in TOGETHER if place.is_relative_to(known)), None)
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))
        elif item.path.name == "test_contract.py" and name is not None and "name" in name.params:
            item.add_marker(pytest.mark.xdist_group(f"contract of {name.params['name']}"))


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

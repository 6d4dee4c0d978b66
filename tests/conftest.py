"""What all tests share: where the real scans are, and small cohorts.

Other people's packages that serve as oracles (torch_geometric, POT, arch, nilearn, ...) are imported inside the tests
that use them: every process collects every test, and would wait for all of them. Tests against torch_geometric, which
takes longest, are one group for the same reason.
"""

import os
from pathlib import Path

import pytest

TOGETHER = ("jobs", "models", "report", "studies", "cohort/test_audit_abide.py", "cohort/test_simulate.py")
"""Folders and files whose tests share what takes long to compute: one process runs all tests of one of them."""


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


@pytest.fixture
def undrawn(monkeypatch) -> None:
    """Figures of studies are made but not rendered, which takes longest."""

    def write_axes(figure, path):
        path.write_text(f"{len(figure.axes)} axes")

    monkeypatch.setattr("brio.studies.study.save_figure", write_axes)


@pytest.fixture(scope="session")
def abide_folder() -> Path:
    """The folder of packed ABIDE scans; the tests that need it skip, and say so, where it is absent."""
    named = os.environ.get("BRIO_ABIDE")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "abide"
    if not (folder / "participants.tsv").is_file():
        pytest.skip("the real scans are not here: set BRIO_ABIDE to their folder")
    return folder

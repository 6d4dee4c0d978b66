"""What all tests share: where the real scans are, and small cohorts."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def abide_folder() -> Path:
    """The folder of packed ABIDE scans; the tests that need it skip, and say so, where it is absent."""
    named = os.environ.get("BRIO_ABIDE")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "abide"
    if not (folder / "participants.tsv").is_file():
        pytest.skip("the real scans are not here: set BRIO_ABIDE to their folder")
    return folder

"""Scripts of the documentation and of the benchmarks can be imported."""

import functools
from pathlib import Path

import pytest

from brio.results import StoredJob

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _importable(monkeypatch) -> None:
    for folder in ("docs", "docs/_ext", "benchmarks/bench"):
        monkeypatch.syspath_prepend(REPOSITORY / folder)
    monkeypatch.setattr(StoredJob, "read", functools.cache(StoredJob.read))  # pages read the same jobs

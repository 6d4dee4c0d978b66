"""How much memory is free, where the system says it and where not."""

import sys
from pathlib import Path

import pytest

from brio import machine


@pytest.fixture
def no_files(monkeypatch):
    """A system without the files of Linux."""

    def fail(self, *arguments):
        raise FileNotFoundError(self)

    monkeypatch.setattr(Path, "read_text", fail)


def test_a_system_that_says_nothing_limits_nothing(no_files, monkeypatch):
    monkeypatch.setitem(sys.modules, "resource", None)
    assert machine.find_free_memory() is None


def test_a_limit_of_the_process_counts_without_files_too(no_files, monkeypatch):
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (5_000_000_000, 5_000_000_000))
    assert machine.find_free_memory() == 5_000_000_000


def test_bytes_are_printed_in_their_unit():
    printed = [machine.format_bytes(n) for n in (12, 3_400, 120_000_000, 2.5e9)]
    assert printed == ["12 B", "3.4 kB", "120 MB", "2.5 GB"]

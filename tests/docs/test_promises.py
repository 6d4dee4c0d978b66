"""The page of promises names tests that exist, and its counts are those of the tests."""

import importlib
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "promises.md"


@pytest.fixture
def count_cases(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "docs"), *sys.path])  # it adds folders of its own
    return importlib.import_module("count_cases")


def test_every_test_that_the_page_names_exists():
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", PAGE.read_text(encoding="utf-8")))
    assert len(named) >= 10
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


def test_the_counts_are_those_of_the_tests(count_cases):
    assert count_cases.TABLE.read_text(encoding="utf-8") == count_cases.format_counts(), "run `make results`"
    for _, n, file in count_cases.list_counts():
        assert n > 0
        assert (ROOT / file).is_file()

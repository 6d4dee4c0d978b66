"""Counts that the documentation states: cases behind the promises are those of the tests, hours those of the runs."""

import csv
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_every_test_that_the_page_of_promises_names_exists():
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")))
    assert len(named) >= 10
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


def test_the_counts_of_cases_are_those_of_the_tests():
    count_cases = importlib.import_module("count_cases")
    assert count_cases.TABLE.read_text(encoding="utf-8") == count_cases.format_counts(), "run `make results`"
    for _, n, file in count_cases.list_counts():
        assert n > 0
        assert (ROOT / file).is_file()


@pytest.fixture
def count_hours():
    return importlib.import_module("count_hours")


def read_seconds(job: Path) -> list[float]:
    with (job / "results.csv").open(newline="") as file:
        return [float(row["seconds"]) for row in csv.DictReader(file) if row["device"].startswith("cuda")]


def test_the_table_of_hours_is_that_of_the_evidence(count_hours):
    assert count_hours.TABLE.read_text(encoding="utf-8") == count_hours.format_hours(), "run `make results`"


def test_five_seeds_take_five_thirds_of_the_three_that_were_measured(count_hours):
    """Summed run by run: every job at unseen sites has three seeds."""
    place = ROOT / "evidence" / "unseen-sites" / "aal116"
    measured = sum(sum(read_seconds(job)) for job in place.iterdir() if job.is_dir())
    _, seconds = count_hours.count_parts()["neural networks at unseen sites"]["aal116"]
    assert seconds == pytest.approx(measured * 5 / 3)


def test_what_one_cohort_alone_measured_is_scaled(count_hours):
    """One network was run on 116 ROIs alone; with 200, runs take longer, and there are as many of them."""
    (n_small, small), (n_large, large) = count_hours.count_parts()["neural networks, tuned"].values()
    assert n_small == n_large == 22 * 20 * (4 + 4)
    assert 1 < large / small < 4

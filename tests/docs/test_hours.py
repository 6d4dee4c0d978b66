"""The GPU hours of a large study are those of the stored runs."""

import csv
import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def count_hours(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "docs"), *sys.path])
    return importlib.import_module("count_hours")


def read_seconds(*parts: str) -> list[float]:
    with (ROOT / "evidence").joinpath(*parts, "results.csv").open(newline="") as file:
        return [float(row["seconds"]) for row in csv.DictReader(file) if row["device"].startswith("cuda")]


def test_the_table_is_that_of_the_evidence(count_hours):
    assert count_hours.TABLE.read_text(encoding="utf-8") == count_hours.format_hours(), "run `make results`"


def test_five_seeds_take_five_thirds_of_the_three_that_were_measured(count_hours):
    """Summed run by run: every job at unseen sites has three seeds."""
    place = ROOT / "evidence" / "unseen-sites" / "aal116"
    measured = sum(sum(read_seconds("unseen-sites", "aal116", job.name)) for job in place.iterdir() if job.is_dir())
    _, seconds = count_hours.count_parts()["networks at unseen sites"]["aal116"]
    assert seconds == pytest.approx(measured * 5 / 3)


def test_what_one_cohort_alone_measured_is_scaled(count_hours):
    """One network was run on 116 ROIs alone; with 200, runs take longer, and there are as many of them."""
    (n_small, small), (n_large, large) = count_hours.count_parts()["networks, tuned"].values()
    assert n_small == n_large == 22 * 20 * (4 + 4)
    assert 1 < large / small < 4

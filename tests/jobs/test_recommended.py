"""What is run where no method is named, and how it says how long it takes."""

import inspect
import time

import pytest

import brio
from brio.cohort.simulate import Simulation, simulate
from brio.jobs.run import announce_time
from brio.jobs.spec import RECOMMENDED, RECOMMENDED_METHODS, choose_seeds
from made_cohorts import rebuild


@pytest.fixture(scope="module")
def cohort():
    """All sites have scans of two lengths."""
    made = simulate(Simulation(n_sites=3, per_class=12, n_rois=8, frames=60))
    return rebuild(made, [made.scan(i)[: -1 - i % 2] for i in range(len(made))])


def alike(cohort):
    return rebuild(cohort, [cohort.scan(i)[:50] for i in range(len(cohort))])


def of_sex(cohort):
    return rebuild(cohort, label=(cohort.participants["sex"] == "M").astype(int), classes=("F", "M"))


def without_motion(cohort):
    return rebuild(cohort, table=cohort.participants.drop(columns="mean_fd"))


def without_covariates(cohort):
    return rebuild(cohort, table=cohort.participants.drop(columns=["age", "sex", "mean_fd"]))


@pytest.mark.parametrize(
    ("change", "options", "left_out", "why"),
    [
        (lambda same: same, {}, None, ""),
        (alike, {}, "length-only", "all scans of each site have the same length"),
        (of_sex, {}, "covariates-only", "would use sex as an input, but sex is the label here"),
        (without_motion, {}, None, ""),
        (without_covariates, {}, "covariates-only", "has no column 'sex'"),
        (lambda same: same, {"label": "sex"}, None, ""),
    ],
    ids=["all", "one length", "sex", "no motion", "no covariates", "asked for sex"],
)
def test_methods_that_do_not_suit_the_cohort_are_left_out_with_the_reason(cohort, change, options, left_out, why):
    said = []
    result = brio.run(change(cohort), device="cpu", say=said.append, **options)
    wanted = [name for name in RECOMMENDED_METHODS if name != left_out]
    assert list(result.summary.methods) == wanted
    assert result.summary.seeds == (0, 1, 2)
    assert f"recommended methods, 3 seeds: {', '.join(wanted)}" in said
    reasons = [line for line in said if line.startswith("left out: ")]
    assert len(reasons) == bool(left_out)
    assert all(f"'{left_out}'" in line and why in line for line in reasons)


def test_networks_are_trained_only_if_they_are_named():
    assert RECOMMENDED_METHODS == ("log-ridge", "ridge", "covariates-only", "length-only", "dead-rois-only")
    assert inspect.signature(brio.run).parameters["methods"].default == RECOMMENDED


def test_further_methods_stand_beside_the_recommended_ones(cohort):
    methods = ["svm", "recommended", "length-only"]
    result = brio.run(alike(cohort), methods, seeds=1, device="cpu")
    assert list(result.summary.methods) == ["svm", *RECOMMENDED_METHODS], "what is named is not left out"


@pytest.mark.parametrize(
    ("methods", "seeds", "number"),
    [("recommended", None, 3), (["recommended"], 1, 1), (["brio"], None, 1), ("ridge", None, 1), (["brio"], 5, 5)],
)
def test_the_number_of_seeds_depends_on_the_methods_unless_it_is_given(methods, seeds, number):
    assert choose_seeds(methods, seeds) == number


@pytest.mark.parametrize(
    ("seconds", "left", "expected"), [(5.0, 1.0, ["about 95 s"]), (5.0, 25.0, ["about 42 min"]), (3.0, 1.0, [])]
)
def test_the_time_that_is_left_is_said_once_and_only_where_it_is_long(monkeypatch, seconds, left, expected):
    """So many seconds were the first twentieth of a stack; the job has as much left as so many of them."""
    clock, said, shown = iter([100.0, 100.0 + seconds]), [], []
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    report = announce_time(lambda message, share: shown.append(share), said.append, left)
    for share in (0.0, 0.01, 0.05, 0.5, 1.0):
        report("epoch", share)
    assert shown == [0.0, 0.01, 0.05, 0.5, 1.0]
    assert len(said) == len(expected)
    assert all(words in line for words, line in zip(expected, said, strict=True))

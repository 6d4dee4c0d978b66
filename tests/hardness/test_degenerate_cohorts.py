"""Cohorts at the edge of what can be computed: finite margins, or a refusal in words."""

import dataclasses
import warnings
from functools import partial

import numpy as np
import pytest
from degenerate_cohorts import BASE, DEGENERATE, make_degenerate, rebuild

import brio
from brio.cohort import audit, format_audit
from brio.cohort.covariates import read_covariates, read_repetition_times
from brio.cohort.simulate import simulate
from brio.connectome import Connectomes
from brio.connectome.harmonisation import fit_combat
from brio.errors import BrioError
from brio.methods import find_method, list_methods

SMALL = {"epochs": 2, "patience": None, "cell_batch": 2, "T_w": 1, "K": 2, "M": 3, "J": 2}
SMALL |= {"sinkhorn_iterations": 8, "assignment_iterations": 10, "block_signals": 4, "block_products": 4}
SMALL |= {"bold_frames": 40, "bold_windows": 2}

HARDEST = ("all scans identical", "values of 1e30", "a spike")
"""Cases that a fast test looks at; the others are long ones."""


def run_job(cohort, name, tmp_path, **settings):
    """Evaluate a small form of a method at one test site, with every scan."""
    own = {f.name for f in dataclasses.fields(find_method(name).method_class.Settings)} - set(find_method(name).fixed)
    values = {key: value for key, value in SMALL.items() if key in own} | settings
    return brio.run(cohort, [name], settings=values, folds=["site01"], exclude=False, device="cpu", out=tmp_path / name)


def require_answer(cohort, name, tmp_path, **settings):
    """The job ends with finite margins, or is refused."""
    try:
        result = run_job(cohort, name, tmp_path, **settings)
    except BrioError:
        return
    assert np.isfinite(result.predictions["logit"].astype(float)).all()


@pytest.mark.parametrize(
    ("case", "name"), [("all scans identical", "fc-tangent-ridge"), ("all ROIs identical", "brio-plus")]
)
def test_closed_form_methods_answer_degenerate_cohorts(case, name, tmp_path):
    result = run_job(make_degenerate(case), name, tmp_path)
    assert np.isfinite(result.predictions["logit"].astype(float)).all()


@pytest.mark.soak
@pytest.mark.parametrize("name", [entry.name for entry in list_methods()])
@pytest.mark.parametrize("case", DEGENERATE)
def test_every_method_answers_every_degenerate_cohort(case, name, tmp_path):
    require_answer(make_degenerate(case), name, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["combat", "residualise"])
@pytest.mark.parametrize("case", DEGENERATE)
def test_harmonised_degenerate_cohorts_are_answered(case, kind, tmp_path):
    covariates = {"harmonise.covariates": "age"} if kind == "residualise" else {}
    require_answer(make_degenerate(case), "ridge", tmp_path, **{"harmonise.kind": kind}, **covariates)


@pytest.mark.parametrize(
    "case", [case if case in HARDEST else pytest.param(case, marks=pytest.mark.soak) for case in DEGENERATE]
)
def test_every_degenerate_cohort_is_audited_without_a_warning_of_numpy(case):
    cohort = make_degenerate(case)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert format_audit(audit(cohort))


def test_a_copy_is_found_whatever_its_scale():
    scan = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)
    others = [np.random.default_rng(i).normal(size=(60, 6)) for i in range(1, 4)]
    for scale in (1e-30, 1.0, 1e30):
        scans = [scan, *others, scan * np.float32(scale)]
        cohort = brio.Cohort.from_scans(scans, site=list("AABBB"), label=[0, 1, 0, 1, 0])
        assert set(audit(cohort).exclusions) == {"s00001", "s00005"}


def test_one_roi_is_refused_where_connectomes_are_made():
    with pytest.raises(BrioError, match="has 1 ROI; a connectome needs at least 2"):
        Connectomes(make_degenerate("one ROI"))


def test_combat_of_one_feature_shifts_sites_to_one_mean():
    rng = np.random.default_rng(0)
    site = np.repeat(["A", "B", "C"], 20)
    X = rng.normal(size=(60, 1)) + np.repeat([0.0, 3.0, -2.0], 20)[:, None]
    harmonised = fit_combat(X, site).apply(X, site)
    means = [harmonised[site == name].mean() for name in "ABC"]
    assert np.ptp(means) < 1e-6
    assert np.isfinite(harmonised).all()


def test_combat_leaves_constant_features_as_they_are():
    X, site = np.full((12, 3), 0.7), np.repeat(["A", "B"], 6)
    np.testing.assert_allclose(fit_combat(X, site).apply(X, site), X)


def test_masked_values_are_missing_values():
    scans = [np.random.default_rng(i).normal(size=(30, 4)) for i in range(4)]
    masked = [np.ma.masked_greater(scan, 2.5) for scan in scans]
    masked[0][5, 1] = np.ma.masked
    cohort = brio.Cohort.from_scans(masked, site=list("AABB"), label=[0, 1, 0, 1])
    assert np.isnan(cohort.scan(0)[5, 1])
    for i, scan in enumerate(masked):
        np.testing.assert_array_equal(np.isnan(cohort.scan(i)), np.ma.getmaskarray(scan))


@pytest.mark.parametrize(
    ("scan", "message"),
    [
        (np.ones((5, 3)) * 1j, "participant s00001: a scan holds real numbers, this one complex128"),
        (np.full((5, 3), "1"), "participant s00001: a scan holds real numbers, this one <U1"),
        (np.full((5, 3), 1e200), "participant s00001: frame 1, column 1: 1e[+]200 is too large for a signal"),
    ],
)
def test_scans_in_memory_are_real_numbers_that_fit(scan, message):
    with pytest.raises(BrioError, match=message):
        brio.Cohort.from_scans([scan, np.ones((5, 3))], site=list("AA"), label=[0, 1])


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("mean_fd", np.inf, "sim0004"),
        ("mean_fd", 1e9, "sim0004"),
        ("mean_fd", "low", "motion of participant sim0004 is 'low'; write a number in the column 'mean_fd'"),
        ("tr", 2000.0, "of participant sim0004 is .*; a positive number of seconds"),
        ("tr", 1e-5, "of participant sim0004 is .*; a positive number of seconds"),
    ],
)
def test_a_covariate_out_of_range_names_the_participant(column, value, message):
    cohort = simulate(BASE)
    values = [0.2 if column == "mean_fd" else 2.0] * len(cohort)
    values[3] = value
    scans = [cohort.scan(i) for i in range(len(cohort))]
    read = partial(read_covariates, names=["motion"]) if column == "mean_fd" else read_repetition_times
    with pytest.raises(BrioError, match=message):
        read(rebuild(cohort, scans, **{column: values}), requester="the method")

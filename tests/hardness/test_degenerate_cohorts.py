"""Cohorts at the edge of what can be computed: finite margins, or a refusal in words."""

import dataclasses
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import brio
from brio.cohort import Cohort, audit, format_audit
from brio.cohort.covariates import read_covariates, read_repetition_times
from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.connectome.harmonisation import fit_combat
from brio.errors import BrioError
from brio.methods import list_methods
from commands import refuse
from made_cohorts import rebuild, take_settings

BASE = Simulation(n_sites=5, per_class=4, n_rois=8, frames=50, stable=1.0, dynamics=1.0, seed=3)

Change = Callable[[list[np.ndarray]], list[np.ndarray]]


def _set_column(scan: np.ndarray, column: int, value: object) -> np.ndarray:
    changed = scan.copy()
    changed[:, column] = value
    return changed


DEGENERATE: dict[str, Change] = {
    "two identical scans": lambda scans: [*scans[:-1], scans[0]],  # at different sites
    "all scans identical": lambda scans: scans[:1] * len(scans),
    "two identical ROIs": lambda scans: [_set_column(scan, 1, scan[:, 0]) for scan in scans],
    "two opposite ROIs": lambda scans: [_set_column(scan, 1, -scan[:, 0]) for scan in scans],
    "all ROIs identical": lambda scans: [np.repeat(scan[:, :1], scan.shape[1], axis=1) for scan in scans],
    "a constant ROI in one scan": lambda scans: [_set_column(scans[0], 0, 7.0), *scans[1:]],
    "a constant ROI in all scans": lambda scans: [_set_column(scan, 0, 7.0) for scan in scans],
    "all but one ROI constant in one scan": lambda scans: [np.where(np.arange(8) == 3, scans[0], 1.0), *scans[1:]],
    "one ROI": lambda scans: [scan[:, :1] for scan in scans],
    "two ROIs": lambda scans: [scan[:, :2] for scan in scans],
    "three ROIs": lambda scans: [scan[:, :3] for scan in scans],
    "values of 1e30": lambda scans: [scan * np.float32(1e30) for scan in scans],
    "values of 1e-30": lambda scans: [scan * np.float32(1e-30) for scan in scans],
    "values of 1e-44": lambda scans: [scan * np.float32(1e-44) for scan in scans],
    "one value of 3e38": lambda scans: [np.where(np.arange(len(scans[0]))[:, None] == 5, 3e38, scans[0]), *scans[1:]],
    "a large offset": lambda scans: [scan + np.float32(1e5) for scan in scans],
    "five frames": lambda scans: [scan[:5] for scan in scans],
    "four frames": lambda scans: [scan[:4] for scan in scans],
    "one scan of five frames": lambda scans: [scans[0][:5], *scans[1:]],
    "two values": lambda scans: [np.sign(scan) for scan in scans],
    "a spike": lambda scans: [np.where(np.arange(len(scan))[:, None] == 9, scan, 0.0) for scan in scans],
}
"""What is done to the scans of a small simulated cohort."""


def make_degenerate(name: str) -> Cohort:
    """The small simulated cohort with one of the changes in ``DEGENERATE``."""
    cohort = simulate(BASE)
    scans = [scan.astype(np.float32) for scan in DEGENERATE[name]([cohort.scan(i) for i in range(len(cohort))])]
    atlas = dataclasses.replace(cohort.atlas, rois=cohort.atlas.rois.iloc[: scans[0].shape[1]])
    return rebuild(cohort, scans, atlas=atlas)


SMALL = {"epochs": 2, "patience": None, "cell_batch": 2, "T_w": 1, "K": 2, "M": 3, "J": 2}
SMALL |= {"sinkhorn_iterations": 8, "assignment_iterations": 10, "block_signals": 4, "block_products": 4}
SMALL |= {"bold_frames": 40, "bold_windows": 2}

HARDEST = ("all scans identical", "values of 1e30", "a spike")
"""Cases that a fast test looks at; the others are long ones."""


def run_job(cohort, name, tmp_path, **settings):
    """Evaluate a small form of a method at one test site, with every scan."""
    values = take_settings(name, SMALL) | settings
    return brio.run(cohort, [name], settings=values, folds=["site01"], exclude=False, device="cpu", out=tmp_path / name)


def require_answer(cohort, name, tmp_path, **settings):
    """The job ends with finite margins, or is refused."""
    try:
        result = run_job(cohort, name, tmp_path, **settings)
    except BrioError:
        return
    assert np.isfinite(result.predictions["margin"].astype(float)).all()


@pytest.mark.parametrize(
    ("case", "name"), [("all scans identical", "fc-tangent-ridge"), ("all ROIs identical", "brio-plus")]
)
def test_closed_form_methods_answer_degenerate_cohorts(case, name, tmp_path):
    result = run_job(make_degenerate(case), name, tmp_path)
    assert np.isfinite(result.predictions["margin"].astype(float)).all()


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
    refuse("has 1 ROI; use an atlas with at least 2", Connectomes, make_degenerate("one ROI"))


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
        (
            np.ones((5, 3)) * 1j,
            "participant s00001: a scan must contain real numbers, but this one contains complex numbers",
        ),
        (np.full((5, 3), "1"), "participant s00001: a scan must contain real numbers, but this one contains text"),
        (np.full((5, 3), 1e200), "participant s00001: frame 1, column 1: 1e[+]200 is too large for a signal"),
    ],
)
def test_scans_in_memory_are_real_numbers_that_fit(scan, message):
    refuse(message, brio.Cohort.from_scans, [scan, np.ones((5, 3))], site=list("AA"), label=[0, 1])


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("mean_fd", np.inf, "sim0004"),
        ("mean_fd", 1e9, "sim0004"),
        ("mean_fd", "low", "mean_fd of participant sim0004 is low, which is not a number; correct the cell"),
        ("tr", 2000.0, "of scan sim0004 is .*; a number of seconds"),
        ("tr", -2.0, "of scan sim0004 is -2.0; a number of seconds"),
        ("tr", 1e-5, "of scan sim0004 is .*; a number of seconds"),
    ],
)
def test_a_covariate_out_of_range_names_the_participant(column, value, message):
    cohort = simulate(BASE)
    values = [0.2 if column == "mean_fd" else 2.0] * len(cohort)
    values[3] = value
    read = partial(read_covariates, names=["motion"]) if column == "mean_fd" else read_repetition_times
    table = cohort.participants.assign(**{column: values})
    refuse(message, lambda: read(rebuild(cohort, table=table), requester="the method"))

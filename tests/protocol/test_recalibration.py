"""Recalibration of one site against scikit-learn, means over sites and net benefit against loops and planted truth."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss

from brio.protocol.calibration import average_over_sites, compute_net_benefit, fit_recalibration, split_brier


def draw(rng, n, slope=1.0, shift=0.0):
    """Logits as predicted, and labels whose true logits are slope times them plus a shift."""
    logit = rng.normal(scale=1.5, size=n)
    return (rng.uniform(size=n) < expit(slope * logit + shift)).astype(int), logit


def test_calibrated_logits_have_slope_one_and_intercept_zero():
    found = fit_recalibration(*draw(np.random.default_rng(0), 40_000))
    assert found.slope == pytest.approx(1.0, abs=4 * found.slope_se)
    assert found.intercept == pytest.approx(0.0, abs=4 * found.intercept_se)
    assert found.in_the_large == pytest.approx(0.0, abs=4 * found.in_the_large_se)
    assert found.slope_se < 0.02


@pytest.mark.parametrize(("slope", "shift"), [(0.5, 0.0), (2.0, -0.7), (1.0, 0.8), (-0.4, 0.2)])
def test_planted_miscalibration_is_recovered(slope, shift):
    found = fit_recalibration(*draw(np.random.default_rng(1), 40_000, slope, shift))
    assert found.slope == pytest.approx(slope, abs=0.06)
    assert found.intercept == pytest.approx(shift, abs=0.06)
    assert np.sign(found.in_the_large) == np.sign(shift) or shift == 0


@pytest.mark.parametrize("n", [26, 60, 175])
def test_estimates_are_those_of_scikit_learn(n):
    label, logit = draw(np.random.default_rng(n), n, 0.8, 0.3)
    found = fit_recalibration(label, logit)
    theirs = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(logit[:, None], label)
    assert found.slope == pytest.approx(theirs.coef_[0, 0], abs=1e-5)
    assert found.intercept == pytest.approx(theirs.intercept_[0], abs=1e-5)
    assert expit(logit + found.in_the_large).mean() == pytest.approx(label.mean(), abs=1e-9)


def test_standard_errors_are_the_spread_over_samples():
    rng = np.random.default_rng(2)
    fits = np.array([fit_recalibration(*draw(rng, 300)) for _ in range(400)])
    for value, se in ((0, 1), (2, 3), (4, 5)):
        assert fits[:, se].mean() == pytest.approx(fits[:, value].std(), rel=0.12)


def test_sites_without_an_estimate_have_none():
    one_class = fit_recalibration(np.ones(5, int), np.arange(5.0))
    assert np.isnan(one_class).all()
    separated = fit_recalibration(np.array([0, 0, 1, 1]), np.array([-2.0, -1.0, 1.0, 2.0]))
    assert np.isnan(separated.slope)
    assert np.isfinite(separated.in_the_large)
    assert np.isnan(fit_recalibration(np.array([0, 1, 0, 1]), np.ones(4)).slope)
    diverged = fit_recalibration(np.array([0, 1, 0, 1]), np.array([0.5, 1.0, np.nan, 0.2]))
    assert np.isnan(diverged).all()


def test_mean_over_sites_of_equal_precision_is_the_plain_mean():
    value = np.array([0.4, 0.9, 1.5, 1.0, 0.7])
    mean = average_over_sites(value, np.full(5, 0.1))
    assert mean.mean == pytest.approx(value.mean())
    assert mean.sd**2 == pytest.approx(value.var(ddof=1) - 0.01)
    half = 2.776445 * value.std(ddof=1) / 5**0.5  # Student's t with four degrees of freedom
    assert (mean.low, mean.high) == pytest.approx((value.mean() - half, value.mean() + half), abs=1e-6)
    assert mean.new_low < mean.low < mean.high < mean.new_high


@pytest.mark.soak
def test_mean_over_sites_covers_and_finds_the_spread():
    rng = np.random.default_rng(3)
    covered, new, spread = [], [], []
    for _ in range(1_500):
        se = rng.uniform(0.1, 0.5, 12)
        value = rng.normal(0.9, 0.3, 12) + se * rng.normal(size=12)
        mean = average_over_sites(value, se)
        covered.append(mean.low <= 0.9 <= mean.high)
        new.append(mean.new_low <= rng.normal(0.9, 0.3) <= mean.new_high)
        spread.append(mean.sd**2)
    assert np.mean(covered) == pytest.approx(0.95, abs=0.02)
    assert np.mean(new) == pytest.approx(0.95, abs=0.02)
    assert np.mean(spread) == pytest.approx(0.09, rel=0.15)


def test_mean_over_sites_leaves_out_sites_without_an_estimate():
    value, se = np.array([0.8, np.nan, 1.2, 1.0]), np.array([0.2, np.nan, 0.2, 0.2])
    assert average_over_sites(value, se).n == 3
    assert average_over_sites(value, se).mean == pytest.approx(1.0)
    assert average_over_sites(value[:1], se[:1]).mean == pytest.approx(0.8)
    assert np.isnan(average_over_sites(value[:1], se[:1]).low)
    assert np.isnan(average_over_sites(value[1:2], se[1:2]).mean)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.floats(0, 1)), min_size=3, max_size=40))
def test_parts_of_the_brier_score_add_up(rows):
    label, probability = np.array([r[0] for r in rows]), np.array([r[1] for r in rows])
    parts = split_brier(label, probability)
    assert parts.brier == pytest.approx(brier_score_loss(label, probability, pos_label=1))
    assert parts.brier == pytest.approx(parts.miscalibration - parts.discrimination + parts.uncertainty)
    assert parts.miscalibration > -1e-12
    assert parts.discrimination > -1e-12


def test_miscalibration_is_small_where_calibrated_and_grows_with_the_error():
    label, logit = draw(np.random.default_rng(4), 5_000)
    calibrated, extreme = (split_brier(label, expit(a * logit)) for a in (1.0, 3.0))
    assert calibrated.miscalibration < 0.003
    assert extreme.miscalibration > 10 * calibrated.miscalibration
    assert extreme.discrimination == pytest.approx(calibrated.discrimination), "the order is the same"


def test_net_benefit_counts_true_and_false_positives():
    rng = np.random.default_rng(5)
    label, probability = rng.integers(0, 2, 60), rng.uniform(size=60)
    thresholds = np.array([0.1, 0.35, 0.5, 0.8])
    expected = []
    for t in thresholds:
        true = sum(1 for y, p in zip(label, probability, strict=True) if p >= t and y == 1)
        false = sum(1 for y, p in zip(label, probability, strict=True) if p >= t and y == 0)
        expected.append(true / 60 - false / 60 * t / (1 - t))
    assert compute_net_benefit(label, probability, thresholds) == pytest.approx(expected)
    assert compute_net_benefit(label, np.zeros(60), thresholds) == pytest.approx([0.0] * 4)
    share = label.mean()
    of_all = share - (1 - share) * thresholds / (1 - thresholds)
    assert compute_net_benefit(label, np.ones(60), thresholds) == pytest.approx(of_all)

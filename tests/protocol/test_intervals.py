"""Intervals of means and detectable differences, against scipy and by simulation."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import betaincinv, ndtr, ndtri, stdtr, stdtrit

from brio.protocol import (
    compare_over_sites,
    detectable_difference,
    fold_correction,
    new_site_interval,
    standard_error,
    t_interval,
)


@pytest.mark.parametrize("n", [2, 3, 20])
def test_t_interval_is_that_of_scipy_with_a_wider_error(n):
    values = np.random.default_rng(n).normal(0.7, 0.1, n)
    expected = tuple(stats.ttest_1samp(values, 0).confidence_interval(0.9))
    assert t_interval(values, 0.0, level=0.9) == pytest.approx(expected)
    assert t_interval([*values, math.nan], 0.0, level=0.9) == pytest.approx(expected)
    assert standard_error(values, 0.0) == pytest.approx(stats.sem(values))
    wider = math.sqrt(1 + n / max(n - 2, 1))  # left-out sites, whose models share scans
    assert standard_error(values) == pytest.approx(wider * stats.sem(values))
    corrected = np.array(t_interval(values, level=0.9)) - values.mean()
    assert corrected == pytest.approx(wider * (np.array(expected) - values.mean()))


def test_scores_that_do_not_vary_have_no_interval():
    """An AUC of 1 at every site is no certainty; rounding does not make one either."""
    for values in ([1.0] * 4, [0.1 + 0.2, 0.3, 0.3], [100.0] * 3):
        assert math.isnan(standard_error(values))
        assert all(map(math.isnan, t_interval(values)))
        assert all(map(math.isnan, new_site_interval([*values] * 3)))


def test_the_interval_of_a_new_site_adds_its_own_spread():
    values = np.random.default_rng(0).normal(0.7, 0.1, 10)
    half = stats.t(8).ppf(0.975) * values.std(ddof=1) * math.sqrt(1 + 1 / 10 + 2 / 8)
    assert new_site_interval(values) == pytest.approx((values.mean() - half, values.mean() + half))
    assert new_site_interval(values, limits=(0, 0.8))[1] == 0.8
    assert all(map(math.isnan, new_site_interval([*values[:4], math.nan]))), "too few sites for one"


def test_an_interval_needs_two_values_and_ends_at_its_limits():
    assert all(map(math.isnan, t_interval([0.7, math.nan])))
    assert math.isnan(standard_error([0.7]))
    assert t_interval([0.2, 0.9], limits=(0, 1)) == (0.0, 1.0)


def test_the_correction_of_folds_adds_to_the_variance_of_the_mean():
    values = np.random.default_rng(0).normal(0.7, 0.1, 30)
    error = standard_error(values, fold_correction(103, 927, 10))  # three seeds of ten folds
    assert error == pytest.approx(values.std(ddof=1) * math.sqrt(1 / 10 + 1 / 7))
    half = np.diff(t_interval(values, fold_correction(103, 927, 10))).item() / 2
    assert half == pytest.approx(stats.t(9).ppf(0.975) * error)


def test_intervals_of_three_sites_cover_as_often_as_they_say():
    draws = np.random.default_rng(0).normal(0.7, 0.1, (4000, 3))
    ends = np.array([t_interval(values, 0.0) for values in draws])
    covered = ((ends[:, 0] <= 0.7) & (ends[:, 1] >= 0.7)).mean()
    assert 0.94 < covered < 0.96  # binomial SD 0.0034


@pytest.mark.parametrize("alpha", [0.05, 0.05 / 8])
def test_the_detectable_difference_is_found_with_four_fifths_power(alpha):
    n, sd = 20, 0.08
    truth = detectable_difference(sd / math.sqrt(n), n - 1, alpha=alpha)
    # the standard error is random in an experiment; planned with the true one, the t test has 80 % power
    draws = np.random.default_rng(1).normal(truth, sd, (20_000, n))
    found = stats.ttest_1samp(draws, 0, axis=1)
    assert ((found.pvalue <= alpha) & (found.statistic > 0)).mean() == pytest.approx(0.8, abs=0.01)


def test_the_detectable_difference_of_many_values_is_that_of_the_normal():
    expected = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)
    assert detectable_difference(2.0) == pytest.approx(2 * expected)
    assert detectable_difference(1.0, 10_000) == pytest.approx(expected, rel=1e-3)
    assert math.isnan(detectable_difference(math.nan, 3))


def test_comparisons_state_what_they_could_have_shown():
    rng = np.random.default_rng(2)
    scores = pd.DataFrame(rng.normal(0.7, 0.05, (12, 4)), columns=list("abcd"))
    table = compare_over_sites(scores, "a")
    for row in table.itertuples():
        error = stats.sem(scores[row.method] - scores["a"]) * math.sqrt(1 + 12 / 10)
        assert row.detectable == pytest.approx(detectable_difference(error, 11))
        assert row.detectable_in_family == pytest.approx(detectable_difference(error, 11, alpha=0.05 / 3))
    assert (table["detectable_in_family"] > table["detectable"]).all()


def test_quantiles_without_scipy_stats_are_those_of_scipy_stats():
    q, df = np.meshgrid([0.5, 0.8, 0.9, 0.975, 0.995, 1 - 1e-6], [1, 2, 7.5, 19, 1029])
    assert (stdtrit(df, q) == stats.t.ppf(q, df)).all()
    assert (ndtri(q) == stats.norm.ppf(q)).all()
    x = np.linspace(0, 30, 200)
    assert (ndtr(-x) == stats.norm.sf(x)).all()
    assert (stdtr(19, -x) == stats.t.sf(x, 19)).all()
    k = np.arange(1, 40)
    assert (betaincinv(k, 41 - k, 0.025) == stats.beta.ppf(0.025, k, 41 - k)).all()

"""Intervals and tests over sites and folds, against scipy, by simulation and by hand."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from brio.protocol.statistics import (
    adjust_holm,
    compare_by_corrected_t,
    compare_family,
    compare_groups,
    detectable_difference,
    explain_few_sites,
    fold_correction,
    new_site_interval,
    standard_error,
    t_interval,
)
from cohort.file_layouts import refuse


@pytest.mark.parametrize("k", [2, 10, 30])
@pytest.mark.parametrize("is_kfold", [False, True])
def test_paired_differences_are_those_of_the_plain_formula(k, is_kfold):
    rng = np.random.default_rng(k)
    first, second = rng.normal(0.7, 0.05, k), rng.normal(0.66, 0.05, k)
    first[0] = second[0]
    correction = fold_correction(100, 700, k) if is_kfold else None
    sizes = (100, 500) if is_kfold else (1, max(k - 2, 1))  # without the scans of two folds, or two sites
    found = compare_by_corrected_t([*first, np.nan, 0.8], [*second, 0.9, np.nan], correction)
    d = first - second
    t, p = plain_corrected_t(d.tolist(), *sizes)
    assert found.p == pytest.approx(p, rel=1e-6)
    assert (found.n, found.n_missing, found.better, found.worse) == (k, 2, (d > 0).sum(), (d < 0).sum())
    half = stats.t(df=k - 1).ppf(0.975) * d.mean() / t
    assert (found.mean, found.low, found.high) == pytest.approx((d.mean(), d.mean() - half, d.mean() + half))


def test_equal_scores_are_equal_whatever_their_last_bits():
    found = compare_by_corrected_t([0.1 + 0.2, 0.7, 0.9], [0.3, 0.6, 1.0])  # 0.1 + 0.2 > 0.3; 0.7 - 0.6 < 0.1
    assert (found.better, found.worse) == (1, 1)
    assert found.p == 1.0


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_few_sites_are_told_how_far_their_interval_reaches(n):
    scores = np.linspace(0.4, 0.8, n)
    low, high = t_interval(scores)
    reach = f"interval is {(high - low) / 2 / scores.std(ddof=1):.1f} SDs across sites (t, {n - 1} degrees"
    assert (reach in explain_few_sites(n)) == (3 <= n <= 5)
    assert bool(explain_few_sites(n)) == (3 <= n <= 5)


def test_scores_without_spread_or_in_common_claim_nothing():
    for first in ([0.5, 0.6], [0.6, 0.7]):
        same = compare_by_corrected_t(first, [0.5, 0.6])
        assert same.mean == pytest.approx(first[0] - 0.5)
        assert all(map(math.isnan, (same.p, same.p_level, same.low, same.high, same.error)))
    none = compare_by_corrected_t([np.nan, 0.6], [0.5, np.nan])
    assert (none.n, none.n_missing) == (0, 2)
    assert math.isnan(none.p)
    assert math.isnan(none.mean)


def test_sites_that_share_their_models_do_not_reject_too_often():
    """Scores with the correlation that Nadeau and Bengio allow for; the uncorrected test rejects one of six."""
    rng = np.random.default_rng(3)
    n, draws = 20, 1500
    shared = rng.normal(0, math.sqrt(1 / n), (draws, 1))  # correlation 1/n between sites
    scores = math.sqrt(1 - 1 / n) * rng.normal(size=(draws, n)) + shared
    rejected = [compare_by_corrected_t(d, np.zeros(n)).p <= 0.05 for d in scores]
    uncorrected = [compare_by_corrected_t(d, np.zeros(n), 0.0).p <= 0.05 for d in scores]
    assert 0.03 < np.mean(rejected) < 0.07
    assert np.mean(uncorrected) > 0.12


def test_methods_are_level_where_both_one_sided_tests_say_so():
    d = np.array([0.002, -0.001, 0.003, -0.002, 0.001, 0.0])
    found = compare_by_corrected_t(0.7 + d, np.full(6, 0.7), margin=0.02)
    error = d.std(ddof=1) * math.sqrt(1 / 6 + 1 / 4)
    sides = [stats.t(5).sf((d.mean() + 0.02) / error), stats.t(5).cdf((d.mean() - 0.02) / error)]
    assert found.p_level == pytest.approx(max(sides))
    assert found.p_level < 0.001
    assert compare_by_corrected_t(0.72 + d, np.full(6, 0.7), margin=0.02).p_level == pytest.approx(0.5, abs=0.3)
    # in the units of the scores, and 2 points unless told otherwise
    assert compare_by_corrected_t(70 + 100 * d, np.full(6, 70.0), margin=2.0).p_level == pytest.approx(found.p_level)
    assert compare_by_corrected_t(0.7 + d, np.full(6, 0.7)).p_level == pytest.approx(found.p_level)


def test_two_groups_of_sites_are_compared_by_the_t_test_with_one_variance():
    rng = np.random.default_rng(1)
    first, second = rng.normal(3, 2, 10), rng.normal(0, 2, 8)
    found = compare_groups([*first, np.nan], second)
    usual = stats.ttest_ind(first, second)
    assert (found.n, found.n_missing) == (18, 1)
    assert found.p == pytest.approx(usual.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(usual.confidence_interval(0.95)))
    assert math.isnan(compare_groups(first, [1.0]).p)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
@settings(max_examples=30, deadline=None)
def test_holm_equals_closed_testing(p):
    """A hypothesis is rejected if Bonferroni rejects every intersection it is part of."""
    members = range(len(p))
    subsets = [s for size in range(1, len(p) + 1) for s in itertools.combinations(members, size)]
    expected = [max(min(1.0, len(s) * min(p[j] for j in s)) for s in subsets if i in s) for i in members]
    assert adjust_holm(p) == pytest.approx(np.array(expected), abs=1e-12)


def test_holm_passes_over_what_was_not_tested():
    np.testing.assert_allclose(adjust_holm([np.nan, 0.02, 0.01, np.nan]), [np.nan, 0.02, 0.02, np.nan])
    assert len(adjust_holm([])) == 0


def table(**columns: list[float]) -> pd.DataFrame:
    return pd.DataFrame(columns, index=[f"site{k}" for k in range(len(next(iter(columns.values()))))])


def random_scores(n_sites: int, names: str, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return table(**{name: (0.6 + 0.02 * k + 0.1 * rng.normal(size=n_sites)).tolist() for k, name in enumerate(names)})


@pytest.mark.parametrize(("correction", "sizes"), [((), (1, 7)), ((fold_correction(10, 70, 9),), (10, 50))])
def test_compare_makes_all_pairs_or_all_against_one(correction, sizes):
    scores = random_scores(9, "abcd")
    pairs = compare_family(scores)
    assert list(zip(pairs["method"], pairs["other"], strict=True)) == list(itertools.combinations("abcd", 2))
    against = compare_family(scores, "b", *correction)
    assert list(against["method"]) == ["a", "c", "d"]
    assert set(against["other"]) == {"b"}
    for row in against.itertuples():
        d = scores[row.method] - scores["b"]
        assert row.mean_difference == pytest.approx(d.mean())
        assert row.p == pytest.approx(plain_corrected_t(list(d), *sizes)[1], rel=1e-6)
        assert (row.n, row.left_out, row.better, row.warning) == (9, 0, (d > 0).sum(), "")
    assert against["p_holm"].to_numpy() == pytest.approx(adjust_holm(against["p"].to_numpy()))


def test_a_comparison_without_common_sites_is_said_and_not_counted():
    scores = random_scores(7, "abc")
    scores["d"] = np.nan
    found = compare_family(scores, "a").set_index("method")
    assert "too few for a test" in str(found.loc["d", "warning"])
    assert math.isnan(found.loc["d", "p_holm"])
    without = compare_family(scores[["a", "b", "c"]], "a").set_index("method")
    assert found.loc["b", "p_holm"] == without.loc["b", "p_holm"]


def test_compare_says_what_is_missing():
    scores = random_scores(4, "ab").rename(columns={"a": "ridge", "b": "brio"})
    refuse(r"'rigde'.*did you mean 'ridge'", compare_family, scores, "rigde")
    refuse("needs two methods", compare_family, scores[["brio"]])


def plain_corrected_t(d: list[float], n_test: float, n_source: float) -> tuple[float, float]:
    """T and p as Nadeau and Bengio write them."""
    k = len(d)
    mean = sum(d) / k
    variance = sum((x - mean) ** 2 for x in d) / (k - 1)
    t = mean / math.sqrt((1 / k + n_test / n_source) * variance)
    return t, 2 * (1 - stats.t(df=k - 1).cdf(abs(t)))


@pytest.mark.parametrize("n", [2, 3, 20])
def test_t_interval_is_that_of_scipy_with_a_wider_error(n):
    values = np.random.default_rng(n).normal(0.7, 0.1, n)
    expected = tuple(stats.ttest_1samp(values, 0).confidence_interval(0.95))
    assert t_interval([*values, math.nan], 0.0) == t_interval(values, 0.0) == pytest.approx(expected)
    assert standard_error(values, 0.0) == pytest.approx(stats.sem(values))
    wider = math.sqrt(1 + n / max(n - 2, 1))  # left-out sites, whose models share scans
    assert standard_error(values) == pytest.approx(wider * stats.sem(values))
    corrected = np.array(t_interval(values)) - values.mean()
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


@pytest.mark.parametrize("alpha", [0.05, 0.05 / 8])
def test_the_detectable_difference_is_found_with_four_fifths_power(alpha):
    n, sd = 20, 0.08
    truth = detectable_difference(sd / math.sqrt(n), n - 1, alpha=alpha)
    # the standard error is random in an experiment; planned with the true one, the t test has 80% power
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
    table = compare_family(scores, "a")
    for row in table.itertuples():
        error = stats.sem(scores[row.method] - scores["a"]) * math.sqrt(1 + 12 / 10)
        assert row.detectable == pytest.approx(detectable_difference(error, 11))
        assert row.detectable_in_family == pytest.approx(detectable_difference(error, 11, alpha=0.05 / 3))
    assert (table["detectable_in_family"] > table["detectable"]).all()

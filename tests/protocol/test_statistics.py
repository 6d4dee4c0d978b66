"""Paired comparisons against scipy, plain formulas and enumeration of every sign."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from brio.errors import BrioError
from brio.protocol import (
    adjust_holm,
    compare_by_corrected_t,
    compare_by_signed_rank,
    compare_over_folds,
    compare_over_sites,
    signed_rank_p,
    smallest_reachable_p,
)

few_sizes = st.lists(st.integers(-4, 4), min_size=1, max_size=9)  # so that zeros and ties are common


def every_sign(d: np.ndarray) -> float:
    """Two-sided p of the signed-rank test, by all 2^n ways to sign the ranks."""
    d = d[d != 0]
    ranks = stats.rankdata(abs(d))
    found = ranks[d > 0].sum()
    sums = np.array([ranks[list(signs)].sum() for signs in itertools.product([False, True], repeat=len(d))])
    return min(1.0, 2 * min((sums <= found).mean(), (sums >= found).mean()))


@given(few_sizes)
@settings(max_examples=60, deadline=None)
def test_signed_rank_p_equals_enumeration_with_ties_and_zeros(sizes):
    d = np.array(sizes, dtype=float)
    assert signed_rank_p(d) == pytest.approx(every_sign(d), abs=1e-12)


@pytest.mark.parametrize("n", [1, 5, 12, 20, 33, 50])
def test_signed_rank_p_equals_scipy(n):
    rng = np.random.default_rng(n)
    for shift in (0.0, 0.3, -1.0):
        d = rng.normal(shift, 1.0, n)
        assert signed_rank_p(d) == pytest.approx(stats.wilcoxon(d, method="exact").pvalue, rel=1e-9)


def test_signed_rank_p_of_many_sites_is_near_the_normal_approximation():
    d = np.random.default_rng(0).normal(0.1, 1.0, 300)
    assert signed_rank_p(d) == pytest.approx(stats.wilcoxon(d, method="approx").pvalue, rel=0.02)


def test_smallest_p_is_reached_when_all_sites_agree_and_not_before():
    for n in range(1, 11):
        d = np.arange(1, n + 1) / 10
        assert signed_rank_p(d) == pytest.approx(smallest_reachable_p(n)) == pytest.approx(min(1, 2 / 2**n))
        others = [signed_rank_p(np.where(np.arange(n) == k, -d, d)) for k in range(n)]
        assert min(others) >= smallest_reachable_p(n)
    assert smallest_reachable_p(0) == 1.0
    assert signed_rank_p([]) == signed_rank_p([0.0, 0.0]) == 1.0


def test_paired_difference_counts_and_intervals():
    first = np.array([0.75, 0.60, np.nan, 0.50, 0.90, 0.3])
    second = np.array([0.70, 0.60, 0.80, 0.60, np.nan, 0.1])
    found = compare_by_signed_rank(first, second)
    d = np.array([0.05, 0.0, -0.1, 0.2])
    assert (found.n, found.n_missing, found.better, found.worse) == (4, 2, 2, 1)
    assert found.mean == pytest.approx(d.mean())
    assert (found.low, found.high) == pytest.approx(stats.ttest_1samp(d, 0).confidence_interval(0.95))
    assert found.p == pytest.approx(every_sign(d))
    assert found.smallest_p == 0.25
    narrow = compare_by_signed_rank(first, second, alpha=0.5)
    assert found.low < narrow.low < narrow.high < found.high


def test_equal_scores_are_equal_whatever_their_last_bits():
    found = compare_by_signed_rank([0.1 + 0.2, 0.7, 0.9], [0.3, 0.6, 1.0])  # 0.1 + 0.2 > 0.3; 0.7 - 0.6 < 0.1
    assert (found.better, found.worse) == (1, 1)
    assert found.smallest_p == 0.5
    assert found.p == 1.0


def test_all_zero_and_nothing_in_common():
    same = compare_by_signed_rank([0.5, 0.6], [0.5, 0.6])
    assert (same.p, same.smallest_p, same.mean, same.better) == (1.0, 1.0, 0.0, 0)
    none = compare_by_signed_rank([np.nan, 0.6], [0.5, np.nan])
    assert (none.n, none.n_missing) == (0, 2)
    assert math.isnan(none.p)
    assert math.isnan(none.mean)


def test_losses_are_better_when_lower_but_keep_their_sign():
    found = compare_by_signed_rank([0.1, 0.2, 0.3], [0.2, 0.3, 0.2], lower_is_better=True)
    assert (found.better, found.worse) == (2, 1)
    assert found.mean == pytest.approx(-0.1 / 3)


def test_the_test_keeps_its_level_and_finds_a_difference():
    rng = np.random.default_rng(3)
    null = [signed_rank_p(rng.standard_t(3, 12)) for _ in range(2000)]
    assert 0.035 < np.mean(np.array(null) <= 0.05) < 0.06
    shifted = [signed_rank_p(rng.normal(1.0, 1.0, 12)) for _ in range(300)]
    assert np.mean(np.array(shifted) <= 0.05) > 0.7


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_holm_equals_closed_testing(p):
    """A hypothesis is rejected if Bonferroni rejects every intersection it is part of."""
    members = range(len(p))
    subsets = [s for size in range(1, len(p) + 1) for s in itertools.combinations(members, size)]
    expected = [max(min(1.0, len(s) * min(p[j] for j in s)) for s in subsets if i in s) for i in members]
    assert adjust_holm(p) == pytest.approx(np.array(expected), abs=1e-12)


def test_holm_passes_over_what_was_not_tested():
    assert adjust_holm([np.nan, 0.02, 0.01, np.nan]) == pytest.approx(
        np.array([np.nan, 0.02, 0.02, np.nan]), nan_ok=True
    )
    assert len(adjust_holm([])) == 0


def table(**columns: list[float]) -> pd.DataFrame:
    return pd.DataFrame(columns, index=[f"site{k}" for k in range(len(next(iter(columns.values()))))])


def random_scores(n_sites: int, names: str, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return table(**{name: (0.6 + 0.02 * k + 0.1 * rng.normal(size=n_sites)).tolist() for k, name in enumerate(names)})


def test_compare_makes_all_pairs_or_all_against_one():
    scores = random_scores(9, "abcd")
    pairs = compare_over_sites(scores)
    assert list(zip(pairs["method"], pairs["other"], strict=True)) == list(itertools.combinations("abcd", 2))
    against = compare_over_sites(scores, "b")
    assert list(against["method"]) == ["a", "c", "d"]
    assert set(against["other"]) == {"b"}
    for row in against.itertuples():
        d = scores[row.method] - scores["b"]
        assert row.mean_difference == pytest.approx(d.mean())
        assert row.p == pytest.approx(stats.wilcoxon(d, method="exact").pvalue)
        assert (row.n_sites, row.left_out, row.better) == (9, 0, (d > 0).sum())
    assert against["p_holm"].to_numpy() == pytest.approx(adjust_holm(against["p"].to_numpy()))


def test_compare_is_antisymmetric():
    scores = random_scores(8, "ab", seed=4)
    there, back = compare_over_sites(scores, "b").iloc[0], compare_over_sites(scores, "a").iloc[0]
    assert there["mean_difference"] == pytest.approx(-back["mean_difference"])
    assert there["p"] == pytest.approx(back["p"])
    assert (there["better"], there["worse"]) == (back["worse"], back["better"])


def test_compare_pairs_only_sites_that_both_have():
    scores = random_scores(9, "abc")
    scores.loc["site1", "a"] = scores.loc["site4", "b"] = np.nan
    found = compare_over_sites(scores, "a").set_index("method")
    assert found.loc["b", ["n_sites", "left_out"]].tolist() == [7, 2]
    assert found.loc["c", ["n_sites", "left_out"]].tolist() == [8, 1]
    known = scores.drop(index=["site1", "site4"])
    assert found.loc["b", "mean_difference"] == pytest.approx((known["b"] - known["a"]).mean())


@pytest.mark.parametrize(("n_sites", "methods", "warns"), [(5, 2, True), (6, 2, False), (6, 3, True), (7, 4, False)])
def test_compare_warns_where_no_result_could_reach_the_level(n_sites, methods, warns):
    """2/2^5 > 0.05 > 2/2^6, but two comparisons need 4/2^6 = 0.0625; three at seven sites 6/2^7 = 0.047."""
    scores = table(
        **{name: [0.5 + 0.01 * k * (s + 1) for s in range(n_sites)] for k, name in enumerate("abcd"[:methods])}
    )
    found = compare_over_sites(scores, "a")
    assert (found["better"] == n_sites).all()
    assert ((found["warning"] != "") == warns).all()
    assert ((found["p_holm"] > 0.05) == warns).all()  # all sites agree, and still
    assert (compare_over_sites(scores, "a", alpha=0.25)["warning"] == "").all()


def test_the_warning_tells_the_numbers():
    scores = table(a=[0.5] * 5, b=[0.6] * 5, c=[0.7] * 4 + [0.5])
    warnings = compare_over_sites(scores, "a").set_index("method")["warning"]
    assert "5 sites that differ" in str(warnings["b"])
    assert "0.062" in str(warnings["b"])
    assert "4 sites that differ" in str(warnings["c"])
    assert "0.12 (0.12 after Holm" in str(warnings["c"])  # Holm: 2 * 0.0625 for the first, then 1 * 0.125


def test_a_comparison_without_common_sites_is_said_and_not_counted():
    scores = random_scores(7, "abc")
    scores["d"] = np.nan
    found = compare_over_sites(scores, "a").set_index("method")
    assert "nothing to compare" in str(found.loc["d", "warning"])
    assert math.isnan(found.loc["d", "p_holm"])
    without = compare_over_sites(scores[["a", "b", "c"]], "a").set_index("method")
    assert found.loc["b", "p_holm"] == without.loc["b", "p_holm"]


def test_compare_says_what_is_missing():
    scores = random_scores(4, "ab").rename(columns={"a": "ridge", "b": "brio"})
    with pytest.raises(BrioError, match=r"'rigde'.*did you mean 'ridge'"):
        compare_over_sites(scores, "rigde")
    with pytest.raises(BrioError, match="needs two methods"):
        compare_over_sites(scores[["brio"]])


def plain_corrected_t(d: list[float], n_test: float, n_source: float) -> tuple[float, float]:
    """T and p as Nadeau and Bengio write them."""
    k = len(d)
    mean = sum(d) / k
    variance = sum((x - mean) ** 2 for x in d) / (k - 1)
    t = mean / math.sqrt((1 / k + n_test / n_source) * variance)
    return t, 2 * (1 - stats.t(df=k - 1).cdf(abs(t)))


@pytest.mark.parametrize("k", [2, 10, 30])
def test_corrected_resampled_t_equals_the_plain_formula(k):
    rng = np.random.default_rng(k)
    first, second = rng.normal(0.7, 0.05, k), rng.normal(0.66, 0.05, k)
    found = compare_by_corrected_t(first, second, n_test=100, n_source=700)
    d = (first - second).tolist()
    t, p = plain_corrected_t(d, 100, 700)
    assert found.p == pytest.approx(p, rel=1e-6)
    half = stats.t(df=k - 1).ppf(0.975) * np.mean(d) / t
    assert (found.low, found.high) == pytest.approx((np.mean(d) - half, np.mean(d) + half))
    assert (found.n, found.better, found.smallest_p) == (k, sum(x > 0 for x in d), 0.0)


def test_without_overlap_the_correction_is_the_usual_t_test():
    rng = np.random.default_rng(0)
    first, second = rng.normal(0.7, 0.1, 10), rng.normal(0.6, 0.1, 10)
    usual = stats.ttest_rel(first, second).pvalue
    assert compare_by_corrected_t(first, second, 0, 100).p == pytest.approx(usual)
    assert compare_by_corrected_t(first, second, 10, 70).p > usual


def test_corrected_resampled_t_without_variance_and_with_gaps():
    assert compare_by_corrected_t([0.5, 0.6], [0.5, 0.6], 1, 7).p == 1.0
    assert compare_by_corrected_t([0.6, 0.7], [0.5, 0.6], 1, 7).p == 0.0
    assert math.isnan(compare_by_corrected_t([0.6], [0.5], 1, 7).p)
    gaps = compare_by_corrected_t([0.6, np.nan, 0.8, 0.7], [0.5, 0.5, 0.6, 0.7], 1, 7)
    whole = compare_by_corrected_t([0.6, 0.8, 0.7], [0.5, 0.6, 0.7], 1, 7)
    assert (gaps.n_missing, gaps.p) == (1, whole.p)


def test_compare_folds_tests_every_pair_and_corrects():
    scores = random_scores(20, "abc", seed=1)
    found = compare_over_folds(scores, 10, 70, "c")
    assert list(found["n_folds"]) == [20, 20]
    for row in found.itertuples():
        assert row.p == pytest.approx(plain_corrected_t(list(scores[row.method] - scores["c"]), 10, 70)[1], rel=1e-6)
    assert found["p_holm"].to_numpy() == pytest.approx(adjust_holm(found["p"].to_numpy()))
    assert (found["warning"] == "").all()

"""Calibration against scikit-learn, statsmodels and plain loops; repeated scans of a participant."""

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.calibration import calibration_curve
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, roc_auc_score, roc_curve

from brio.protocol import t_interval
from brio.protocol.calibration import (
    _trace_roc,
    average_over_sites,
    calibration_error,
    compute_net_benefit,
    count_agreeing_pairs,
    estimate_session_variance,
    fit_recalibration,
    jackknife_participants,
    reliability_curve,
    roc_band,
    split_brier,
)
from cohort.file_layouts import refuse


def simulate_predictions(n: int, seed: int, decimals: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Labels and probabilities that are overconfident; few decimals make many ties and values on edges."""
    rng = np.random.default_rng(seed)
    truth = rng.uniform(size=n)
    label = (rng.uniform(size=n) < 0.5 + 0.5 * (truth - 0.5)).astype(int)
    return label, truth.round(decimals)


@pytest.mark.parametrize("decimals", [1, 12])
@pytest.mark.parametrize("bins", [1, 5, 10])
def test_reliability_equals_scikit_learn(decimals, bins):
    label, probability = simulate_predictions(200, bins, decimals)
    found = reliability_curve(label, probability, bins)
    observed, predicted = calibration_curve(label, probability, n_bins=bins, strategy="quantile")
    full = found[found["count"] > 0]
    assert full["observed"].to_numpy() == pytest.approx(observed)
    assert full["probability"].to_numpy() == pytest.approx(predicted)
    assert found["count"].sum() == 200
    assert found["probability"].dropna().between(full["left"] - 1e-12, full["right"] + 1e-12).all()


def test_empty_bins_are_kept_and_hold_nothing():
    found = reliability_curve(np.array([0, 1]), np.array([0.0, 1.0]), bins=4)
    assert found["count"].tolist() == [1, 0, 0, 1]
    assert found["observed"].isna().sum() == 2
    assert found["right"].tolist() == [0.25, 0.5, 0.75, 1.0]


def test_reliability_interval_draws_sites():
    rng = np.random.default_rng(1)
    site = np.repeat([f"s{k}" for k in range(30)], 20)
    label, probability = simulate_predictions(600, 3)
    found = reliability_curve(label, probability, 4, site=site)
    assert (found["low"] < found["observed"]).all()
    assert (found["observed"] < found["high"]).all()
    share, n = found["observed"], found["count"]
    normal = 2 * 1.96 * np.sqrt(share * (1 - share) / n)  # scans of these sites are independent
    assert ((found["high"] - found["low"]) / normal).between(0.7, 1.3).all()
    # sites that agree within and differ between: the interval must be that of sites, not of scans
    label = np.repeat(rng.integers(0, 2, 30), 20)
    wide = reliability_curve(label, probability, 1, site=site)
    expected = t_interval(label.reshape(30, 20).mean(axis=1), 0.0)
    assert (wide["low"].item(), wide["high"].item()) == pytest.approx(expected, abs=0.04)


def test_reliability_interval_needs_two_sites():
    found = reliability_curve(np.array([0, 1, 0]), np.array([0.1, 0.2, 0.9]), 2, site=np.array(["a", "b", "b"]))
    assert found["low"].isna().tolist() == [False, True]
    alone = reliability_curve(np.array([0, 1]), np.array([0.1, 0.9]), 2, site=np.array(["a", "a"]))
    assert alone[["low", "high"]].isna().all(axis=None)


def test_unknown_bins_are_refused_and_logits_not_taken_for_probabilities():
    label = np.array([0, 1])
    refuse("bins=0", reliability_curve, label, np.array([0.1, 0.9]), 0)
    for wrong in (1.2, -0.1, np.nan):
        refuse("between 0 and 1", reliability_curve, label, np.array([0.5, wrong]))


def test_calibration_error_equals_a_plain_loop():
    label, probability = simulate_predictions(150, 4)
    edges = np.quantile(probability, np.linspace(0, 1, 8))
    bins = pd.cut(probability, edges, include_lowest=True)
    gaps = pd.Series(label - probability).groupby(bins, observed=True).sum()
    assert calibration_error(label, probability, 7) == pytest.approx(gaps.abs().sum() / 150)


def predictions(sites: int, seeds: int, per_site: int = 40, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    parts = []
    for k in range(sites):
        label = np.arange(per_site) % 2
        signal = label * rng.uniform(0.2, 1.5) + rng.normal(size=per_site) + 3 * rng.normal()
        for s in range(seeds):
            margin = signal + 0.3 * rng.normal(size=per_site)
            parts.append(pd.DataFrame({"fold": f"s{k:02d}", "seed": s, "label": label, "margin": margin}))
    return pd.concat(parts, ignore_index=True)


def test_roc_band_of_one_run_is_the_roc_curve():
    rows = predictions(1, 1)
    band = roc_band(rows, points=101)
    false_positive, true_positive, _ = roc_curve(rows["label"], rows["margin"], drop_intermediate=False)
    expected = [true_positive[false_positive <= x + 1e-12].max() for x in band.false_positive_rate]  # upper end
    assert band.true_positive_rate == pytest.approx(np.array(expected))
    assert band.auc == pytest.approx(roc_auc_score(rows["label"], rows["margin"]))
    assert np.isnan(band.low).all()
    assert np.isnan([band.auc_low, band.auc_high]).all()


@pytest.mark.parametrize("levels", [3, 10**6], ids=["ties", "distinct"])
def test_corners_of_a_curve_are_those_of_scikit_learn_bit_for_bit(levels):
    rng = np.random.default_rng(levels)
    for n in range(2, 40):
        label = rng.permutation(np.arange(n) % 2)
        score = rng.integers(0, levels, n) / 7
        for mine, theirs in zip(_trace_roc(label, score), roc_curve(label, score)[:2], strict=True):
            assert np.array_equal(mine, theirs)


def test_a_curve_with_a_missing_margin_is_refused():
    rows = predictions(1, 1)
    rows.loc[3, "margin"] = np.nan
    refuse("a margin is missing or infinite", roc_band, rows)


def test_roc_band_averages_seeds_then_sites():
    rows = predictions(5, 3)
    band = roc_band(rows, points=51)
    alone = {key: roc_band(one, points=51) for key, one in rows.groupby(["fold", "seed"])}
    curves = np.array([[alone[f"s{k:02d}", s].true_positive_rate for s in range(3)] for k in range(5)])
    assert band.true_positive_rate == pytest.approx(curves.mean(axis=1).mean(axis=0))
    areas = [np.mean([alone[f"s{k:02d}", s].auc for s in range(3)]) for k in range(5)]
    assert (band.n_sites, band.auc) == (5, pytest.approx(np.mean(areas)))
    assert (band.auc_low, band.auc_high) == pytest.approx(t_interval(areas))
    x = 17
    expected = t_interval(curves.mean(axis=1)[:, x], limits=(0, 1))
    assert (band.low[x], band.high[x]) == pytest.approx(expected)
    # a site with more seeds must not weigh more
    again = rows[rows["fold"] == "s00"]
    more = roc_band(pd.concat([rows, again.assign(seed=again["seed"] + 3)]), points=51)
    assert more.true_positive_rate == pytest.approx(band.true_positive_rate)
    assert more.auc == pytest.approx(band.auc)


def test_sites_with_one_class_are_left_out_and_named():
    rows = predictions(4, 2)
    rows.loc[rows["fold"] == "s01", "label"] = 1
    band = roc_band(rows)
    assert (band.n_sites, band.one_class_units) == (3, ("s01",))
    assert band.auc == roc_band(rows[rows["fold"] != "s01"]).auc
    refuse("only one class at s01", roc_band, rows[rows["fold"] == "s01"])


def test_folds_of_each_seed_stand_for_themselves_under_kfold():
    rows = predictions(4, 3)
    band = roc_band(rows, by=("seed", "fold"))
    assert band.n_sites == 12
    assert band.auc == pytest.approx(roc_band(rows).auc)
    assert band.auc_high - band.auc_low < roc_band(rows).auc_high - roc_band(rows).auc_low


def draw(rng, n, slope=1.0, shift=0.0):
    """Logits as predicted, and labels whose true logits are slope times them plus a shift."""
    logit = rng.normal(scale=1.5, size=n)
    return (rng.uniform(size=n) < expit(slope * logit + shift)).astype(int), logit


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
    fits = np.array([fit_recalibration(*draw(rng, 300)) for _ in range(250)])
    for value, se in ((0, 1), (2, 3), (4, 5)):
        assert fits[:, se].mean() == pytest.approx(fits[:, value].std(), rel=0.12)


def test_sites_without_an_estimate_have_none():
    one_class = fit_recalibration(np.ones(5, int), np.arange(5.0))
    assert np.isnan(one_class).all()
    label, logit = draw(np.random.default_rng(5), 60)
    plain = fit_recalibration(label, logit)
    for scale, shift in ((1e-3, 0.0), (1e-3, 5.0), (1e-6, -1.0)):  # slopes of thousands are slopes
        found = fit_recalibration(label, scale * logit + shift)
        np.testing.assert_allclose([scale * found.slope, scale * found.slope_se], plain[:2], rtol=1e-6)
        np.testing.assert_allclose(found.intercept, plain.intercept - found.slope * shift, rtol=1e-6)
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


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.floats(0, 1)), min_size=3, max_size=40))
def test_parts_of_the_brier_score_add_up(rows):
    label, probability = np.array([r[0] for r in rows]), np.array([r[1] for r in rows])
    parts = split_brier(label, probability)
    assert parts.brier == pytest.approx(brier_score_loss(label, probability, pos_label=1))
    assert parts.brier == pytest.approx(parts.miscalibration - parts.discrimination + parts.uncertainty)
    assert parts.miscalibration > -1e-12
    assert parts.discrimination > -1e-12


def test_net_benefit_counts_true_and_false_positives():
    rng = np.random.default_rng(5)
    label, probability = rng.integers(0, 2, 60), rng.uniform(size=60)
    thresholds = np.array([0.1, 0.35, 0.5, 0.8])
    counts = [[((probability >= t) & (label == c)).sum() for c in (1, 0)] for t in thresholds]
    expected = [true / 60 - false / 60 * t / (1 - t) for t, (true, false) in zip(thresholds, counts, strict=True)]
    assert compute_net_benefit(label, probability, thresholds) == pytest.approx(expected)
    assert compute_net_benefit(label, np.zeros(60), thresholds) == pytest.approx([0.0] * 4)
    share = label.mean()
    of_all = share - (1 - share) * thresholds / (1 - thresholds)
    assert compute_net_benefit(label, np.ones(60), thresholds) == pytest.approx(of_all)


def test_icc_of_shrout_and_fleiss():
    """Table 2 of Shrout & Fleiss (1979): six targets, four judges; ICC(1,1) is 0.17."""
    ratings = np.array([[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]])
    parts = estimate_session_variance(ratings.ravel(), np.repeat(np.arange(6), 4), np.zeros(6, dtype=np.int64))
    assert float(parts.icc) == pytest.approx(0.17, abs=0.005)
    assert float(parts.sessions) == pytest.approx(6.26, abs=0.005), "within-target mean square of their Table 3"


def test_cells_and_unequal_sessions_against_pandas():
    """Expected mean squares of a design of sessions within participants within cells."""
    rng = np.random.default_rng(3)
    k, cell = rng.integers(2, 5, 12), np.repeat([0, 1, 2], [5, 4, 3])
    member = np.repeat(np.arange(12), k)
    values = rng.normal(size=len(member)) + rng.normal(size=12)[member] + 10.0 * cell[member]
    scans, cells = pd.Series(values).groupby(member), pd.Series(values).groupby(cell[member])
    of_participant, of_cell = scans.transform("mean"), cells.transform("mean")
    within, between = ((values - of_participant) ** 2).sum(), ((of_participant - of_cell) ** 2).sum()
    effective = len(values) - (scans.transform("size") / cells.transform("size")).sum()
    sessions = within / (len(values) - 12)
    participants = (between / (12 - 3) - sessions) / (effective / (12 - 3))
    parts = estimate_session_variance(values, member, cell)
    assert float(parts.sessions) == pytest.approx(sessions)
    assert float(parts.participants) == pytest.approx(participants)
    shifted = estimate_session_variance(values + 7.0 * cell[member], member, cell)
    assert float(shifted.icc) == pytest.approx(float(parts.icc)), "what a cell shares does not count"


def test_planted_variances_are_recovered_and_covered():
    """2,000 participants for the estimates (within 10%); 300 small studies for the coverage of the interval."""
    rng = np.random.default_rng(0)
    member = np.repeat(np.arange(2000), 3)
    values = rng.normal(size=2000)[member] + 0.5 * rng.normal(size=6000)
    parts = estimate_session_variance(values, member, np.zeros(2000, dtype=np.int64))
    assert float(parts.participants) == pytest.approx(1.0, rel=0.1)
    assert float(parts.sessions) == pytest.approx(0.25, rel=0.1)
    member, cell = np.repeat(np.arange(60), 2), np.repeat([0, 1, 2, 3], 15)
    studies = rng.normal(size=(60, 300))[member] + rng.normal(size=(120, 300))
    low, high = jackknife_participants(lambda w: estimate_session_variance(studies, member, cell, w).icc, cell)
    assert 0.90 <= np.mean((low < 0.5) & (high > 0.5)) <= 0.99


def test_agreement_counts_pairs():
    decision = np.array([1, 1, 0, 1, 0, 0, 1, 1]) > 0
    member = np.array([0, 0, 0, 1, 1, 2, 2, 2])
    pairs = [itertools.combinations(decision[member == i], 2) for i in range(3)]
    expected = [np.mean([a == b for a, b in own]) for own in pairs]
    np.testing.assert_allclose(count_agreeing_pairs(decision, member), expected)

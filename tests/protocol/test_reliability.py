"""Variance components and ICC against published numbers, scipy's analysis of variance, and planted variances."""

import numpy as np
import pytest
from scipy.stats import f_oneway

from brio.protocol.calibration import count_agreeing_pairs, estimate_session_variance, jackknife_participants


def test_icc_of_shrout_and_fleiss():
    """Table 2 of Shrout & Fleiss (1979): six targets, four judges; ICC(1,1) is 0.17."""
    ratings = np.array([[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]])
    parts = estimate_session_variance(ratings.ravel(), np.repeat(np.arange(6), 4), np.zeros(6, dtype=np.int64))
    assert float(parts.icc) == pytest.approx(0.17, abs=0.005)
    assert float(parts.sessions) == pytest.approx(6.26, abs=0.005), "within-target mean square of their Table 3"


@pytest.mark.parametrize("k", [2, 3, 5])
def test_balanced_icc_follows_from_f(k):
    values = np.random.default_rng(k).normal(size=(7, k)) + np.arange(7)[:, None]
    parts = estimate_session_variance(values.ravel(), np.repeat(np.arange(7), k), np.zeros(7, dtype=np.int64))
    F = f_oneway(*values).statistic
    assert float(parts.icc) == pytest.approx((F - 1) / (F + k - 1))


def test_cells_and_unequal_sessions_against_a_loop():
    """Expected mean squares of a nested design, participant by participant and cell by cell."""
    rng = np.random.default_rng(3)
    k, cell = rng.integers(2, 5, 12), np.repeat([0, 1, 2], [5, 4, 3])
    member = np.repeat(np.arange(12), k)
    values = rng.normal(size=len(member)) + rng.normal(size=12)[member] + 10.0 * cell[member]
    within = between = effective = 0.0
    for c in range(3):
        scans = [values[member == i] for i in np.flatnonzero(cell == c)]
        everyone = np.concatenate(scans)
        within += sum(((x - x.mean()) ** 2).sum() for x in scans)
        between += sum(len(x) * (x.mean() - everyone.mean()) ** 2 for x in scans)
        effective += len(everyone) - sum(len(x) ** 2 for x in scans) / len(everyone)
    sessions = within / (len(values) - 12)
    participants = (between / (12 - 3) - sessions) / (effective / (12 - 3))
    parts = estimate_session_variance(values, member, cell)
    assert float(parts.sessions) == pytest.approx(sessions)
    assert float(parts.participants) == pytest.approx(participants)
    shifted = estimate_session_variance(values + 7.0 * cell[member], member, cell)
    assert float(shifted.icc) == pytest.approx(float(parts.icc)), "what a cell shares does not count"


def test_weights_are_copies_of_participants():
    rng = np.random.default_rng(5)
    member = np.repeat(np.arange(6), 2)
    values, cell = rng.normal(size=12), np.array([0, 0, 0, 1, 1, 1])
    weighted = estimate_session_variance(values, member, cell, np.array([1, 2, 1, 1, 0, 1]))
    rows = [0, 1, 1, 2, 3, 5]
    copied = np.concatenate([values[member == i] for i in rows])
    plain = estimate_session_variance(copied, np.repeat(np.arange(6), 2), cell[rows])
    np.testing.assert_allclose(weighted, plain)


def test_planted_variances_are_recovered_and_covered():
    """2,000 participants for the estimates (within 10 %); 300 small studies for the coverage of the interval."""
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
    expected = []
    for i in range(3):
        own = decision[member == i]
        pairs = [(a, b) for a in range(len(own)) for b in range(a)]
        expected.append(np.mean([own[a] == own[b] for a, b in pairs]))
    np.testing.assert_allclose(count_agreeing_pairs(decision, member), expected)

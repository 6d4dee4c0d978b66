"""The propagation support, Eq. (3), and the mean connectome of the source sites."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from brio.connectome import source_mean, source_strength, sym_top
from brio.connectome.support import site_mean, site_median


def symmetric(rng, n, p):
    A = rng.normal(size=(n, p, p))
    A = A + A.transpose(0, 2, 1)
    A[:, np.arange(p), np.arange(p)] = 0
    return A


def strength_loop(sites):
    """Median over sites of the median over subjects with signal in both ROIs, one edge at a time."""
    p = sites[0][0].shape[-1]
    out = np.zeros((p, p))
    for u, v in itertools.permutations(range(p), 2):
        medians = []
        for A, alive in sites:
            values = [abs(a[u, v]) for a, live in zip(A, alive, strict=True) if live[u] and live[v]]
            medians += [np.median(values)] if values else []
        out[u, v] = np.median(medians) if medians else 0.0
    return out


def sym_top_loop(strength, rho):
    p = len(strength)
    m = math.ceil(rho * (p - 1) - 1e-12)
    S = np.zeros((p, p), dtype=bool)
    for u in range(p):
        ranked = sorted((v for v in range(p) if v != u), key=lambda v: (-strength[u, v], v))
        for v in ranked[:m]:
            S[u, v] = S[v, u] = True
    return S


def test_subjects_without_signal_do_not_enter_the_medians():
    rng = np.random.default_rng(1)
    sites = []
    for n in (4, 5, 6):
        alive = rng.random((n, 6)) > 0.3
        A = symmetric(rng, n, 6) * (alive[:, :, None] & alive[:, None, :])
        sites.append((A, alive))
    sites[1][1][:, 2] = False  # dead at one site throughout
    for _, alive in sites:
        alive[:, 5] = False  # dead everywhere
    for A, alive in sites:
        A *= alive[:, :, None] & alive[:, None, :]
    found = source_strength([site_median(*map(torch.from_numpy, s)) for s in sites], 6).numpy()
    np.testing.assert_allclose(found, strength_loop(sites), atol=1e-14)
    assert (found[5] == 0).all()
    zero_filled = strength_loop([(A, np.ones_like(alive)) for A, alive in sites])
    assert np.abs(zero_filled - found).max() > 0.05


@given(st.integers(2, 14), st.floats(0.01, 1.0), st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_sym_top_properties(p, rho, seed):
    rng = np.random.default_rng(seed)
    strength = np.abs(symmetric(rng, 1, p)[0])
    S = sym_top(torch.from_numpy(strength), rho).numpy()
    m = math.ceil(rho * (p - 1))
    assert (S == S.T).all()
    assert not S.diagonal().any()
    assert (S.sum(1) >= min(m, p - 1)).all()
    assert (sym_top_loop(strength, rho) == S).all()


def test_sym_top_of_the_paper_keeps_a_fifth_of_the_partners():
    rng = np.random.default_rng(3)
    for p, m in ((116, 23), (200, 40), (11, 2)):  # ceil(0.2 * 115), ceil(0.2 * 199), 0.2 * 10 without rounding up
        degree = sym_top(torch.from_numpy(np.abs(symmetric(rng, 1, p)[0])), 0.2).sum(1)
        assert int(degree.min()) == m


def test_equal_strengths_go_to_the_smaller_index():
    assert (sym_top(torch.ones(6, 6), 0.4).numpy() == sym_top_loop(np.ones((6, 6)), 0.4)).all()


def test_mean_connectome_weighs_sites_equally_and_skips_dead_rois():
    rng = np.random.default_rng(5)
    sites = []
    for n in (3, 8):
        alive = rng.random((n, 5)) > 0.3
        alive[:, 4] = False
        sites.append((symmetric(rng, n, 5) * (alive[:, :, None] & alive[:, None, :]), alive))
    found = source_mean([site_mean(*map(torch.from_numpy, s)) for s in sites]).numpy()
    for u, v in np.ndindex(5, 5):
        means = []
        for A, alive in sites:
            values = [a[u, v] for a, live in zip(A, alive, strict=True) if live[u] and live[v]]
            means += [np.mean(values)] if values else []
        assert found[u, v] == pytest.approx(np.mean(means) if means and u != v else 0.0, abs=1e-14)

"""The propagation support, Eq. (3), and the mean connectome of the source sites."""

import math

import numpy as np
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


def make_sites(rng, sizes, p):
    """Connectomes of sites and which ROIs have signal; the last has none anywhere."""
    alive = [rng.random((n, p)) > 0.3 for n in sizes]
    for live in alive:
        live[:, -1] = False
    return [(symmetric(rng, len(live), p) * (live[:, :, None] & live[:, None, :]), live) for live in alive]


def average_live(average, sites):
    """Average over sites of the average over subjects with signal in both ROIs of each edge; 0 if there is none."""
    known = [np.ma.array(A, mask=~(live[:, :, None] & live[:, None, :])) for A, live in sites]
    return average(np.ma.stack([average(A, axis=0) for A in known]), axis=0).filled(0)


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
    sites = make_sites(np.random.default_rng(1), (4, 5, 6), 6)
    A, alive = sites[1]
    alive[:, 2] = A[:, 2] = A[:, :, 2] = 0  # dead at one site throughout
    found = source_strength([site_median(*map(torch.from_numpy, s)) for s in sites], 6).numpy()
    strengths = [(np.abs(A), alive) for A, alive in sites]
    np.testing.assert_allclose(found, average_live(np.ma.median, strengths), atol=1e-14)
    assert (found[5] == 0).all()
    zero_filled = average_live(np.ma.median, [(A, np.ones_like(alive)) for A, alive in strengths])
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
    sites = make_sites(np.random.default_rng(5), (3, 8), 5)
    found = source_mean([site_mean(*map(torch.from_numpy, s)) for s in sites]).numpy()
    np.testing.assert_allclose(found, average_live(np.ma.mean, sites), atol=1e-14)

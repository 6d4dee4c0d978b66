"""FC by symmetric products and threads against the plain estimator psi, and what must not depend on the threads."""

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from brio.cohort import Cohort
from brio.connectome import Connectomes, ReestimateRequest
from brio.connectome.fc import convert_products, psi, standardise, standardise_frames

TOLERANCE = {np.float32: 2e-6, np.float64: 1e-13}


def make_scan(n_frames, n_rois, seed=0):
    """Correlated series with offsets and scales of their own, a flat ROI, a copy and a mirror image."""
    rng = np.random.default_rng(seed)
    scan = (rng.normal(size=(n_frames, n_rois)) + rng.normal(size=(n_frames, 1))) * rng.uniform(0.1, 30, n_rois)
    scan += rng.normal(0, 100, n_rois)
    scan[:, 1] = 12.5
    scan[:, 3], scan[:, 4] = scan[:, 2], -scan[:, 2]
    return scan


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n_frames", "n_rois"), [(4, 5), (150, 30), (40, 260)])
def test_standardised_frames_and_fc_are_those_of_the_plain_version(n_frames, n_rois, dtype):
    scan = make_scan(n_frames, n_rois)
    x = np.empty(scan.shape, dtype)
    standardise_frames(scan, x)
    plain = standardise(torch.from_numpy(scan)).to(torch.from_numpy(x).dtype)
    np.testing.assert_allclose(x, plain, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    A = x.T @ x
    convert_products(A[None], np.array([n_frames]))
    expected = psi(plain, torch.tensor(n_frames)).numpy()
    whole = np.abs(expected) < 2  # Fisher z multiplies a rounding error by 1 / (1 - r^2)
    np.testing.assert_allclose(A[whole], expected[whole], atol=14 * TOLERANCE[dtype])
    np.testing.assert_allclose(np.tanh(A), np.tanh(expected), atol=TOLERANCE[dtype])
    assert (A == A.T).all()
    assert (A.diagonal() == 0).all()
    assert (A[1] == 0).all()


def estimate(names, threads):
    """FC and re-estimates of the scans of these names, by name."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        scans = [make_scan(20 + 7 * name % 40, 21, seed=name) for name in names]
        label = np.arange(len(names)) % 2
        cohort = Cohort.from_scans(scans, site=["A"] * len(names), label=label, participant_id=list(map(str, names)))
        connectomes = Connectomes(cohort)
        request = ReestimateRequest(np.arange(len(names)), np.full(len(names), 7), seed=0, refresh=0, K=3)
        again = torch.cat([A for _, A in connectomes.iterate_reestimates(request)])
    finally:
        torch.set_num_threads(before)
    return {name: torch.stack([full, *A]) for name, full, A in zip(names, connectomes.full, again, strict=True)}


EVERY = range(11)  # parts of four, the last one short


@cache
def estimate_every():
    return estimate(list(EVERY), threads=1)


@settings(max_examples=10, deadline=None)
@given(
    names=st.lists(st.sampled_from(EVERY), min_size=2, unique=True),  # in any order
    threads=st.integers(1, 3),
)
def test_fc_of_a_scan_depends_neither_on_its_neighbours_nor_on_the_threads(names, threads):
    for name, found in estimate(names, threads).items():
        assert torch.equal(found, estimate_every()[name])

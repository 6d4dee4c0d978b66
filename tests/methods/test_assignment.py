"""The balanced assignment, Eq. (7): marginals, POT, and what it does not depend on."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from brio.methods.brio.qualification import Assignment, balanced


@given(st.integers(1, 6), st.integers(2, 20), st.floats(0.0, 2.0), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_marginals_are_one_over_j_and_one_over_p(J, P, spread, seed):
    similarity = torch.from_numpy(np.random.default_rng(seed).normal(0, spread, (J, P)))
    Pi = balanced(similarity, 300)
    assert (Pi > 0).all()
    np.testing.assert_allclose(Pi.sum(0), np.full(P, 1 / P), atol=1e-13)
    np.testing.assert_allclose(Pi.sum(1), np.full(J, 1 / J), atol=2e-3)


def test_sixty_iterations_at_the_starting_scale_meet_both_marginals():
    torch.manual_seed(0)
    for J, P in ((4, 116), (4, 200), (8, 116)):
        Pi = Assignment(J, 16, 32, 0.10, 60)(torch.randn(P, 16)).detach()
        np.testing.assert_allclose(Pi.sum(0), np.full(P, 1 / P), rtol=1e-4)
        np.testing.assert_allclose(Pi.sum(1), np.full(J, 1 / J), rtol=2e-3)


@pytest.mark.parametrize("seed", range(4))
def test_assignment_is_entropic_transport_of_the_similarities(seed):
    import ot

    rng = np.random.default_rng(seed)
    J, P, temperature = 3, 9, 0.5
    module = Assignment(J, 4, 6, temperature, 500).double()
    roi = rng.normal(size=(P, 4))
    queries, keys = module.queries.detach().numpy(), roi @ module.keys.weight.detach().numpy().T
    cost = -(queries @ keys.T) / np.sqrt(6)
    expected = ot.sinkhorn(np.full(J, 1 / J), np.full(P, 1 / P), cost, temperature, numItermax=20_000, stopThr=1e-13)
    np.testing.assert_allclose(module(torch.from_numpy(roi)).detach().numpy(), expected, atol=1e-9)


def test_iterations_are_rows_then_columns():
    rng = np.random.default_rng(1)
    K = np.exp(rng.normal(size=(3, 7)))
    for iterations in (1, 2, 5):
        Pi = K.copy()
        for _ in range(iterations):
            Pi = Pi / Pi.sum(1, keepdims=True) / 3
            Pi = Pi / Pi.sum(0, keepdims=True) / 7
        np.testing.assert_allclose(balanced(torch.from_numpy(np.log(K)), iterations).numpy(), Pi, atol=1e-14)


def test_assignment_moves_with_the_rois_and_carries_gradient():
    torch.manual_seed(3)
    module = Assignment(3, 4, 6, 0.1, 60).double()
    roi = torch.randn(8, 4, dtype=torch.float64, requires_grad=True)
    order = torch.randperm(8)
    Pi = module(roi)
    torch.testing.assert_close(module(roi[order]), Pi[:, order], atol=1e-12, rtol=0)
    (Pi**2).sum().backward()
    assert all(float(t.grad.abs().max()) > 1e-6 for t in (roi, module.queries, module.keys.weight))
    assert module.keys.bias is None


def test_large_similarities_do_not_overflow():
    Pi = balanced(torch.tensor([[900.0, -900.0, 0.0], [0.0, 900.0, -900.0]]), 60)
    assert Pi.isfinite().all()
    np.testing.assert_allclose(Pi.sum(0), np.full(3, 1 / 3), rtol=1e-5)

"""Qualification-guided alignment, Eqs. (22)-(25), against explicit representations, POT and a closed-form gradient."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from brio.methods.brio.qualification import alignment_loss, cosines, weighted_cost

EPSILON, ITERATIONS = 0.3, 300


def batch(seed, E=3, n=4, J=3, d=5):
    """Unit factors of a batch, weights and strengths of every pair and class."""
    rng = np.random.default_rng(seed)
    r = rng.normal(size=(E, 2, n, J, d)) + rng.normal(size=(J, d))
    r /= np.linalg.norm(r, axis=-1, keepdims=True)
    pairs = E * (E - 1) // 2
    return r, rng.dirichlet(np.ones(J), (pairs, 2)), rng.uniform(0.2, 1, (pairs, 2))


def phi(r, alpha_bar):
    """Weighted representation of one subject, Eq. (22)."""
    return np.concatenate([math.sqrt(alpha_bar[j]) * r[j] for j in range(len(r))]) / math.sqrt(2)


def plan(X, Y):
    import ot

    C = ((X[:, None] - Y[None]) ** 2).sum(-1)
    return C, ot.solve(C, reg=EPSILON, reg_type="KL", max_iter=10_000, tol=1e-12).plan


def entropic(X, Y):
    C, gamma = plan(X, Y)
    q = 1 / C.size
    return (gamma * C).sum() + EPSILON * (gamma * np.log(gamma / q)).sum()


def pairs_of(E):
    return [(e, f) for e in range(E) for f in range(e + 1, E)]


@given(st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_weighted_cost_is_the_squared_distance_of_the_representations(seed):
    r, alpha_bar, _ = batch(seed, E=2)
    cost = weighted_cost(cosines(*torch.from_numpy(r))[None], torch.from_numpy(alpha_bar)).numpy()
    for c in (0, 1):
        for i in range(4):
            x = phi(r[0, c, i], alpha_bar[0, c])
            assert x @ x == pytest.approx(0.5)
            for h in range(4):
                y = phi(r[1, c, h], alpha_bar[0, c])
                assert cost[0, c, i, h] == pytest.approx(((x - y) ** 2).sum(), abs=1e-12)
    assert cost.min() >= -1e-12
    assert cost.max() <= 2 + 1e-12


@pytest.mark.parametrize("E", [2, 3, 4])
def test_alignment_loss_is_the_double_sum_over_pairs_and_classes(E):
    r, alpha_bar, g = batch(E, E=E)
    expected = 0.0
    for k, (e, f) in enumerate(pairs_of(E)):
        for c in (0, 1):
            X = np.stack([phi(x, alpha_bar[k, c]) for x in r[e, c]])
            Y = np.stack([phi(y, alpha_bar[k, c]) for y in r[f, c]])
            expected += 0.5 * g[k, c] * (entropic(X, Y) - 0.5 * entropic(X, X) - 0.5 * entropic(Y, Y))
    expected *= 2 / (E * (E - 1))
    weight = torch.full((len(g),), 2 / (E * (E - 1)), dtype=torch.float64)
    found = alignment_loss(*map(torch.from_numpy, (r, alpha_bar, g)), weight, EPSILON, ITERATIONS)
    assert float(found) == pytest.approx(expected, abs=1e-8)
    assert float(found) > 1e-3


def test_gradient_of_a_factor_is_its_qualification_times_the_transport_residual():
    r, alpha_bar, g = batch(5, E=2)
    factors = torch.from_numpy(r).requires_grad_()
    weight = torch.ones(1, dtype=torch.float64)
    alignment_loss(factors, *map(torch.from_numpy, (alpha_bar, g)), weight, EPSILON, ITERATIONS).backward()
    for c in (0, 1):
        X, Y = (np.stack([phi(x, alpha_bar[0, c]) for x in r[e, c]]) for e in (0, 1))
        xy, xx, yy = plan(X, Y)[1], plan(X, X)[1], plan(Y, Y)[1]
        for j in range(3):
            alpha = g[0, c] * alpha_bar[0, c, j]
            for i in range(4):
                here, there = r[0, c, :, j], r[1, c, :, j]
                residual = sum(xy[i, h] * (here[i] - there[h]) for h in range(4))
                residual = residual - sum(xx[i, k] * (here[i] - here[k]) for k in range(4))
                # the cost keeps its inner-product form, so the gradient agrees on the sphere: compare tangent parts
                found = factors.grad[0, c, i, j].numpy()
                tangent = np.eye(5) - np.outer(here[i], here[i])
                np.testing.assert_allclose(tangent @ found, 0.5 * alpha * (tangent @ residual), atol=1e-8)
                residual = sum(xy[h, i] * (there[i] - here[h]) for h in range(4))
                residual = residual - sum(yy[i, k] * (there[i] - there[k]) for k in range(4))
                tangent = np.eye(5) - np.outer(there[i], there[i])
                found = factors.grad[1, c, i, j].numpy()
                np.testing.assert_allclose(tangent @ found, 0.5 * alpha * (tangent @ residual), atol=1e-8)


def test_pairs_without_weight_and_strength_zero_contribute_nothing():
    r, alpha_bar, g = batch(6, E=4)
    real = np.array([e < 3 and f < 3 for e, f in pairs_of(4)])
    weight = torch.from_numpy(real / 3.0)
    factors = torch.from_numpy(r).requires_grad_()
    padded = alignment_loss(factors, *map(torch.from_numpy, (alpha_bar, g)), weight, 0.1, 30)
    plain = alignment_loss(
        torch.from_numpy(r[:3]),
        *map(torch.from_numpy, (alpha_bar[real], g[real])),
        torch.full((3,), 1 / 3.0).double(),
        0.1,
        30,
    )
    assert padded.item() == pytest.approx(plain.item(), rel=1e-7)
    padded.backward()
    assert (factors.grad[3] == 0).all()
    none = alignment_loss(factors, *map(torch.from_numpy, (alpha_bar, 0 * g)), weight, 0.1, 30)
    assert none.item() == 0

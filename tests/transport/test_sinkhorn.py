"""Entropic transport and the debiased divergence against POT and geomloss, closed forms and finite differences."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import kl_div, logsumexp

from brio.transport import coupling, entropic_cost, potential_sums

EPSILON = 0.3
ENOUGH = 400  # iterations after which the problems here have converged; self-transport is the slow one


def clouds(seed: int, n: int = 6, m: int = 4, d: int = 5, shift: float = 0.2) -> tuple[torch.Tensor, torch.Tensor]:
    """Two clouds of norm 1/sqrt(2), as the weighted representations of the paper, close enough to converge fast."""
    g = torch.Generator().manual_seed(seed)
    centre = torch.randn(d, dtype=torch.float64, generator=g)
    x, y = (centre + 0.6 * torch.randn(k, d, dtype=torch.float64, generator=g) for k in (n, m))
    x, y = (torch.nn.functional.normalize(v, dim=-1) / 2**0.5 for v in (x, y + shift))
    return x, y


def sq(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x[..., :, None, :] - y[..., None, :, :]).square().sum(-1)


def divergence(x, y, epsilon=EPSILON, iterations=ENOUGH, log_eta=None, log_zeta=None):
    """The debiased divergence S_eps of the appendix."""
    cost, self_x, self_y = (
        entropic_cost(sq(a, b), epsilon, iterations, *weights)
        for a, b, *weights in ((x, y, log_eta, log_zeta), (x, x, log_eta, log_eta), (y, y, log_zeta, log_zeta))
    )
    return cost - self_x / 2 - self_y / 2


def pot(C: torch.Tensor, epsilon: float = EPSILON, a=None, b=None):
    """Converged solution of POT with the KL penalty of the paper."""
    import ot

    return ot.solve(C.numpy(), a, b, reg=epsilon, reg_type="KL", max_iter=10_000, tol=1e-11)


def pot_cost(C: torch.Tensor, epsilon: float = EPSILON, a=None, b=None) -> float:
    """<Gamma, C> + eps KL(Gamma | eta zeta') of POT's coupling; a term of the KL is p log(p / q) - p + q."""
    plan = pot(C, epsilon, a, b).plan
    independent = np.full(plan.shape, 1 / plan.size) if a is None else np.outer(a, b)
    return (plan * C.numpy()).sum() + epsilon * kl_div(plan, independent).sum()


def pot_divergence(x: torch.Tensor, y: torch.Tensor, epsilon: float = EPSILON) -> float:
    return pot_cost(sq(x, y), epsilon) - pot_cost(sq(x, x), epsilon) / 2 - pot_cost(sq(y, y), epsilon) / 2


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1.0])
def test_entropic_cost_and_coupling_equal_pot(epsilon):
    x, y = clouds(0)
    C = sq(x, y)
    assert float(entropic_cost(C, epsilon, ENOUGH)) == pytest.approx(pot_cost(C, epsilon), abs=1e-9)
    gamma = coupling(C, potential_sums(C, epsilon, ENOUGH), epsilon)
    np.testing.assert_allclose(gamma.numpy(), pot(C, epsilon).plan, atol=1e-9)


def test_entropic_cost_with_weights_equals_pot():
    x, y = clouds(2)
    rng = np.random.default_rng(0)
    a, b = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(4))
    found = entropic_cost(sq(x, y), EPSILON, ENOUGH, torch.from_numpy(a).log(), torch.from_numpy(b).log())
    assert float(found) == pytest.approx(pot_cost(sq(x, y), EPSILON, a, b), abs=1e-9)


@pytest.mark.parametrize("sizes", [(6, 4), (5, 5)])
def test_divergence_equals_geomloss(sizes):
    from geomloss import SamplesLoss

    x, y = clouds(4, *sizes)
    # geomloss halves the squared distance: twice its loss at blur = sqrt(eps / 2) has the paper's cost and eps
    loss = SamplesLoss("sinkhorn", p=2, blur=(EPSILON / 2) ** 0.5, scaling=0.999, debias=True, backend="tensorized")
    assert float(divergence(x, y)) == pytest.approx(2 * float(loss(x, y)), abs=2e-6)


def updates(C, epsilon, iterations):
    """Dual potentials by the log-domain updates of the appendix."""
    n, m = C.shape
    psi = np.zeros(m)
    for _ in range(iterations):
        phi = -epsilon * logsumexp((psi - C) / epsilon, axis=1, b=1 / m)
        psi = -epsilon * logsumexp((phi[:, None] - C) / epsilon, axis=0, b=1 / n)
    return phi, psi


@pytest.mark.parametrize("iterations", [1, 3, 30])
def test_every_iteration_is_the_papers_pair_of_updates(iterations):
    x, y = clouds(7)
    C = sq(x, y)
    phi, psi = updates(C.numpy(), EPSILON, iterations)
    sums = potential_sums(C, EPSILON, iterations)
    np.testing.assert_allclose(sums.numpy(), phi[:, None] + psi[None, :], atol=1e-12)
    assert float(entropic_cost(C, EPSILON, iterations)) == pytest.approx(phi.mean() + psi.mean(), abs=1e-12)


def test_gradient_is_the_closed_form_of_the_appendix():
    x, y = (v.requires_grad_() for v in clouds(8))
    divergence(x, y).backward()
    X, Y = x.detach(), y.detach()
    xy, xx, yy = (pot(C).plan for C in (sq(X, Y), sq(X, X), sq(Y, Y)))
    for points, others, apart, alike in ((x, Y, xy, xx), (y, X, xy.T, yy)):
        own, others = points.detach().numpy(), others.numpy()
        for i, gradient in enumerate(points.grad.numpy()):
            expected = 2 * apart[i] @ (own[i] - others) - 2 * alike[i] @ (own[i] - own)
            np.testing.assert_allclose(gradient, expected, atol=1e-8)


@pytest.mark.parametrize("iterations", [1, 3, 30])
def test_no_iteration_is_taped(iterations):
    # with the potentials held fixed d OT / d C is the coupling, converged or not
    x, y = clouds(10)
    C = sq(x, y).requires_grad_()
    value = entropic_cost(C, EPSILON, iterations)
    value.backward()
    sums = potential_sums(C, EPSILON, iterations)
    assert not sums.requires_grad
    torch.testing.assert_close(C.grad, coupling(C.detach(), sums, EPSILON), atol=1e-14, rtol=0)


@given(st.integers(0, 10_000), st.integers(1, 6))
@settings(max_examples=8, deadline=None)
def test_divergence_of_a_cloud_with_itself_is_zero_and_flat(seed, n):
    x, _ = clouds(seed, n)
    y = x.clone().requires_grad_()
    value = divergence(x, y)
    value.backward()
    assert abs(value.item()) < 1e-12
    assert float(y.grad.abs().max()) < 1e-8  # a minimum: nothing pulls at a cloud that already agrees


def log_weights(n: int, width: int) -> torch.Tensor:
    return torch.tensor([1.0 / n] * n + [0.0] * (width - n), dtype=torch.float64).log()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_padded_points_change_nothing(dtype):
    x, y = clouds(13, 5, 3)
    g = torch.Generator().manual_seed(1)
    X = torch.cat([x, torch.randn(2, 5, dtype=torch.float64, generator=g)]).to(dtype).requires_grad_()
    Y = torch.cat([y, torch.randn(4, 5, dtype=torch.float64, generator=g)]).to(dtype).requires_grad_()
    padded = divergence(X, Y, iterations=50, log_eta=log_weights(5, 7).to(dtype), log_zeta=log_weights(3, 7).to(dtype))
    x, y = x.to(dtype).requires_grad_(), y.to(dtype).requires_grad_()
    plain = divergence(x, y, iterations=50)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    assert padded.item() == pytest.approx(plain.item(), abs=tolerance)
    padded.backward()
    plain.backward()
    torch.testing.assert_close(X.grad[:5], x.grad, atol=tolerance, rtol=0)
    torch.testing.assert_close(Y.grad[:3], y.grad, atol=tolerance, rtol=0)
    assert (X.grad[5:] == 0).all()
    assert (Y.grad[3:] == 0).all()


def test_padding_agrees_with_pot_where_sizes_differ_within_a_batch():
    pairs = [clouds(20 + k, n, m) for k, (n, m) in enumerate([(3, 5), (6, 2), (4, 4)])]
    X, Y = (torch.nn.utils.rnn.pad_sequence([p[side] for p in pairs], batch_first=True) for side in (0, 1))
    eta = torch.stack([log_weights(len(p[0]), X.shape[1]) for p in pairs])
    zeta = torch.stack([log_weights(len(p[1]), Y.shape[1]) for p in pairs])
    found = divergence(X, Y, log_eta=eta, log_zeta=zeta)
    for value, (x, y) in zip(found, pairs, strict=True):
        assert float(value) == pytest.approx(pot_divergence(x, y), abs=1e-9)


def test_float32_at_the_default_setting_stays_close_to_the_converged_divergence():
    for seed in range(2):
        x, y = clouds(seed, 4, 4)
        assert float(divergence(x.float(), y.float(), 0.1, 30)) == pytest.approx(pot_divergence(x, y, 0.1), abs=2e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_bounded_costs_have_the_same_potentials_without_logarithms(dtype):
    rng = torch.Generator().manual_seed(3)
    C = 2 * torch.rand(5, 2, 6, 7, generator=rng, dtype=torch.float64)
    eta, zeta = torch.rand(5, 2, 6, generator=rng), torch.rand(5, 2, 7, generator=rng)
    eta[..., 4:] = 0  # padding
    weights = [(w / w.sum(-1, keepdim=True)).double().log() for w in (eta, zeta)]
    for epsilon, tolerance in ((0.1, 1e-12), (0.05, 1e-12), (0.01, 0.0)):  # at 0.01 logarithms are used after all
        plain = potential_sums(C, epsilon, 30, *weights)
        scaled = potential_sums(C.to(dtype), epsilon, 30, *(w.to(dtype) for w in weights), largest_cost=2.0)
        real = weights[0].isfinite()[..., None].expand(C.shape)
        tolerance = max(tolerance, 2e-5) if dtype == torch.float32 else tolerance
        torch.testing.assert_close(scaled.double()[real], plain[real], atol=tolerance, rtol=0)

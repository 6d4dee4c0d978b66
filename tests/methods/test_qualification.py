"""Qualification, Eqs. (11)-(19), against loops over subjects; ablations against a table; both propositions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from brio.methods.brio import BrioSettings
from brio.methods.brio.qualification import (
    average_over_sites,
    contribution_statistics,
    pair_support,
    qualification_profile,
    qualify,
    reestimation_support,
    reestimation_variation,
    reference_scale,
    relevance,
    variant_profile,
)

VARIANTS = ["full", "w/o RS", "w/o TR", "w/o SM", "w/o SF", "w/o QG"]
EPS_W, EPS_S, EPS_Q = 1e-3, 2e-3, 3e-3  # large enough to be seen where one is forgotten or swapped


def problem(seed, sites=(3, 5, 4), J=3, K=4, scale=0.3):
    """Subjects of uneven sites with full-scan and re-estimated contributions, and head weights."""
    rng = np.random.default_rng(seed)
    site, label = [], []
    for e, n in enumerate(sites):
        for c in (0, 1):
            size = n + c * e
            site += [e] * size
            label += [c] * size
    order = rng.permutation(len(site))
    site, label = np.array(site)[order], np.array(label)[order]
    a0 = rng.normal(size=(len(site), J)) + label[:, None] * rng.normal(size=J) + rng.normal(size=(len(sites), J))[site]
    ak = a0[:, None] + scale * rng.normal(size=(len(site), K, J)) * rng.uniform(0.1, 3, J)
    return site, label, a0, ak, rng.normal(size=(J, 5))


def loops(site, label, a0, ak, w):
    """Eqs. (11)-(16), (18), (19) as the paper writes them, one site, class and factor at a time."""
    E, J, K = site.max() + 1, a0.shape[1], ak.shape[1]
    mu, V, D, T, q = (np.zeros((E, 2, J)) for _ in range(5))
    Delta = np.zeros((E, J))
    for e in range(E):
        for j in range(J):
            for c in (0, 1):
                members = [i for i in range(len(site)) if site[i] == e and label[i] == c]
                mu[e, c, j] = sum(a0[i, j] for i in members) / len(members)
                V[e, c, j] = sum((a0[i, j] - mu[e, c, j]) ** 2 for i in members) / len(members)
                D[e, c, j] = sum((ak[i, k, j] - a0[i, j]) ** 2 for i in members for k in range(K)) / len(members) / K
            Delta[e, j] = mu[e, 1, j] - mu[e, 0, j]
            for c in (0, 1):
                T[e, c, j] = V[e, c, j] + Delta[e, j] ** 2 / 4
                q[e, c, j] = (T[e, c, j] + EPS_Q) / (T[e, c, j] + D[e, c, j] + EPS_Q)
    norms = [sum(x * x for x in w[j]) for j in range(J)]
    R = np.zeros(J)
    for j in range(J):
        pooled = [sum(V[e, c, j] for e in range(E)) / E for c in (0, 1)]
        contrast = sum(Delta[e, j] for e in range(E)) / E
        R[j] = norms[j] / (sum(norms) + EPS_W) * contrast**2 / (pooled[0] + pooled[1] + EPS_S)
    pi = R / R.sum()
    pairs = [(e, f) for e in range(E) for f in range(e + 1, E)]
    alpha = np.array(
        [[[pi[j] * math.sqrt(q[e, c, j] * q[f, c, j]) for j in range(J)] for c in (0, 1)] for e, f in pairs]
    )
    g = alpha.sum(-1)
    return {"mu": mu, "V": V, "Delta": Delta, "R": R, "pi": pi, "D": D, "T": T, "q": q, "g": g, "alpha": alpha}


def tensors(site, label, a0, ak, w, pad=0):
    """Inputs of ``qualify``; ``pad`` adds sites that are not there."""
    E = site.max() + 1
    cell_average = np.zeros((E + pad, 2, len(site)))
    for e in range(E):
        for c in (0, 1):
            cell = (site == e) & (label == c)
            cell_average[e, c, cell] = 1 / cell.sum()
    weight = np.array([1 / E] * E + [0.0] * pad)
    change = ((ak - a0[:, None]) ** 2).mean(1)
    return tuple(map(torch.from_numpy, (a0, change, w, cell_average, weight)))


def with_variant(variant):
    return BrioSettings(variant=variant, eps_w=EPS_W, eps_s=EPS_S, eps_q=EPS_Q)


@pytest.mark.parametrize("seed", range(4))
def test_every_quantity_equals_the_loop_over_subjects(seed):
    data = problem(seed)
    expected = loops(*data)
    a, change, w, cell_average, weight = tensors(*data)
    mu, V, Delta = contribution_statistics(a, cell_average)
    V_pool, contrast = average_over_sites(V, Delta, weight)
    T, D = reference_scale(V, Delta), reestimation_variation(change, cell_average)
    R = relevance(w, contrast, V_pool, EPS_W, EPS_S)
    q = reestimation_support(T, D, EPS_Q)
    for name, found in {"mu": mu, "V": V, "Delta": Delta, "R": R, "D": D, "T": T, "q": q}.items():
        np.testing.assert_allclose(found.numpy(), expected[name], atol=1e-12, err_msg=name)
    g, alpha_bar = qualification_profile(R / R.sum(), pair_support(q))
    np.testing.assert_allclose(g.numpy(), expected["g"], atol=1e-12)
    np.testing.assert_allclose(alpha_bar.numpy(), expected["alpha"] / expected["g"][..., None], atol=1e-12)


def test_qualify_puts_the_parts_together():
    data = problem(7)
    expected = loops(*data)
    found = qualify(*tensors(*data), with_variant("full"))
    np.testing.assert_allclose(found.pi_task.numpy(), expected["pi"], atol=1e-12)
    np.testing.assert_allclose(found.q_re.numpy(), expected["q"], atol=1e-12)
    np.testing.assert_allclose(found.g.numpy(), expected["g"], atol=1e-12)
    np.testing.assert_allclose(found.alpha_bar.numpy(), expected["alpha"] / expected["g"][..., None], atol=1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
def test_sites_that_are_not_there_change_nothing(variant):
    data = problem(4)
    plain = qualify(*tensors(*data), with_variant(variant))
    padded = qualify(*tensors(*data, pad=2), with_variant(variant))
    torch.testing.assert_close(padded.pi_task, plain.pi_task, atol=1e-14, rtol=0)
    torch.testing.assert_close(padded.q_re[:3], plain.q_re, atol=1e-14, rtol=0)
    real = [(e < 3) and (f < 3) for e in range(5) for f in range(e + 1, 5)]
    torch.testing.assert_close(padded.alpha_bar[real], plain.alpha_bar, atol=1e-14, rtol=0)
    torch.testing.assert_close(padded.g[real], plain.g, atol=1e-14, rtol=0)
    assert all(t.isfinite().all() for t in padded)


def test_opposing_contrasts_cancel():
    site, label = np.repeat([0, 1], 4), np.tile([0, 1], 4)
    a0 = np.stack([np.where(site == 0, 1, -1) * label, label + 0.1 * np.arange(8)], 1).astype(float)
    found = qualify(*tensors(site, label, a0, a0[:, None], np.ones((2, 3))), with_variant("full"))
    assert found.pi_task.tolist() == [0.0, 1.0]
    assert (found.q_re == 1).all()


@pytest.mark.parametrize("seed", range(3))
def test_variants_follow_the_definitions_of_the_ablation_study(seed):
    rng = np.random.default_rng(seed)
    pi, q = rng.dirichlet(np.ones(4)), rng.uniform(0.1, 1, (3, 2, 4))
    for pair in range(3):
        for c in (0, 1):
            alpha = [pi[j] * q[pair, c, j] for j in range(4)]
            qualified = [x / sum(alpha) for x in alpha]
            supported = [x / sum(q[pair, c]) for x in q[pair, c]]
            table = {
                "full": (qualified, sum(alpha)),
                "w/o RS": (pi, 1.0),  # relevance alone, strength one
                "w/o TR": (supported, sum(q[pair, c]) / 4),  # uniform in place of relevance, support kept
                "w/o SM": (qualified, 1.0),  # qualified weights, strength one
                "w/o SF": (pi, sum(alpha)),  # relevance alone weighs, qualified strength
                "w/o QG": ([0.25] * 4, 1.0),  # no qualification at all
            }
            for variant, (weights, strength) in table.items():
                g, alpha_bar = variant_profile(variant, torch.from_numpy(pi), torch.from_numpy(q))
                np.testing.assert_allclose(alpha_bar[pair, c].numpy(), weights, atol=1e-12, err_msg=variant)
                assert float(g[pair, c]) == pytest.approx(strength, abs=1e-12), variant


@pytest.mark.parametrize("variant", VARIANTS)
def test_without_any_relevance_nothing_that_needs_it_is_aligned(variant):
    site, label, _, _, w = problem(8)
    a0 = np.zeros((len(site), 3))
    found = qualify(*tensors(site, label, a0, a0[:, None] + 0.1, w), with_variant(variant))
    assert all(t.isfinite().all() for t in found)
    q = EPS_Q / (EPS_Q + 0.01)
    expected = {"w/o TR": q, "w/o QG": 1.0}.get(variant, 0.0)
    np.testing.assert_allclose(found.g.numpy(), np.full((3, 2), expected), atol=1e-12)
    np.testing.assert_allclose(found.alpha_bar.sum(-1).numpy(), np.ones((3, 2)), atol=1e-12)


def test_a_head_of_zeros_has_no_relevance():
    site, label, a0, ak, w = problem(9)
    found = qualify(*tensors(site, label, a0, ak, 0 * w), with_variant("full"))
    assert (found.g == 0).all()


counts = st.integers(1, 5)
values = st.floats(-3, 3)


@st.composite
def one_site(draw):
    """Contributions of one site and factor: full scans and K re-estimates of each class."""
    K = draw(st.integers(1, 4))
    cells = []
    for _ in (0, 1):
        n = draw(counts)
        full = np.array(draw(st.lists(values, min_size=n, max_size=n)))
        size = draw(st.floats(0, 2))
        change = np.array(draw(st.lists(values, min_size=n * K, max_size=n * K))).reshape(n, K)
        cells.append((full, full[:, None] + size * change))
    return cells


def support_of(cells, eps_q):
    """V_sub, Delta, T, D_re and q_re of a site by the functions of the method, and the re-estimated contrast."""
    n0, n1 = len(cells[0][0]), len(cells[1][0])
    a = torch.from_numpy(np.concatenate([cells[0][0], cells[1][0]]))[:, None]
    again = torch.from_numpy(np.concatenate([cells[0][1], cells[1][1]]))[..., None]
    cell_average = torch.zeros(1, 2, n0 + n1, dtype=torch.float64)
    cell_average[0, 0, :n0], cell_average[0, 1, n0:] = 1 / n0, 1 / n1
    _, V, Delta = contribution_statistics(a, cell_average)
    D = reestimation_variation((again - a[:, None]).square().mean(1), cell_average)
    T = reference_scale(V, Delta)
    q = reestimation_support(T, D, eps_q)
    Delta_re = cells[1][1].mean() - cells[0][1].mean()
    return (*(t[0, ..., 0].numpy() for t in (V, T, D, q)), float(Delta[0, 0]), float(Delta_re))


@given(one_site(), st.sampled_from([1e-6, 1e-3, 1.0]))
@settings(max_examples=200, deadline=None)
def test_proposition_1_bounds_the_change_of_the_contrast(cells, eps_q):
    _, T, _, q, Delta, Delta_re = support_of(cells, eps_q)
    assert ((q > 0) & (q <= 1)).all()
    bound = sum(math.sqrt((T[c] + eps_q) * (1 / q[c] - 1)) for c in (0, 1))
    assert abs(Delta_re - Delta) <= bound + 1e-6


@given(one_site(), st.floats(0.1, 3), st.floats(-3, 3), st.floats(-3, 3))
@settings(max_examples=100, deadline=None)
def test_proposition_1_is_tight_for_opposite_common_shifts(cells, eps_q, shift, other):
    moved = [(full, np.repeat(full[:, None] + by, 3, 1)) for (full, _), by in zip(cells, (shift, other), strict=True)]
    _, T, D, q, Delta, Delta_re = support_of(moved, eps_q)
    np.testing.assert_allclose(D, [shift**2, other**2], atol=1e-10)
    bound = sum(math.sqrt((T[c] + eps_q) * (1 / q[c] - 1)) for c in (0, 1))
    assert bound == pytest.approx(abs(shift) + abs(other), abs=1e-5)
    if shift * other <= 0:
        assert abs(Delta_re - Delta) == pytest.approx(bound, abs=1e-5)
    else:
        assert abs(Delta_re - Delta) == pytest.approx(abs(shift - other), abs=1e-9)


@given(one_site(), st.floats(0, 1.2))
@settings(max_examples=200, deadline=None)
def test_proposition_1_support_above_the_threshold_keeps_the_sign(cells, shrink):
    cells = [(full, full[:, None] + shrink * (again - full[:, None])) for full, again in cells]
    V, _, D, q, Delta, Delta_re = support_of(cells, 1e-3)
    kappa = Delta**2 / (4 * (V + 1e-3))
    threshold = (1 + kappa) / (1 + 2 * kappa)
    assert ((threshold > 0.5) & (threshold <= 1)).all()
    if (q > threshold + 1e-9).all():
        assert Delta * Delta_re > 0
        assert (Delta**2 / 4 > D).all()


def test_proposition_1_a_contrast_can_flip_just_below_the_threshold():
    full = np.array([0.0, 1.0])
    for over, flips in ((0.99, False), (1.01, True)):  # both classes shifted towards each other by half the contrast
        cells = [(full, full[:, None] + over), (full + 2, full[:, None] + 2 - over)]
        V, _, _, q, Delta, Delta_re = support_of(cells, 1e-6)
        kappa = Delta**2 / (4 * (V + 1e-6))
        assert (Delta_re < 0) is flips
        assert bool((q > (1 + kappa) / (1 + 2 * kappa)).all()) is not flips


weights = st.lists(st.floats(0.01, 1), min_size=4, max_size=4).map(np.array)
supports = st.lists(st.floats(0.01, 1), min_size=4, max_size=4).map(np.array)
absent = st.lists(st.booleans(), min_size=4, max_size=4).filter(lambda z: not all(z)).map(np.array)


def profile(pi, q):
    g, alpha_bar = qualification_profile(torch.from_numpy(pi), torch.from_numpy(q)[None, None])
    return float(g[0, 0]), alpha_bar[0, 0].numpy()


def kl(v, p):
    return sum(a * math.log(a / b) for a, b in zip(v, p, strict=True) if a > 0)


def objective(v, pi, q):
    return kl(v, pi) + sum(a * math.log(1 / b) for a, b in zip(v, q, strict=True))


@given(weights, supports, weights, absent)
@settings(max_examples=150, deadline=None)
def test_proposition_2_the_weights_are_the_unique_minimiser(pi, q, v, zero):
    pi, v = (np.where(zero, 0, x) for x in (pi, v))
    pi, v = pi / pi.sum(), v / v.sum()
    g, alpha_bar = profile(pi, q)
    assert 0 < g <= 1 + 1e-12
    assert alpha_bar.sum() == pytest.approx(1)
    assert objective(alpha_bar, pi, q) == pytest.approx(-math.log(g), abs=1e-9)
    assert objective(v, pi, q) == pytest.approx(kl(v, alpha_bar) - math.log(g), abs=1e-9)
    assert objective(v, pi, q) >= -math.log(g) - 1e-12
    if np.abs(v - alpha_bar).max() > 1e-3:
        assert objective(v, pi, q) > -math.log(g)


@given(weights, supports)
@settings(max_examples=60, deadline=None)
def test_proposition_2_weights_are_the_sensitivities_of_the_strength(pi, q):
    pi = pi / pi.sum()
    log_q = torch.from_numpy(np.log(q)).requires_grad_()
    g, alpha_bar = qualification_profile(torch.from_numpy(pi), log_q.exp()[None, None])
    (slope,) = torch.autograd.grad(g[0, 0].log(), log_q)
    np.testing.assert_allclose(slope.numpy(), alpha_bar[0, 0].detach().numpy(), atol=1e-12)


@given(weights, supports, st.floats(0.05, 1))
@settings(max_examples=100, deadline=None)
def test_proposition_2_reweighting_lowers_the_penalty_unless_support_is_constant(pi, q, constant):
    pi = pi / pi.sum()
    penalty = lambda q: sum(p * math.log(1 / x) for p, x in zip(pi, q, strict=True))  # noqa: E731
    g, alpha_bar = profile(pi, q)
    assert penalty(q) + math.log(g) == pytest.approx(kl(pi, alpha_bar), abs=1e-9)
    assert -math.log(g) <= penalty(q) + 1e-12
    if q.max() > 1.1 * q.min():
        assert -math.log(g) < penalty(q)
    same = np.full(4, constant)
    g, alpha_bar = profile(pi, same)
    assert -math.log(g) == pytest.approx(penalty(same), abs=1e-12)
    np.testing.assert_allclose(alpha_bar, pi, atol=1e-12)


def test_proposition_2_equality_needs_constant_support_only_where_there_is_relevance():
    pi, q = np.array([0.3, 0.7, 0.0]), np.array([0.4, 0.4, 0.9])
    g, alpha_bar = profile(pi, q)
    assert -math.log(g) == pytest.approx(math.log(1 / 0.4))
    np.testing.assert_allclose(alpha_bar, pi, atol=1e-14)

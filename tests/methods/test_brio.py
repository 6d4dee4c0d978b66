"""BRIO against loops, POT and closed forms, Eqs. (4)-(26): encoder, assignment, factors, qualification, alignment."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from steps import draw_connectomes

from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.errors import BrioError
from brio.methods import make_method
from brio.methods.brio import BrioSettings, qualification
from brio.methods.brio.encoder import SignedEncoder, descriptor, measure_descriptors, signed_graphs
from brio.methods.brio.method import BrioNetwork, FactorMap
from brio.methods.brio.qualification import alignment_loss, balanced, qualify
from brio.protocol import leave_one_site_out
from brio.training import Run, RunState, Scans
from brio.training.contract import Inputs
from brio.training.stack import Stack, cell_average_weights


@pytest.fixture
def graph():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(3, 6, 6))
    A = A + A.transpose(0, 2, 1)
    A[:, np.arange(6), np.arange(6)] = 0
    S = rng.random((6, 6)) > 0.5
    S = (S | S.T) & ~np.eye(6, dtype=bool)
    S[0, 1] = S[1, 0] = True
    A[1, 2] = A[1, :, 2] = 0  # an ROI without any edge of its own
    A[2, 4] = np.abs(A[2, 4])
    A[2, :, 4] = A[2, 4]  # an ROI without negative edges
    assert S.sum(1).all()
    return A, S.astype(float)


def gelu(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def layer_norm(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def normalised(G):
    """D^(-1/2) G D^(-1/2) entry by entry, zero where an ROI has no edge."""
    degree = [sum(row) for row in G]
    out = np.zeros_like(G)
    for u in range(len(G)):
        for v in range(len(G)):
            if degree[u] > 0 and degree[v] > 0:
                out[u, v] = G[u, v] / math.sqrt(degree[u]) / math.sqrt(degree[v])
    return out


def layer(H, plus, minus, own, positive, negative):
    return layer_norm(H + gelu(H @ own.T + normalised(plus) @ H @ positive.T + normalised(minus) @ H @ negative.T))


def split_by_sign(A, S):
    """Supported weights, and the sizes of the positive and the negative ones."""
    G = A * S
    return G, np.maximum(G, 0), np.maximum(-G, 0)


def arrays_of(module):
    return {name: p.detach().numpy() for name, p in module.named_parameters()}


def test_encoder_is_embedding_and_standardised_descriptor_through_two_layers(graph):
    _, S = graph
    torch.manual_seed(3)
    encoder = SignedEncoder(6, d_e=4, d_h=5, layers=2).double()
    w, rng = arrays_of(encoder), np.random.default_rng(6)
    standard = rng.normal(size=(6, 3)), rng.uniform(0.1, 2.0, (6, 3))
    found = encoder(*map(torch.from_numpy, graph), None, None, *map(torch.from_numpy, standard)).detach().numpy()
    G, plus, minus = split_by_sign(*graph)
    for i in range(3):
        d = S.sum(1)
        c = np.stack([plus[i].sum(1) / d, minus[i].sum(1) / d, np.sqrt((G[i] ** 2).sum(1) / d)], 1)
        H = np.hstack([w["roi"], (c - standard[0]) / standard[1]]) @ w["phi_in.weight"].T + w["phi_in.bias"]
        for k in range(2):
            H = layer(H, plus[i], minus[i], *(w[f"layers.{k}.{n}.weight"] for n in ("own", "positive", "negative")))
        np.testing.assert_allclose(found[i], H, atol=1e-9)
    assert not any(name.endswith(".bias") and ".norm." not in name for name in w if name.startswith("layers."))


def test_descriptors_of_the_measured_scans_get_mean_zero_and_sd_one(graph):
    A, S = map(torch.from_numpy, graph)
    A[:, 3] = A[:, :, 3] = A[0, 3]  # an ROI with the same edges in all scans
    alive, mean = torch.ones(len(A), 6, dtype=torch.bool), torch.zeros(6, 6, dtype=torch.float64)
    c_mean, c_sd = measure_descriptors([(A[:1], alive[:1]), (A[1:], alive[1:])], S, mean)
    G, plus, minus = signed_graphs(A, S)
    raw = descriptor(G, plus.sum(-1), minus.sum(-1), S)
    c = (raw - c_mean) / c_sd
    torch.testing.assert_close(c.mean(0), torch.zeros(6, 3, dtype=torch.float64), rtol=0, atol=1e-12)
    constant = raw.std(0) == 0
    assert constant[3].all()
    torch.testing.assert_close(c.std(0, correction=0), (~constant).double(), rtol=0, atol=1e-9)


def test_a_graph_without_any_edge_is_finite():
    encoder = SignedEncoder(6, d_e=4, d_h=5, layers=2)
    out = encoder(torch.zeros(1, 6, 6), torch.ones(6, 6) - torch.eye(6))
    out.sum().backward()
    assert out.isfinite().all()
    assert all(p.grad.isfinite().all() for p in encoder.parameters() if p.grad is not None)


@given(st.integers(1, 6), st.integers(2, 20), st.floats(0.0, 2.0), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_marginals_are_one_over_j_and_one_over_p(J, P, spread, seed):
    similarity = torch.from_numpy(np.random.default_rng(seed).normal(0, spread, (J, P)))
    Pi = balanced(similarity, 300)
    rows = similarity.softmax(1) / J
    torch.testing.assert_close(balanced(similarity, 1), rows / rows.sum(0) / P, atol=1e-14, rtol=0)
    assert (Pi > 0).all()
    np.testing.assert_allclose(Pi.sum(0), np.full(P, 1 / P), atol=1e-13)
    np.testing.assert_allclose(Pi.sum(1), np.full(J, 1 / J), atol=2e-3)


def test_sixty_iterations_at_the_starting_scale_meet_both_marginals():
    torch.manual_seed(0)
    for J, P in ((4, 116), (4, 200), (8, 116)):
        Pi = qualification.Assignment(J, 16, 32, 0.10, 60)(torch.randn(P, 16)).detach()
        np.testing.assert_allclose(Pi.sum(0), np.full(P, 1 / P), rtol=1e-4)
        np.testing.assert_allclose(Pi.sum(1), np.full(J, 1 / J), rtol=2e-3)


@pytest.mark.parametrize("seed", range(4))
def test_assignment_is_entropic_transport_of_the_similarities(seed):
    import ot

    rng = np.random.default_rng(seed)
    J, P, temperature = 3, 9, 0.5
    module = qualification.Assignment(J, 4, 6, temperature, 500).double()
    roi = rng.normal(size=(P, 4))
    queries, keys = module.queries.detach().numpy(), roi @ module.keys.weight.detach().numpy().T
    cost = -(queries @ keys.T) / np.sqrt(6)
    expected = ot.sinkhorn(np.full(J, 1 / J), np.full(P, 1 / P), cost, temperature, numItermax=20_000, stopThr=1e-13)
    np.testing.assert_allclose(module(torch.from_numpy(roi)).detach().numpy(), expected, atol=1e-9)


def test_assignment_moves_with_the_rois_and_carries_gradient():
    torch.manual_seed(3)
    module = qualification.Assignment(3, 4, 6, 0.1, 60).double()
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


P = 9

SMALL = BrioSettings(J=3, d_e=4, d_h=6, d_t=5, d_mlp=7, d_qk=6, assignment_iterations=40)


@pytest.fixture
def example():
    """A network, graphs with dead ROIs and what a run has learned."""
    torch.manual_seed(0)
    network = BrioNetwork(P, SMALL).double()
    A, alive = draw_connectomes(7, P, dead=[(2, 3), (4, 0), (4, 8)])
    mean = A.mean(0)
    S = (torch.rand(P, P) > 0.4) | torch.eye(P).roll(1, 0).bool()
    S = ((S | S.T) & ~torch.eye(P, dtype=torch.bool)).double()
    return network, A, alive, RunState.from_learned(S=S, mean=mean)


def test_logit_is_the_scaled_sum_of_contributions_of_unit_images_of_the_pooled_rois(example):
    network, A, alive, state = example
    network.b.data.fill_(0.37)
    out = network(Scans.of(A, alive)._replace(state=state))
    live = alive[:, :, None] & alive[:, None, :]
    filled = torch.where(live, A, state.learned["mean"].expand_as(A))
    H = network.encoder(filled, state.learned["S"]).detach().numpy()
    Pi = network.assignment(network.encoder.roi).detach().numpy()
    f, w = arrays_of(network.factor_map), network.w.detach().numpy()
    logit, representation, factors, contributions = (t.detach().numpy() for t in out)
    for i in range(7):
        for j in range(3):
            pooled = 3 * sum(Pi[j, u] * H[i, u] for u in range(P))
            x = f["project.weight"] @ pooled
            x = x / np.linalg.norm(x)
            x = f["narrow.weight"] @ gelu(f["widen.weight"] @ x + f["widen.bias"]) + f["narrow.bias"]
            np.testing.assert_allclose(factors[i, j], x / np.linalg.norm(x), atol=1e-10)
            assert contributions[i, j] == pytest.approx(w[j] @ factors[i, j], abs=1e-12)
        np.testing.assert_allclose(representation[i], factors[i].ravel() / math.sqrt(3), atol=1e-14)
        assert logit[i] == pytest.approx(sum(contributions[i]) / math.sqrt(3) + 0.37, abs=1e-12)
    np.testing.assert_allclose(logit, representation @ w.ravel() + 0.37, rtol=0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(factors, axis=-1), 1.0, rtol=1e-7)
    assert (np.abs(contributions) <= np.linalg.norm(w, axis=1) + 1e-12).all()


def test_factor_map_is_unit_norm_without_biases_too():
    torch.manual_seed(1)
    out = FactorMap(6, 5, 7, bias=False)(torch.randn(2, 3, 6))
    torch.testing.assert_close(out.norm(dim=-1), torch.ones(2, 3))


VARIANTS = ["full", "w/o RS", "w/o TR", "w/o SM", "w/o SF", "w/o QG"]

EPS_Q = 3e-3


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


def tensors(site, label, a0, ak, w):
    """Inputs of ``qualify``."""
    n_sites, change = site.max() + 1, ((ak - a0[:, None]) ** 2).mean(1)
    weight = torch.full((n_sites,), 1 / n_sites, dtype=torch.float64)
    return *map(torch.from_numpy, (a0, change, w)), cell_average_weights(site, label), weight


def with_variant(variant):
    return BrioSettings(variant=variant, eps_q=EPS_Q)


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
                g, alpha_bar = qualification.variant_profile(variant, torch.from_numpy(pi), torch.from_numpy(q))
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
    (full0, again0), (full1, again1) = cells
    a = torch.from_numpy(np.concatenate([full0, full1]))[:, None]
    again = torch.from_numpy(np.concatenate([again0, again1]))[..., None]
    cell_average = cell_average_weights(np.zeros(len(a)), np.repeat([0, 1], [len(full0), len(full1)]))
    _, V, Delta = qualification.contribution_statistics(a, cell_average)
    D = qualification.reestimation_variation((again - a[:, None]).square().mean(1), cell_average)
    T = qualification.reference_scale(V, Delta)
    q = qualification.reestimation_support(T, D, eps_q)
    Delta_re = again1.mean() - again0.mean()
    return (*(t[0, ..., 0].numpy() for t in (V, T, D, q)), float(Delta[0, 0]), float(Delta_re))


@given(one_site(), st.sampled_from([1e-6, 1e-3, 1.0]))
@settings(max_examples=60, deadline=None)
def test_proposition_1_bounds_the_change_of_the_contrast(cells, eps_q):
    _, T, _, q, Delta, Delta_re = support_of(cells, eps_q)
    assert ((q > 0) & (q <= 1)).all()
    bound = sum(math.sqrt((T[c] + eps_q) * (1 / q[c] - 1)) for c in (0, 1))
    assert abs(Delta_re - Delta) <= bound + 1e-6


@given(one_site(), st.floats(0.1, 3), st.floats(-3, 3), st.floats(-3, 3))
@settings(max_examples=40, deadline=None)
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
@settings(max_examples=60, deadline=None)
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

absent = st.lists(st.booleans(), min_size=4, max_size=4).filter(lambda z: not all(z)).map(np.array)


def profile(pi, q):
    g, alpha_bar = qualification.qualification_profile(torch.from_numpy(pi), torch.from_numpy(q)[None, None])
    return float(g[0, 0]), alpha_bar[0, 0].numpy()


def kl(v, p):
    return sum(a * math.log(a / b) for a, b in zip(v, p, strict=True) if a > 0)


def objective(v, pi, q):
    return kl(v, pi) + sum(a * math.log(1 / b) for a, b in zip(v, q, strict=True))


@given(weights, weights, weights, absent)
@settings(max_examples=50, deadline=None)
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


@given(weights, weights)
@settings(max_examples=60, deadline=None)
def test_proposition_2_weights_are_the_sensitivities_of_the_strength(pi, q):
    pi = pi / pi.sum()
    log_q = torch.from_numpy(np.log(q)).requires_grad_()
    g, alpha_bar = qualification.qualification_profile(torch.from_numpy(pi), log_q.exp()[None, None])
    (slope,) = torch.autograd.grad(g[0, 0].log(), log_q)
    np.testing.assert_allclose(slope.numpy(), alpha_bar[0, 0].detach().numpy(), atol=1e-12)


@given(weights, weights, st.floats(0.05, 1))
@settings(max_examples=40, deadline=None)
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


EPSILON, ITERATIONS = 0.3, 300


def unit_factors(seed, E=3, n=4, J=3, d=5):
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


@pytest.mark.parametrize("E", [2, 3, 4])
def test_alignment_loss_is_the_double_sum_over_pairs_and_classes(E):
    r, alpha_bar, g = unit_factors(E, E=E)
    expected = 0.0
    for k, (e, f) in enumerate(itertools.combinations(range(E), 2)):
        for c in (0, 1):
            X = np.stack([phi(x, alpha_bar[k, c]) for x in r[e, c]])
            Y = np.stack([phi(y, alpha_bar[k, c]) for y in r[f, c]])
            expected += 0.5 * g[k, c] * (entropic(X, Y) - 0.5 * entropic(X, X) - 0.5 * entropic(Y, Y))
    expected *= 2 / (E * (E - 1))
    weight = torch.full((len(g),), 2 / (E * (E - 1)), dtype=torch.float64)
    found = alignment_loss(*map(torch.from_numpy, (r, alpha_bar, g)), weight, EPSILON, ITERATIONS)
    assert float(found) == pytest.approx(expected, abs=1e-8)
    assert float(found) > 1e-3
    assert not alignment_loss(*map(torch.from_numpy, (r, alpha_bar, 0 * g)), weight, EPSILON, ITERATIONS)


def test_gradient_of_a_factor_is_its_qualification_times_the_transport_residual():
    r, alpha_bar, g = unit_factors(5, E=2)
    factors = torch.from_numpy(r).requires_grad_()
    weight = torch.ones(1, dtype=torch.float64)
    alignment_loss(factors, *map(torch.from_numpy, (alpha_bar, g)), weight, EPSILON, ITERATIONS).backward()
    for c, (e, f) in itertools.product((0, 1), ((0, 1), (1, 0))):
        X, Y = (np.stack([phi(x, alpha_bar[0, c]) for x in r[site, c]]) for site in (e, f))
        across, within = plan(X, Y)[1], plan(X, X)[1]
        for i, j in itertools.product(range(4), range(3)):
            alpha = g[0, c] * alpha_bar[0, c, j]
            own, others = r[e, c, :, j], r[f, c, :, j]
            residual = sum(across[i, h] * (own[i] - others[h]) for h in range(4))
            residual = residual - sum(within[i, k] * (own[i] - own[k]) for k in range(4))
            # the cost keeps its inner-product form, so the gradient agrees on the sphere: compare tangent parts
            tangent = np.eye(5) - np.outer(own[i], own[i])
            found = factors.grad[e, c, i, j].numpy()
            np.testing.assert_allclose(tangent @ found, 0.5 * alpha * (tangent @ residual), atol=1e-8)


SHORT = {"epochs": 2, "T_w": 1, "K": 2, "d_h": 8, "d_mlp": 8, "d_e": 4, "sinkhorn_iterations": 3}


@pytest.fixture(scope="module")
def graphs():
    return Connectomes(simulate(Simulation(n_sites=5, per_class=4, n_rois=8, frames=60)))


@pytest.fixture(scope="module")
def run(graphs):
    return Run(leave_one_site_out(graphs.cohort, 0)[0], 0)


def refreshed_blocks(graphs, run, monkeypatch, **values):
    """Block lengths of the re-estimates of a refresh."""
    requests = []
    monkeypatch.setattr(Inputs, "iterate_reestimates", lambda self, request, max_bytes: requests.append(request) or ())
    method = make_method("brio", SHORT | values)
    stack = Stack.build(method, graphs, [run])
    method.begin_stage(stack, method.stages()[1])
    method.refresh(stack, np.ones(1, dtype=bool), 0)
    (request,) = requests
    return request.block_length.tolist()


@pytest.mark.parametrize(
    ("scale", "block"),
    [(0.5, 3), (1.0, 5), (2.0, 11), (20.0, 30), (0.01, 2)],  # of 5.4375: 2.72, 5.44, 10.9; then the rule's bounds
)
def test_it_is_rounded_after_it_is_scaled_and_clipped_last(scale, block, graphs, run, monkeypatch):
    monkeypatch.setattr(Connectomes, "estimate_block_length", lambda *args: 5.4375)
    frames = graphs.n_frames[run.fold.source]
    lengths = refreshed_blocks(graphs, run, monkeypatch, block_scale=scale)
    assert lengths == np.minimum(block, frames // 2).tolist()


def test_a_fixed_length_is_not_scaled_and_what_re_estimates_nothing_has_none(graphs, run, monkeypatch):
    cases = ("brio", {"block_length": 7}, 7), ("brio-wo-rs", {"block_scale": 2.0}, None), ("backbone", {}, None)
    for name, values, length in cases:
        (fitted,) = make_method(name, SHORT | values).fit(graphs, [run])
        assert fitted.block_length == length
    assert set(refreshed_blocks(graphs, run, monkeypatch, block_length=7)) == {7}


def test_scales_that_make_no_sense_are_refused():
    assert BrioSettings(block_scale=0.5).block_scale == 0.5
    assert BrioSettings(block_length=4.0).block_scale == 1.0
    with pytest.raises(BrioError, match=r"'block_scale'=2\.0: must be 1 if block_length is given"):
        BrioSettings(block_scale=2.0, block_length=4.0)

"""GSAT, DisC, CEPG and DiSCO against loops over edges, PyG layers and the formulas of their papers."""

import copy
import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from scipy import optimize, special, stats
from steps import draw_connectomes, equal_cells, make_batch, make_step, moved
from torch import nn
from torch.nn import functional as F

from brio.connectome import edge_cut
from brio.methods import graph_ood, make_method
from brio.methods.edges import scorer
from brio.methods.graph_ood import CEPG, CEPGSettings, DisC, DiSCO, DiSCOSettings, DisCSettings
from brio.methods.layers import build_profiles, select_strong_edges
from brio.training import InputShape, RunState, Scans, StepContext

P, SHARE = 10, 0.4
SIZES = {"width": 6, "edge_width": 2, "edge_share": SHARE}


def graphs(n=8, seed=0):
    """Scans of P ROIs, one without signal in a single ROI, one in so many that it has fewer edges than others."""
    A, alive = draw_connectomes(n, P, dead=[(1, 4), *((2, roi) for roi in (0, 3, 5, 9))], seed=seed)
    (mean,), _ = draw_connectomes(1, P, seed=9)
    return Scans.of(A / 2, alive)._replace(cut=edge_cut(A / 2, SHARE), state=RunState.from_learned(mean=mean / 9))


@pytest.fixture(name="scans")
def make_scans():
    return graphs()


def start(name, n_sites=2, **values):
    """A small network of a method."""
    torch.manual_seed(0)
    return moved(make_method(name, SIZES | values).network(InputShape(P, n_sites, 0)))


def in_batch(scans, n_sites=2, padding=0, epoch=1.0):
    """The scans as a batch of equally many of each site and class; the last sites only pad."""
    return make_batch(scans, equal_cells(n_sites - padding, padding), epoch=epoch)


def in_training(network, scans, key=0, real=None):
    """The output of the network in a training step."""
    return network(scans, make_step(len(scans.A), key, real))


def calls_of(module):
    """A list that collects arguments, but for the step, and result of every call of a module."""
    seen = []

    def collect(_, args, out):
        seen.append((*(a for a in args if not (a is None or isinstance(a, StepContext))), out))

    module.register_forward_hook(collect)
    return seen


def pairs_of(adjacency):
    """Directed edges of one graph, row by row."""
    return [(u, v) for u in range(P) for v in range(P) if adjacency[u, v]]


# ---------------------------------------------------------------- edges


def test_every_edge_is_listed_once_in_each_direction_and_its_value_becomes_a_weight_of_messages():
    A = select_strong_edges(graphs())
    edges = scorer.list_edges(A, SHARE)
    half = edges.receiver.shape[1] // 2
    assert half == round(SHARE * P * (P - 1) / 2)
    assert torch.equal(edges.receiver[:, :half], edges.sender[:, half:])
    assert torch.equal(edges.sender[:, :half], edges.receiver[:, half:])
    assert (edges.real.sum(1) < 2 * half).tolist() == [False, False, True] + [False] * 5
    values = torch.randn(8, 3, 2 * half, dtype=torch.float64)
    expected = torch.zeros(8, 3, P, P, dtype=torch.float64)
    for i in range(8):
        listed = list(zip(edges.receiver[i].tolist(), edges.sender[i].tolist(), strict=True))
        real = edges.real[i].bool()
        assert sorted(pair for pair, there in zip(listed, real, strict=True) if there) == pairs_of(A[i])
        for place in torch.where(real)[0]:
            expected[i, :, *listed[place]] = values[i, :, place]
    assert torch.equal(scorer.scatter_edges(values, edges, P), expected)
    assert torch.equal(scorer.scatter_edges(values[:, 0], edges, P), expected[:, 0])
    both = scorer.scatter_edges(scorer.average_directions(values), edges, P)
    torch.testing.assert_close(both, (expected + expected.mT) / 2)


@pytest.mark.xdist_group("torch_geometric")
def test_edge_scores_are_those_of_an_mlp_over_pairs_with_the_instance_norm_of_pyg():
    from torch_geometric.nn import InstanceNorm

    scans = graphs()
    A = select_strong_edges(scans)
    edges = scorer.list_edges(A, SHARE)
    score = moved(scorer.EdgeMLP(5, (6, 4), dropout=0.5))
    H = torch.randn(8, P, 5, dtype=torch.float64)
    found = scorer.scatter_edges(score(H, edges), edges, P)
    pairs = [(i, u, v) for i in range(8) for u, v in pairs_of(A[i])]
    graph = torch.tensor([i for i, _, _ in pairs])
    x = torch.stack([torch.cat([H[i, u], H[i, v]]) for i, u, v in pairs])
    first = torch.cat([score.receiver.weight, score.sender.weight], 1)
    x = InstanceNorm(6)(x @ first.T + score.receiver.bias, graph).relu()
    x = InstanceNorm(4)(score.linears[0](x), graph).relu()
    expected = score.linears[1](x).squeeze(-1)
    for (i, u, v), value in zip(pairs, expected, strict=True):
        torch.testing.assert_close(found[i, u, v], value)


def test_batch_norm_over_edges_is_that_of_torch_over_the_real_edges_of_real_graphs(scans):
    edges = scorer.list_edges(select_strong_edges(scans), SHARE)
    ours, theirs = scorer.EdgeBatchNorm(3).double(), nn.BatchNorm1d(3).double()
    x = torch.randn(8, edges.receiver.shape[1], 3, dtype=torch.float64)
    graph_real = torch.tensor([1.0] * 6 + [0.0] * 2, dtype=torch.float64)
    counted = (edges.real * graph_real[:, None]).bool()
    step = make_step(8, real=graph_real)

    def normalise(step=None):
        k, c = ours.compute_affine(lambda: scorer.compute_edge_moments(x, edges.real), edges.real, step)
        return torch.addcmul(c, x, k)

    for _ in range(2):
        torch.testing.assert_close(normalise(step)[counted], theirs(x[counted]))
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    torch.testing.assert_close(normalise()[counted], theirs.eval()(x[counted]))


@pytest.mark.xdist_group("torch_geometric")
@pytest.mark.parametrize("residual", [False, True])
def test_the_encoder_passes_weighted_messages_like_the_dense_gin_of_pyg(residual):
    from torch_geometric.nn import DenseGINConv

    encoder = moved(scorer.GINEncoder(P, 6, 2, 0.5, residual))
    scans = graphs()
    X = build_profiles(scans)
    A = select_strong_edges(scans) * torch.rand(8, P, P, dtype=torch.float64)
    H = encoder.embed(X)
    for layer, norm in zip(encoder.layers, encoder.norms, strict=True):
        new = norm(DenseGINConv(layer.update, eps=layer.eps.item())(H, A)).relu()
        H = H + new if residual else new
    torch.testing.assert_close(encoder(X, A), H)


def test_relaxed_samples_cross_a_half_as_often_as_their_probability_says():
    logit = torch.tensor([-1.5, 0.0, 0.7], dtype=torch.float64).expand(20000, 3)
    assert torch.equal(scorer.sample_concrete(logit, None), logit.sigmoid())
    sample = scorer.sample_concrete(logit, make_step(20000, key=3))
    np.testing.assert_allclose((sample > 0.5).double().mean(0), logit[0].sigmoid(), atol=0.012)
    assert sample.std(0).min() > 0.2  # spread out, not the probability itself


@pytest.mark.parametrize("epochs", [4, 30, 100, 120])
@pytest.mark.parametrize("final", [0.5, 0.7])
def test_the_prior_falls_in_steps_and_checkpoints_wait_for_its_end(epochs, final):
    interval = max(1, epochs // 10)
    rates = [float(scorer.schedule_keep_rate(torch.tensor(float(e)), epochs, final)) for e in range(1, epochs + 1)]
    assert rates == pytest.approx([max(final, 0.9 - 0.1 * ((e - 1) // interval)) for e in range(1, epochs + 1)])
    stages = scorer.plan_decay_stages(epochs, final)
    assert [s.selectable for s in stages] == [False, True]
    assert sum(s.epochs for s in stages) == epochs
    assert stages[1].epochs >= 1
    if epochs > 4:
        assert rates[stages[0].epochs] == pytest.approx(final)
        assert rates[stages[0].epochs - 1] > final + 0.05
    assert sum(s.epochs for s in scorer.plan_decay_stages(1, final)) == 1


# ---------------------------------------------------------------- GSAT


@pytest.fixture
def gsat():
    return start("gsat")


def test_gsat_runs_one_encoder_twice_and_weighs_messages_by_the_mean_of_both_directions(gsat, scans):
    seen = calls_of(gsat.encoder)
    out = in_training(gsat, scans)
    assert len(seen) == 2
    (X1, A1, _), (X2, A2, _) = seen
    assert torch.equal(X1, X2)
    assert torch.equal(A1, select_strong_edges(scans))
    one_way = scorer.scatter_edges(out.edge_sample, out.edges, P)
    torch.testing.assert_close(A2, (one_way + one_way.mT) / 2)
    assert not torch.allclose(one_way, one_way.mT)


def test_gsat_attention_is_random_in_training(gsat, scans):
    one, same, other = (in_training(gsat, scans, key).edge_sample for key in (0, 0, 1))
    assert torch.equal(one, same)
    assert (one - other).abs().mean() > 0.05


@pytest.mark.parametrize("name", ["gsat", "brainood"])
def test_after_training_probabilities_stand_in_for_draws(name, scans):
    network = start(name)
    passes, scores = calls_of(network.encoder), calls_of(network.score)
    out = network(scans)
    assert torch.equal(out.logit, network(scans).logit)
    (_, edges, logit), (_, A, H) = scores[0], passes[1]
    p = scorer.scatter_edges(logit.sigmoid(), edges, P)
    torch.testing.assert_close(A, (p + p.mT) / 2)
    torch.testing.assert_close(out.logit, network.classify(H.mean(1)).squeeze(-1))


@pytest.mark.parametrize(("stage", "epoch"), [(0, 1.0), (0, 13.0), (1, 60.0)])
def test_gsat_loss_is_cross_entropy_and_divergence_from_a_falling_rate(gsat, stage, epoch, scans):
    method = graph_ood.GSAT(graph_ood.GSATSettings(final_r=0.7, information=0.6, epochs=120))
    out = in_training(gsat, scans)
    batch = in_batch(scans, n_sites=2, padding=1, epoch=epoch)
    found = method.loss(out, batch._replace(stage=method.stages()[stage]))
    r = max(0.7, 0.9 - 0.1 * ((epoch - 1) // 12))
    expected = 0.0
    for i in range(4):  # the other site pads
        y = float(i >= 2)
        p = out.logit[i].sigmoid()
        a = out.edge_sample[i][out.edges.real[i].bool()]
        kl = (a * (a / r).log() + (1 - a) * ((1 - a) / (1 - r)).log()).mean()
        expected += (-(y * p.log() + (1 - y) * (1 - p).log()) + 0.6 * kl) / 4
    torch.testing.assert_close(found, expected)
    certain = out._replace(edge_sample=torch.ones_like(out.edge_sample).float())
    assert method.loss(certain, batch).isfinite()


# ---------------------------------------------------------------- DisC


@pytest.fixture
def disc():
    return start("disc", layers=2)


def test_disc_gives_two_encoders_complementary_parts_of_one_graph(disc, scans):
    causal, bias = calls_of(disc.causal), calls_of(disc.bias)
    out = in_training(disc, scans)
    ((Xc, Ac, Hc),), ((Xb, Ab, Hb),) = causal, bias
    X, A = build_profiles(scans), select_strong_edges(scans)
    torch.testing.assert_close(Xc + Xb, X)
    torch.testing.assert_close(Ac + Ab, A)
    edge, node = Ac[A > 0], (Xc / X.where(X != 0, torch.ones_like(X)))[X != 0]
    assert ((edge > 0) & (edge < 1)).all()
    assert ((node > 0) & (node < 1)).all()
    assert edge.std() > 0.01
    assert node.std() > 0.01
    torch.testing.assert_close(out.representation, torch.cat([Hc.mean(1), Hb.mean(1)], -1))
    for name, p in disc.causal.named_parameters():
        assert p is not disc.bias.get_parameter(name)


def test_disc_masker_averages_over_neighbours(disc, scans):
    X, A = build_profiles(scans), select_strong_edges(scans)
    masker = disc.masker
    node = calls_of(masker.node)
    edge, mask = masker(X, A)
    H = masker.embed(X)
    for layer, norm in zip(masker.layers, masker.norms, strict=True):
        mean = torch.zeros_like(H)
        for i, u in itertools.product(range(8), range(P)):
            near = A[i, u].bool()
            if near.any():
                mean[i, u] = H[i, near].mean(0)
        H = H + norm(layer(mean)).relu()
    torch.testing.assert_close(node[0][0], H)
    torch.testing.assert_close(mask, masker.node(H).sigmoid())
    assert torch.equal(edge > 0, A > 0)
    pairs = [(i, u, v) for i in range(8) for u, v in pairs_of(A[i])]
    first = torch.cat([masker.edge.receiver.weight, masker.edge.sender.weight], 1)
    x = torch.stack([torch.cat([H[i, u], H[i, v]]) for i, u, v in pairs]) @ first.T + masker.edge.receiver.bias
    for norm, layer in zip(masker.edge.norms, masker.edge.linears, strict=True):
        statistics = norm.running_mean, norm.running_var, norm.weight, norm.bias
        x = layer(F.batch_norm(x, *statistics, eps=norm.eps).relu())
    torch.testing.assert_close(torch.stack([edge[i, u, v] for i, u, v in pairs]), x.squeeze(-1).sigmoid())


def test_each_disc_classifier_teaches_its_own_part_only(disc, scans):
    out = in_training(disc, scans)
    for logit, own, other in [
        (out.logit, disc.causal, disc.bias),
        (out.swapped, disc.causal, disc.bias),
        (out.biased, disc.bias, disc.causal),
        (out.swapped_biased, disc.bias, disc.causal),
    ]:
        learns = torch.autograd.grad(logit.sum(), [own.embed.weight], retain_graph=True)[0]
        assert learns.abs().sum() > 0
        held = torch.autograd.grad(logit.sum(), [other.embed.weight], retain_graph=True, allow_unused=True)[0]
        assert held is None or not held.any()


def test_disc_swaps_biased_parts_between_real_scans_and_reads_them_at_test_time(disc, scans):
    real = torch.tensor([1.0] * 6 + [0.0] * 2, dtype=torch.float64)
    out = in_training(disc, scans, real=real)
    assert sorted(out.order.tolist()) == list(range(8))
    assert sorted(out.order[6:].tolist()) == [6, 7]
    assert out.order.tolist() != list(range(8))
    z_c, z_b = out.representation.split(6, -1)
    mixed = torch.cat([z_c, torch.stack([z_b[j] for j in out.order.tolist()])], -1)
    torch.testing.assert_close(out.swapped, disc.classify(mixed).squeeze(-1))
    torch.testing.assert_close(out.swapped_biased, disc.classify_bias(mixed).squeeze(-1))
    before = disc(scans)
    torch.testing.assert_close(before.logit, disc.classify(before.representation).squeeze(-1))
    disc.bias.embed.weight.data.add_(1.0)
    assert not torch.allclose(disc(scans).logit, before.logit)


def test_the_generalised_cross_entropy_has_the_gradient_of_its_paper():
    logit = torch.linspace(-3, 3, 7, dtype=torch.float64, requires_grad=True)
    label = torch.tensor([0.0, 1, 0, 1, 1, 0, 1], dtype=torch.float64)
    losses = F.binary_cross_entropy_with_logits(logit, label, reduction="none")
    found = torch.autograd.grad(graph_ood.generalised_cross_entropy(losses, 0.7).sum(), logit)[0]
    p = torch.where(label > 0, logit.sigmoid(), 1 - logit.sigmoid())
    paper = torch.autograd.grad(((1 - p**0.7) / 0.7).sum(), logit)[0]
    torch.testing.assert_close(found, 0.7 * paper)  # the published code has the further factor q


@pytest.mark.parametrize("stage", [0, 1])
def test_disc_loss_weighs_each_scan_by_its_own_difficulty(disc, stage, scans):
    method = DisC(DisCSettings(**SIZES, layers=2, q=0.7, swap=3.0))
    batch = in_batch(scans, n_sites=2)
    out = in_training(disc, scans)
    leaves = [t.detach().requires_grad_() for t in (out.logit, out.biased, out.swapped, out.swapped_biased)]
    made = out._replace(logit=leaves[0], biased=leaves[1], swapped=leaves[2], swapped_biased=leaves[3])
    found = method.loss(made, batch._replace(stage=method.stages()[stage]))
    label = [0, 0, 1, 1] * 2

    def ce(z, y):
        return math.log1p(math.exp(-z if y else z))

    (grad,) = torch.autograd.grad(found, leaves[0])
    expected = 0.0
    for i, y in enumerate(label):
        c, b, cs, bs = (ce(t[i].item(), y) for t in leaves)
        W = b / (b + c)
        expected += (W * c + b * 0.7 * math.exp(-b) ** 0.7) / 8
        if stage == 1:
            bs = ce(leaves[3][i].item(), label[out.order[i]])
            expected += 3.0 * (W * cs + bs * 0.7 * math.exp(-bs) ** 0.7) / 8
        # the weights are no part of what is learned
        assert grad[i].item() == pytest.approx(W * (leaves[0][i].sigmoid().item() - y) / 8, rel=1e-5)
    assert found.item() == pytest.approx(expected, rel=1e-6)


def test_disc_swaps_in_the_second_half_and_chooses_checkpoints_there():
    for epochs in (1, 4, 120):
        stages = DisC(DisCSettings(epochs=epochs)).stages()
        assert stages[-1].name == "swapping"
        assert stages[-1].epochs == max(1, epochs // 2)
        assert [s.selectable for s in stages[:-1]] == [False] * (len(stages) - 1)
        assert sum(s.epochs for s in stages) == epochs


# ---------------------------------------------------------------- CEPG


@pytest.fixture
def cepg():
    return start("cepg", n_sites=3)


def test_the_complement_gives_the_environment_code_that_gates_the_second_look(cepg, scans):
    looks, passes = calls_of(cepg.score), calls_of(cepg.encoder)
    out = cepg(scans)
    (H1, edges, first), (H2, _, second) = looks
    (_, A, H), (_, rest, Hs), (_, kept, Hc) = passes
    assert torch.equal(H1, H)
    assert torch.equal(A, select_strong_edges(scans))
    p, q = (scorer.scatter_edges(t.sigmoid(), edges, P) for t in (first, second))
    torch.testing.assert_close(rest, A - (p + p.mT) / 2)
    torch.testing.assert_close(kept, (q + q.mT) / 2)
    torch.testing.assert_close(H2, H * 2 * cepg.gate(Hs.mean(1)).sigmoid()[:, None])
    torch.testing.assert_close(out.representation, Hc.mean(1))
    assert (first - second).abs().mean() > 0.01


def test_the_environment_moves_scores_of_edges_and_learns_nothing_from_them(cepg, scans):
    A = select_strong_edges(scans)
    edges = scorer.list_edges(A, SHARE)
    H = cepg.encoder(build_profiles(scans), A)
    code = torch.randn(2, 8, 6, dtype=torch.float64, requires_grad=True)
    one, other = (cepg.score(cepg.gate_states(H, z), edges) for z in code)
    assert (one - other).abs().mean() > 0.01  # a code added to all edges would vanish in the instance norm
    assert torch.autograd.grad(one.sum(), code, allow_unused=True)[0] is None


def test_cepg_kept_part_unlearns_the_site(cepg):
    scans = graphs(n=12)
    batch = in_batch(scans, n_sites=3)
    out = in_training(cepg, scans)
    weight, bias = cepg.site_of_kept.weight, cepg.site_of_kept.bias
    target = batch.site
    reversed_ = torch.autograd.grad(
        F.cross_entropy(out.site_of_kept, target), cepg.encoder.embed.weight, retain_graph=True
    )[0]
    plain = F.cross_entropy(out.representation @ weight.T + bias, target)
    straight = torch.autograd.grad(plain, cepg.encoder.embed.weight, retain_graph=True)[0]
    torch.testing.assert_close(reversed_, -straight)
    own = torch.autograd.grad(F.cross_entropy(out.site_of_kept, target), weight, retain_graph=True)[0]
    torch.testing.assert_close(own, torch.autograd.grad(plain, weight)[0])


def test_cepg_loss_has_all_its_terms(cepg):
    scans = graphs(n=12)
    method = CEPG(CEPGSettings(environment=0.5, adversary=0.2, information=0.3, risk_variance=2.0, epochs=100))
    batch = in_batch(scans, n_sites=3, padding=1, epoch=60.0)
    out = in_training(cepg, scans)
    found = method.loss(out, batch._replace(stage=method.stages()[-1]))
    risk = F.binary_cross_entropy_with_logits(out.logit, batch.label, reduction="none").view(3, 4).mean(1)[:2]
    site = torch.arange(2).repeat_interleave(4)
    rest, kept = (F.cross_entropy(t[:8, :2], site) for t in (out.site_of_rest, out.site_of_kept))
    ramp = 2 / (1 + math.exp(-10 * 59 / 99)) - 1
    kl = scorer.bernoulli_kl(out.edge_sample, out.edges, 0.5)[:8].mean()
    expected = risk.mean() + 0.5 * rest + 0.2 * ramp * kept + 0.3 * kl + 2.0 * risk.var(unbiased=False)
    torch.testing.assert_close(found, expected)
    early = method.loss(out, batch._replace(epoch=torch.tensor(1.0))._replace(stage=method.stages()[0]))
    kl = scorer.bernoulli_kl(out.edge_sample, out.edges, 0.9)[:8].mean()
    torch.testing.assert_close(early, risk.mean() + 0.5 * rest + 0.3 * kl + 2.0 * risk.var(unbiased=False))


def test_cepg_site_classifiers_start_at_zero_and_keep_their_own_sites():
    method = CEPG(CEPGSettings(**SIZES))
    networks = []
    for n_sites in (2, 5):
        torch.manual_seed(0)
        networks.append(method.network(InputShape(P, n_sites, 0)))
    few, many = (dict(n.named_parameters()) for n in networks)
    for name, p in few.items():
        if name.startswith("site_of_"):
            assert not p.any()
            assert not many[name].any()
            assert len(method.remove_padding(many, RunState.from_learned(), 2)[0][name]) == 2
        else:
            assert torch.equal(p, many[name])


# ---------------------------------------------------------------- DiSCO


@pytest.fixture
def disco():
    return start("disco", experts=4, expert_width=3, gate_width=5)


def test_every_expert_scores_both_directions_of_edges_with_an_mlp_of_its_own(scans):
    A = select_strong_edges(scans)
    edges = scorer.list_edges(A, SHARE)
    masks = moved(graph_ood.ExpertMasks(5, 4, 2))
    H = torch.randn(8, P, 5, dtype=torch.float64)
    found = scorer.scatter_edges(masks(H, edges), edges, P)
    first = torch.cat([masks.receiver.weight, masks.sender.weight], 1)
    for k in range(4):
        own = slice(2 * k, 2 * k + 2)
        for i, u, v in [(graph, *pair) for graph in (0, 2) for pair in pairs_of(A[graph])]:
            hidden = first[own] @ torch.cat([H[i, u], H[i, v]]) + masks.receiver.bias[own]
            torch.testing.assert_close(found[i, k, u, v], masks.weight[k] @ hidden.relu() + masks.bias[k])


def test_masks_are_gumbel_samples_with_the_gradient_of_relaxed_ones():
    logit = torch.tensor([-2.0, -0.5, 0.0, 0.4, 1.5], dtype=torch.float64).repeat(40_000, 1).requires_grad_()
    mask = graph_ood.sample_masks(logit, make_step(len(logit)))
    assert set(mask.unique().tolist()) == {0.0, 1.0}
    expected = stats.gumbel_r.sf(-logit[0].detach().numpy())  # P(g > -logit)
    np.testing.assert_allclose(mask.mean(0).detach(), expected, atol=0.01)
    np.testing.assert_allclose(graph_ood.sample_masks(logit[:1]).detach()[0], expected, rtol=1e-12)
    gumbel = -(-make_step(len(logit)).draw_uniform(logit.shape, logit).log()).log()
    soft = ((logit + gumbel) / 0.1).sigmoid()
    found = torch.autograd.grad(mask.sum(), logit)[0]
    torch.testing.assert_close(found, soft * (1 - soft) / 0.1)


def test_regions_are_kept_with_any_of_their_edges():
    """For binary masks and, by enumeration of all masks of three ROIs, for probabilities."""
    off = ~torch.eye(3, dtype=torch.bool)
    keep = torch.rand(3, 3, dtype=torch.float64) * off
    expected = torch.zeros(3, dtype=torch.float64)
    for bits in itertools.product((0.0, 1.0), repeat=6):
        A = torch.zeros(3, 3, dtype=torch.float64)
        A[off] = torch.tensor(bits, dtype=torch.float64)
        touched = (A.any(0) | A.any(1)).double()
        assert torch.equal(graph_ood.keep_regions(A), touched)
        expected += torch.where(A > 0, keep, 1 - keep)[off].prod() * touched
    torch.testing.assert_close(graph_ood.keep_regions(keep), expected)


def as_gin(layer, k, n_in):
    """Layer of expert k as PyG's GIN convolution."""
    from torch_geometric.nn import DenseGINConv

    width = layer.second.weight.shape[-1]
    own = slice(width * k, width * (k + 1))
    first, norm, second = nn.Linear(n_in, width), nn.BatchNorm1d(width).eval(), nn.Linear(width, width)
    first.weight.data, first.bias.data = layer.first.weight.data[k].T, layer.first_bias.data[own]
    for name in ("weight", "bias", "running_mean", "running_var"):
        getattr(norm, name).data = getattr(layer.norm, name).data[own]
    second.weight.data, second.bias.data = layer.second.weight.data[k].T, layer.second_bias.data[k, 0]
    update = nn.Module()
    update.forward = lambda x: second(norm(first(x).flatten(0, 1)).relu().unflatten(0, x.shape[:2]))
    return DenseGINConv(update, eps=layer.eps[k].item())


@pytest.mark.xdist_group("torch_geometric")
def test_every_expert_encodes_its_masked_graph_from_the_input_with_gin_layers_of_its_own():
    experts = moved(graph_ood.GraphExperts(P, 4, 3, n_layers=3, dropout=0.5))
    X, A = torch.randn(8, P, P, dtype=torch.float64), torch.rand(8, 4, P, P, dtype=torch.float64)
    regions = torch.rand(8, 4, P, dtype=torch.float64)
    pooled, scores = experts(X, A, regions)
    for k in range(4):
        H = X * regions[:, k, :, None]
        for layer, n_in in zip(experts.layers, (P, 3, 3), strict=True):
            H = as_gin(layer, k, n_in)(H, A[:, k]).relu()
        expected = H.mean(1)
        torch.testing.assert_close(pooled[:, k], expected)
        hidden = (expected @ experts.hidden.weight[k] + experts.hidden_bias[k]).relu()
        torch.testing.assert_close(scores[:, k], hidden @ experts.classify.weight[k] + experts.classify_bias[k])


def test_disco_masks_are_binary_and_distinct_in_training_and_probabilities_afterwards(disco, scans):
    seen = calls_of(disco.experts)
    out = in_training(disco, scans)
    (X, A, regions, _), strong = seen[0], select_strong_edges(scans)
    assert torch.equal(X, build_profiles(scans))
    assert A.shape == (8, 4, P, P)
    assert set(A.unique().tolist()) == {0.0, 1.0}
    assert not torch.equal(A, A.mT)  # directions are drawn one by one
    assert not (A * (1 - strong[:, None])).any()
    assert torch.equal(regions, ((A.sum(-1) + A.sum(-2)) > 0).double())
    assert torch.equal(regions, out.regions)
    for j in range(4):
        for k in range(j):
            assert (A[:, j] != A[:, k]).any()
    learns = torch.autograd.grad(out.expert_logit.sum(), disco.masks.weight)[0]
    assert (learns.abs().sum(1) > 0).all()  # straight through
    after = disco(scans)
    edges = scorer.list_edges(strong, SHARE)
    logit = disco.masks(disco.encoder(build_profiles(scans), strong), edges)
    torch.testing.assert_close(seen[1][1], scorer.scatter_edges(1 - (-logit.exp()).exp(), edges, P))
    assert torch.equal(after.logit, disco(scans).logit)


def test_nothing_but_masks_passes_from_the_whole_graph_to_the_experts(disco, scans):
    other = copy.deepcopy(disco)
    for p in other.encoder.parameters():
        p.data.add_(torch.randn(p.shape, dtype=p.dtype))
    assert not torch.allclose(disco(scans).logit, other(scans).logit)
    for network in (disco, other):
        network.masks.weight.data.zero_()
    assert torch.equal(disco(scans).logit, other(scans).logit)
    assert torch.equal(in_training(disco, scans).logit, in_training(other, scans).logit)


def by_root(z, alpha):
    """entmax of one vector, with its threshold from a root finder."""
    x = (alpha - 1) * z
    tau = optimize.brentq(
        lambda t: (np.maximum(x - t, 0) ** (1 / (alpha - 1))).sum() - 1, x.max() - 1, x.max(), xtol=1e-15, rtol=1e-15
    )
    return np.maximum(x - tau, 0) ** (1 / (alpha - 1))


@pytest.mark.parametrize("alpha", [1.05, 1.38, 1.5, 1.9])
@pytest.mark.parametrize("scale", [0.0, 0.3, 3.0, 50.0])
def test_entmax_and_its_gradient(alpha, scale):
    z = scale * torch.randn(6, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    p = graph_ood.entmax(z, alpha)
    np.testing.assert_allclose(p, [by_root(row, alpha) for row in z.numpy()], atol=1e-9)
    np.testing.assert_allclose(p.sum(-1), 1, rtol=1e-12)
    found = torch.func.vmap(torch.func.jacrev(lambda row: graph_ood.entmax(row, alpha)))(z)
    s = torch.where(p > 0, p.clamp_min(1e-300) ** (2 - alpha), torch.zeros_like(p))  # Peters et al. 2019, Prop. 2
    expected = torch.diag_embed(s) - s[:, :, None] * s[:, None, :] / s.sum(-1)[:, None, None]
    torch.testing.assert_close(found, expected, atol=1e-8, rtol=1e-6)
    torch.testing.assert_close(graph_ood.entmax(z + 7, alpha), p)


def test_the_gate_reads_confidence_entropy_energy_and_agreement():
    scores = 3 * torch.randn(8, 4, 2, dtype=torch.float64)
    found = graph_ood.describe_experts(scores)
    answers = torch.distributions.Categorical(logits=scores)
    torch.testing.assert_close(found[..., 0], answers.probs.amax(-1))
    torch.testing.assert_close(found[..., 1], answers.entropy())
    torch.testing.assert_close(found[..., 2], -scores.exp().sum(-1).log())
    for k in range(4):
        own = torch.distributions.Categorical(logits=scores[:, k])
        others = [torch.distributions.Categorical(logits=scores[:, j]) for j in range(4) if j != k]
        apart = [torch.distributions.kl_divergence(a, b) for o in others for a, b in ((own, o), (o, own))]
        torch.testing.assert_close(found[:, k, 3], -sum(apart) / 6)


def test_the_gate_standardises_over_the_batch_and_not_over_padding():
    scores = torch.randn(8, 4, 2, dtype=torch.float64)
    gate = graph_ood.ExpertGate(5, 1.38).double()
    inputs = calls_of(gate.score)
    shares = gate(scores, make_step(8, 0, torch.tensor([1.0] * 6 + [0.0] * 2)))
    flat = graph_ood.describe_experts(scores)[:6].flatten(0, 1).numpy()
    expected = (flat - flat.mean(0)) / flat.std(0)
    np.testing.assert_allclose(inputs[0][0][:6].detach().flatten(0, 1), expected, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(shares, graph_ood.entmax(inputs[0][1].squeeze(-1), 1.38))
    together, alone = gate(scores), gate(scores[:1])
    torch.testing.assert_close(together[:1], alone)  # at inference a scan does not depend on others


def test_disco_answers_with_the_gated_sum_of_its_experts(disco, scans):
    gate, experts = calls_of(disco.gate), calls_of(disco.experts)
    out = disco(scans)
    pooled, scores = experts[0][-1]
    torch.testing.assert_close(out.logit, (gate[0][1] * (scores[..., 1] - scores[..., 0])).sum(-1))
    assert torch.equal(out.representation, pooled.flatten(1))
    training = in_training(disco, scans)
    through_gate = torch.autograd.grad(
        training.shares[:, 0].sum(), [disco.experts.classify.weight, disco.masks.weight], allow_unused=True
    )
    assert through_gate == (None, None)  # the gate looks at answers and does not change them


def test_constant_masks_cost_nothing_and_have_a_gradient():
    edges = scorer.list_edges(select_strong_edges(graphs()), SHARE)
    constant = torch.ones(8, 4, edges.real.shape[1], dtype=torch.float64).requires_grad_()
    cost = graph_ood.excess_correlation(constant, edges.real, 0.0)
    assert not cost.any()
    assert torch.isfinite(torch.autograd.grad(cost.sum(), constant)[0]).all()


def made_output(seed=0, K=4):
    g = torch.Generator().manual_seed(seed)
    edges = scorer.list_edges(select_strong_edges(graphs()), SHARE)
    answers = torch.randn(8, K, dtype=torch.float64, generator=g)
    shares = torch.rand(8, K, dtype=torch.float64, generator=g)
    shares[0, 1] = 0  # entmax leaves experts out
    shares = shares / shares.sum(-1, keepdim=True)
    mask = (torch.rand(8, K, edges.real.shape[1], dtype=torch.float64, generator=g) < 0.6).double()
    regions = (torch.rand(8, K, P, dtype=torch.float64, generator=g) < 0.7).double()
    return graph_ood.DiSCOOutput((shares * answers).sum(-1), answers, answers, shares, mask, regions, edges.real)


def hinge_of_mean_correlation(masks, tau):
    """A mask that keeps everything, or nothing, has no correlation with others."""
    pairs = [(a, b) for j, a in enumerate(masks) for b in masks[:j]]
    corr = [abs(np.corrcoef(a, b)[0, 1]) if a.std() and b.std() else 0.0 for a, b in pairs]
    return max(0.0, np.mean(corr) - tau)


def expected_disco(out, s, warm):
    """Loss of four real scans, term by term; the second site pads."""
    K, total, mean_share, mean_first, rate_terms, weights = 4, 0.0, np.zeros(4), np.zeros(4), np.zeros(4), np.zeros(4)
    for i, y in enumerate([0, 0, 1, 1]):
        z, p = out.expert_logit[i].numpy(), out.shares[i].numpy()
        ce = np.log1p(np.exp(-z if y else z))
        routing = np.full(K, 1 / K) if warm else p
        total += routing @ ce / 4
        weights += routing / 4
        masks = out.mask[i][:, out.real[i].bool()].numpy()
        rate_terms += (masks.mean(1) - s.keep) ** 2 / 4
        correlated = [hinge_of_mean_correlation(m, s.correlation) for m in (masks, out.regions[i].numpy())]
        total += s.diversity * np.mean(correlated) / 4
        q = special.softmax(-ce / s.teacher_temperature)
        total += s.gate * (special.rel_entr(p, q).sum() + s.sparsity * special.entr(p).sum()) / 4
        mean_share += p / 4
        mean_first += p**5 / (p**5).sum() / 4
    uneven_use, uneven_first = (stats.entropy(np.full(K, 1 / K), u) for u in (mean_share, mean_first))
    total += s.gate * (s.balance * uneven_use + s.first_choice * uneven_first)
    return total + s.keep_weight * weights @ rate_terms


@pytest.mark.parametrize("seed", [0, 1])
def test_disco_loss_has_all_its_terms(seed, scans):
    s = DiSCOSettings(
        experts=4,
        keep=0.4,
        diversity=0.7,
        gate=0.3,
        sparsity=0.2,
        balance=0.5,
        first_choice=0.9,
        correlation=0.05,
        keep_weight=2.0,
    )
    method, out = DiSCO(s), made_output(seed)
    batch = in_batch(scans, n_sites=2, padding=1)
    warm, after = method.stages()
    assert (warm.selectable, after.selectable) == (False, True)
    assert method.loss(out, batch._replace(stage=warm)).item() == pytest.approx(expected_disco(out, s, True), rel=1e-6)
    assert method.loss(out, batch._replace(stage=after)).item() == pytest.approx(
        expected_disco(out, s, False), rel=1e-6
    )


def slope_of(settings, name):
    """Gradient of the loss by a part of the output."""
    method, out = DiSCO(settings), made_output()
    leaf = getattr(out, name).clone().requires_grad_()
    loss = method.loss(out._replace(**{name: leaf}), in_batch(graphs())._replace(stage=method.stages()[1]))
    return torch.autograd.grad(loss, leaf)[0]


def test_the_teacher_of_the_gate_is_not_taught():
    found, out = slope_of(DiSCOSettings(experts=4, gate=1.0), "expert_logit"), made_output()
    label = torch.tensor([0.0, 0, 1, 1] * 2, dtype=torch.float64)[:, None]
    torch.testing.assert_close(found, out.shares * (out.expert_logit.sigmoid() - label) / 8)


def test_keep_rates_do_not_move_the_gate():
    """The gate would otherwise prefer experts that keep the right number of edges to those that are right."""
    plain = DiSCOSettings(experts=4, keep_weight=0.0, gate=0.0, diversity=0.0)
    gradients = [slope_of(dataclasses.replace(plain, keep_weight=weight), "shares") for weight in (0.0, 5.0)]
    assert torch.equal(*gradients)

"""XG-GNN against torch's layers, loops over sites of the published formulas, and a plain look ahead with Adam."""

import itertools
from collections import Counter
from functools import partial

import numpy as np
import pytest
import torch
from contract_cohorts import small, split, tiny
from steps import draw_connectomes, equal_cells, make_batch, make_step
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from brio.connectome import Connectomes, fill_dead
from brio.methods import make_method
from brio.methods.brain import xggnn
from brio.methods.brain.deci import CourseEncoder, LinearConvolutions, repeat_for_windows, split_windows
from brio.methods.brain.xggnn import split_episode
from brio.training import InputShape, Run, RunState, Scans
from brio.training.stack import Stack

P, T = 7, 60
f64 = torch.float64


def some_scans(n, seed=0, n_rois=P, n_frames=T):
    A, alive = draw_connectomes(n, n_rois, seed=seed)
    bold = torch.randn(n, n_frames, n_rois, generator=torch.Generator().manual_seed(seed), dtype=f64).cumsum(1)
    bold = (bold - bold.mean(1, keepdim=True)) / bold.std(1, keepdim=True)
    no_mean = RunState.from_learned(mean=torch.zeros(n_rois, n_rois, dtype=f64))
    return Scans.of(A / 3, alive)._replace(bold=bold, state=no_mean)


# --- courses ---------------------------------------------------------------------------------------------------------


class Plain(nn.Module):
    """Convolutions and batch norms one after the other, as torch has them."""

    def __init__(self, folded: LinearConvolutions) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i, w in enumerate(folded.weights):
            conv = nn.Conv1d(w.shape[1], w.shape[0], w.shape[2], stride=1 if i else 2)
            conv.weight.data = w.data.clone()  # its bias stays: the norm takes it out, now and in its running mean
            norm = nn.BatchNorm1d(w.shape[0])
            norm.weight.data, norm.bias.data = folded.scales[i].data.clone(), folded.shifts[i].data.clone()
            norm.running_mean += conv.bias.data
            layers += [conv, norm]
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)


def folded_and_plain():
    torch.manual_seed(0)
    folded = LinearConvolutions((6, 5, 4), (4, 8, 3)).double()
    for p in itertools.chain(folded.scales, folded.shifts):
        p.data += 0.5 * torch.randn_like(p)
    return folded, Plain(folded).double()


def applied(folded, x, step=None):
    kernel, offset = folded(x, step)
    return x.transpose(1, 2).unfold(-1, kernel.shape[-1], 2) @ kernel.T + offset  # [B, P, positions, channels]


def test_folded_convolutions_are_the_layers_one_after_the_other():
    folded, plain = folded_and_plain()
    for seed in range(3):
        x = some_scans(5, seed).bold * (1 + seed) + seed
        found = applied(folded, x, make_step(5))
        expected = plain(x.transpose(1, 2).reshape(5 * P, 1, T)).unflatten(0, (5, P)).transpose(2, 3)
        torch.testing.assert_close(found, expected)
    target = torch.randn_like(found)
    for out in (found, expected):
        (out * target).sum().backward()
    for i, layer in enumerate(plain.layers[::2]):
        torch.testing.assert_close(folded.weights[i].grad, layer.weight.grad)
    for i, norm in enumerate(plain.layers[1::2]):
        torch.testing.assert_close(folded.scales[i].grad, norm.weight.grad)
        mean = norm.running_mean - plain.layers[2 * i].bias.detach()
        torch.testing.assert_close(getattr(folded, f"running_mean_{i}"), mean)
        torch.testing.assert_close(getattr(folded, f"running_var_{i}"), norm.running_var)
    plain.eval()
    x = some_scans(3, 9).bold
    expected = plain(x.transpose(1, 2).reshape(3 * P, 1, T)).unflatten(0, (3, P)).transpose(2, 3)
    torch.testing.assert_close(applied(folded, x), expected)


def test_embeddings_are_pooled_convolutions_of_frames_normalised_over_rois():
    torch.manual_seed(2)
    net = CourseEncoder(100, 8, 4).double()
    assert (net.pool, net.n_pools) == (16, 2)
    plain = Plain(net.convolutions).double()
    scans = some_scans(4, n_frames=100)
    alive = scans.alive.clone()
    alive[1, 3] = False
    bold = scans.bold.clone()
    bold[1, :, 3] = 0
    found = net(bold, alive, make_step(4))
    x = F.instance_norm(bold)  # frames as channels: mean and variance over ROIs
    x[1] = 0
    x[1][:, alive[1]] = F.instance_norm(bold[1:2, :, alive[1]])[0]
    y = F.max_pool1d(plain(x.transpose(1, 2).reshape(4 * P, 1, 100)), 16)
    torch.testing.assert_close(found, net.embed(y.flatten(1)).unflatten(0, (4, P)))


@pytest.mark.parametrize("n_frames", [8, 9, 15, 40, 63])
def test_short_windows_have_shorter_kernels(n_frames):
    net = CourseEncoder(n_frames, 8, 4).double()
    out = net(some_scans(3, n_frames=n_frames).bold, torch.ones(3, P), make_step(3))
    assert out.shape == (3, P, 8)
    assert out.isfinite().all()


# --- network ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("published", [False, True])
def test_the_learned_connectome_is_a_product_of_attended_values(published):
    torch.manual_seed(3)
    learner = xggnn.ConnectomeLearner(8, 4, published).double()
    x = torch.randn(3, P, 8, dtype=f64)

    def heads(layer):
        return layer(x).reshape(3, P, 4, 2).permute(0, 2, 1, 3)

    value = learner.key if published else learner.value  # the published code reads its values off the keys
    attended = F.scaled_dot_product_attention(heads(learner.query), heads(learner.key), heads(value), scale=8**-0.5)
    v = attended.permute(0, 2, 1, 3).reshape(3, P, 8) + (0 if published else x)
    torch.testing.assert_close(learner(x), torch.einsum("buk,bvk->buv", v, v))
    assert any(name.startswith("value") for name, _ in learner.named_parameters()) is not published


def trained_network(n_rois=P, n_frames=T, **values):
    torch.manual_seed(4)
    s = xggnn.XGSettings(**{"bold_frames": T, "bold_windows": 1, "dropout": 0.0} | values)
    net = xggnn.XGNetwork(InputShape(n_rois, 3, n_frames), s).double()
    mean = torch.zeros(n_rois, n_rois, dtype=f64)
    net(some_scans(8, 5, n_rois, n_frames)._replace(state=RunState.from_learned(mean=mean)), make_step(8))
    return net


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("windows", [1, 3])
def test_profiles_are_updated_under_the_connectome_learned_from_all_windows(published, windows):
    net = trained_network(published=published, bold_frames=T // windows, bold_windows=windows)
    scans = some_scans(3)
    embedded = [net.courses(part, scans.alive) for part in scans.bold.split(T // windows, 1)]
    m = net.learner((sum(embedded) / windows).softmax(-1))

    def run(layers, x):
        for layer in layers:
            x = layer(x)
        return x

    def update(x):
        if published:
            return torch.stack([m[:, u].sum(-1, keepdim=True) * x[:, u] for u in range(P)], 1)
        return torch.stack([x[:, u] + sum(m[:, u, v, None] * x[:, v] for v in range(P)) / P for u in range(P)], 1)

    x = run(net.third, update(run(net.second, update(run(net.first, update(scans.A))))))
    x = (x - net.norm.running_mean[:, None]) / (net.norm.running_var[:, None] + 1e-5).sqrt()
    score = net.classify(net.read(x.flatten(1)))
    out = net(scans)
    if published:  # cross-entropy of two sigmoids is that of one logit, their difference
        label = torch.tensor([0, 1, 1])
        expected = F.cross_entropy(score.sigmoid(), label)
        torch.testing.assert_close(F.binary_cross_entropy_with_logits(out.logit, label.to(f64)), expected)
    else:
        torch.testing.assert_close(out.logit, score.squeeze(-1))
    assert out.learned.shape[1] == 0
    # the connectome is learned from BOLD: other courses, another answer
    other = scans._replace(bold=some_scans(3, 8).bold)
    assert not torch.allclose(net(other).logit, out.logit)


def test_windows_count_as_further_scans_in_batch_statistics():
    torch.manual_seed(5)
    one, two = (CourseEncoder(30, 8, 4).double() for _ in range(2))
    two.load_state_dict(one.state_dict())
    scans = some_scans(4)
    windows = split_windows(scans.bold, 2)
    alive = repeat_for_windows(scans.alive, 2)
    real = torch.tensor([1.0, 1, 1, 0], dtype=f64)
    as_windows = one(windows, alive, make_step(4, real=real))
    as_scans = two(windows, alive, make_step(8, real=real.repeat_interleave(2)))
    torch.testing.assert_close(as_windows, as_scans)
    for name, value in one.state_dict().items():
        torch.testing.assert_close(value, two.state_dict()[name], msg=name)


# --- episodes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 5, 13])
def test_episodes_split_the_source_sites_in_half(n):
    seen = Counter()
    for k in range(200):
        draw = torch.rand(n, generator=torch.Generator().manual_seed(k))
        train, test = split_episode(draw, torch.ones(n))
        assert int(train.sum()) == max(1, n // 2)
        assert torch.equal(test, 1 - train) if n > 1 else torch.equal(test, train)
        seen.update(np.flatnonzero(train).tolist())
        padded = torch.cat([draw, torch.rand(4)])
        again = split_episode(padded, torch.tensor([1.0] * n + [0.0] * 4))
        for whole, own in zip(again, (train, test), strict=True):
            assert torch.equal(whole[:n], own)
            assert (whole[n:] == 0).all()
    share = np.array([seen[e] for e in range(n)]) / 200
    assert np.abs(share - max(1, n // 2) / n).max() < 0.13


def test_partners_come_from_the_same_site_and_take_turns():
    site = torch.arange(5).repeat_interleave(8)
    partner = xggnn.pair_within_sites(torch.rand(40), site)
    assert torch.equal(site[partner], site)
    assert sorted(partner.tolist()) == list(range(40))
    assert (partner != torch.arange(40)).any()


def test_blends_are_blends_of_filled_connectomes_and_of_bold():
    scans = some_scans(4)
    alive = scans.alive.clone()
    alive[0, 2] = alive[1, 5] = alive[1, 6] = False
    both = (alive.unsqueeze(-1) & alive.unsqueeze(-2)).to(f64)
    mean = some_scans(1, 3).A[0]
    scans = scans._replace(A=scans.A * both, alive=alive, bold=scans.bold * alive.unsqueeze(1))
    scans = scans._replace(state=RunState.from_learned(mean=mean))
    partner, share = torch.tensor([1, 0, 3, 2]), torch.tensor([0.3, 0.8, 1.0, 0.5], dtype=f64)
    found, label = xggnn.mix_scans(scans, torch.tensor([0.0, 1, 0, 1], dtype=f64), partner, share)
    filled = scans.A * both + mean * (1 - both)
    for i, j in enumerate(partner):
        a = share[i]
        seen = fill_dead(found.A, found.alive, mean)[i]  # what the network makes of it
        torch.testing.assert_close(seen, a * filled[i] + (1 - a) * filled[j])
        torch.testing.assert_close(found.bold[i], a * scans.bold[i] + (1 - a) * scans.bold[j])
    torch.testing.assert_close(label, torch.tensor([0.7, 0.8, 0.0, 0.5], dtype=f64))


def test_difference_maps_entropy_and_dice_follow_the_formulas():
    E, n = 3, 2
    learned = torch.randn(E * 2 * n, P, P, dtype=f64, generator=torch.Generator().manual_seed(1))
    label = torch.rand(E * 2 * n, dtype=f64, generator=torch.Generator().manual_seed(2))  # of mixed scans
    label[: 2 * n] = torch.tensor([0.0] * n + [1.0] * n)
    S = xggnn.compute_difference_maps(learned, label, (E, 2, n))
    by_hand = []
    for m, y in zip(learned.reshape(E, -1, P, P).numpy(), label.reshape(E, -1).numpy(), strict=True):
        D = np.abs(np.average(m, axis=0, weights=y) - np.average(m, axis=0, weights=1 - y))
        z = (D - D.mean(0)) / D.std(0, ddof=1)  # each column
        by_hand.append(1 / (1 + np.exp(-z)))
    np.testing.assert_allclose(S, by_hand, atol=1e-6)
    for found, map_ in zip(xggnn.map_entropy(S), by_hand, strict=True):
        mean_log = np.log(map_).mean(1)
        assert float(found) == pytest.approx(float(-(np.exp(mean_log) * mean_log).sum()), abs=1e-6)
    gap = xggnn.dice_gap(S)
    for a, b in itertools.combinations(range(E), 2):
        dice = 2 * (by_hand[a] * by_hand[b]).sum() / (by_hand[a].sum() + by_hand[b].sum())
        assert float(gap[a, b]) == pytest.approx(1 - dice, abs=1e-6)
        itself = 2 * (by_hand[a] ** 2).sum() / (2 * by_hand[a].sum())
        assert float(gap[a, b]) != pytest.approx(1 - itself, abs=1e-4)  # what the published code computes


# --- the objective ---------------------------------------------------------------------------------------------------

SETTINGS = {"dropout": 0.0, "mixup": False, "sparsity": 0.03, "consistency": 0.5, "inner_rate": 0.01}


def batch_of(n_sites, pad=0, n=2, seed=0):
    return make_batch(some_scans((n_sites + pad) * 2 * n, seed), equal_cells(n_sites, pad))


def episode_of(key, batch):
    """Which sites the objective puts where under a key: the first draw of a step."""
    real = (batch.site_weight > 0).to(f64)
    return split_episode(make_step(len(batch.real), key, batch.real, batch.site).draw_uniform(real.shape, real), real)


def gradients(method, net, batch, key):
    params = {name: p.detach().clone().requires_grad_() for name, p in net.named_parameters()}
    buffers = {name: b.clone() for name, b in net.named_buffers()}

    def call(params, scans, step):
        return functional_call(net, params | buffers, (scans, step))

    batch = batch._replace(step=make_step(len(batch.real), key, batch.real, batch.site))
    loss = method.objective(call, params, batch)
    loss.backward()
    return loss.detach(), {name: p.grad for name, p in params.items()}, buffers


def plain_episode(net, batch, train, test, s):
    """One episode without vmap or torch.func: torch's Adam takes the step ahead, autograd does the rest."""
    start = {name: p.detach().clone() for name, p in net.state_dict().items()}
    sites = range(len(train))

    def rows(e):
        return slice(e * 4, e * 4 + 4)

    def site_loss(out, e):
        return 2 * F.binary_cross_entropy_with_logits(out.logit[rows(e)], batch.label[rows(e)])

    published = s.get("published", False)
    adam = torch.optim.Adam(net.parameters(), lr=s["inner_rate"])
    out = net(batch.scans, make_step(len(batch.real), real=train[batch.site]))
    sum(site_loss(out, e) for e in sites if train[e]).backward()
    adam.step()
    net.zero_grad()
    for name, b in net.named_buffers():
        b.copy_(start[name])
    out = net(batch.scans, make_step(len(batch.real), real=test[batch.site]))
    chosen = [e for e in sites if test[e]]
    loss = sum(site_loss(out, e) for e in chosen)
    maps = {e: xggnn.compute_difference_maps(out.learned[rows(e)], batch.label[rows(e)], (1, 2, 2)) for e in chosen}
    loss = loss + s["sparsity"] * sum(xggnn.map_entropy(maps[e])[0] for e in chosen)
    for a, b in itertools.combinations(chosen, 2):
        x, y = maps[a].flatten(), maps[b].flatten()
        if published:  # the published code compares one map of a pair, drawn at random, with itself
            gaps = [1 - 2 * (z @ z) / (z.sum() + z.sum()) for z in (x, y)]
            loss = loss + s["consistency"] * sum(gaps) / 2
        else:
            loss = loss + s["consistency"] * (1 - 2 * (x @ y) / (x.sum() + y.sum()))
    loss.backward()
    return loss.detach(), {name: p.grad for name, p in net.named_parameters()}, dict(net.named_buffers())


@pytest.mark.parametrize("name", ["xg-gnn", "xg-gnn-published"])
@pytest.mark.parametrize(("n_sites", "pad", "key"), [(4, 0, 3), (5, 0, 8), (3, 2, 1), (2, 0, 5)])
def test_the_objective_is_first_order_maml_over_an_episode(name, n_sites, pad, key):
    method, batch = make_method(name, SETTINGS), batch_of(n_sites, pad)
    published = method.settings.published
    loss, slope, buffers = gradients(method, trained_network(published=published), batch, key)
    train, test = episode_of(key, batch)
    network, s = trained_network(published=published), SETTINGS | {"published": published}
    expected = plain_episode(network, batch, train, test, s)
    torch.testing.assert_close(loss, expected[0])
    for name in slope:
        torch.testing.assert_close(slope[name], expected[1][name], atol=1e-7, rtol=1e-5, msg=name)
    for name in buffers:  # statistics follow the second pass, once
        torch.testing.assert_close(buffers[name], expected[2][name], msg=name)


def test_blends_stay_inside_a_site_and_reach_the_loss():
    # without the look ahead, nothing of the meta-training sites reaches the meta-test sites
    batch, key = batch_of(4), 3
    plain, blended = (
        gradients(make_method("xg-gnn", SETTINGS | {"mixup": m}), trained_network(), batch, key)[0]
        for m in (False, True)
    )
    assert not torch.allclose(plain, blended)
    train, _ = episode_of(key, batch)
    swap = train[batch.site].bool().view(-1, 1, 1)
    noisy = batch._replace(scans=batch.scans._replace(A=torch.where(swap, some_scans(16, 77).A, batch.scans.A)))
    method = make_method("xg-gnn", SETTINGS | {"mixup": True, "inner_rate": 0.0})
    a, b = (gradients(method, trained_network(), x, key)[0] for x in (batch, noisy))
    torch.testing.assert_close(a, b)


def test_the_published_maps_count_mixed_scans_by_their_own_label(monkeypatch):
    labels, compute = {}, xggnn.compute_difference_maps

    def record(name, learned, label, cells):
        labels[name] = label
        return compute(learned, label, cells)

    for name in ("xg-gnn", "xg-gnn-published"):
        monkeypatch.setattr(xggnn, "compute_difference_maps", partial(record, name))
        method = make_method(name, SETTINGS | {"mixup": True})
        gradients(method, trained_network(published=method.settings.published), batch_of(3), 1)
    assert set(labels["xg-gnn-published"].tolist()) == {0.0, 1.0}
    assert len(set(labels["xg-gnn"].tolist())) > 2


def test_scans_are_scored_under_weights_that_did_not_look_ahead():
    # a tiny rate with huge looks ahead: the weights stay where they began
    graphs = Connectomes(tiny(), dtype=f64)
    method = small("xg-gnn", learning_rate=1e-9, weight_decay=0.0, inner_rate=0.5)
    run = Run(split(tiny(), [1, 2, 3], [4, 5], [6]), 0)
    start = Stack.build(method, graphs, [run])
    (fitted,) = method.fit(graphs, [run])
    for name, p in start.params.items():
        torch.testing.assert_close(fitted.parameters[name], p[0].detach(), atol=1e-6, rtol=0, msg=name)

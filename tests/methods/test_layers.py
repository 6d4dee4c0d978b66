"""Layers and plain networks against PyTorch Geometric and PyTorch; random numbers of a step, alone and in a stack."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from scipy import stats
from steps import draw_connectomes, make_step, moved
from torch import nn
from torch.nn import functional as F

from brio.connectome import edge_cut
from brio.methods.gnn import GATNetwork, GATSettings, GCNNetwork, GCNSettings, GINNetwork, GINSettings
from brio.methods.layers import BatchNorm, Dropout, GATLayer, GINLayer, LayerNorm, Linear, linear
from brio.methods.linear.base import vectorise_fc
from brio.methods.mlp import MLPNetwork, MLPSettings
from brio.training import InputShape, RunState, Scans

KEY = torch.tensor(12345)

pytestmark = pytest.mark.usefixtures("in_double")


def close(a, b):
    torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-10)


def graphs(B=3, P=7, d=5, share=0.4):
    """Node states and symmetric non-negative weights without self-loops; the first ROI of the first graph is alone."""
    A = torch.rand(B, P, P) * (torch.rand(B, P, P) < share)
    A = (A + A.mT).tril(-1)
    A = A + A.mT
    A[0, 0] = A[0, :, 0] = 0
    return torch.randn(B, P, d), A


# layers of graphs
def test_gat_drops_attention_and_nothing_else():
    H, A = graphs()
    layer = GATLayer(5, 4, 2, True, 0.4)
    dropped = layer(H, A, make_step(3, KEY))
    keep = (make_step(3, KEY).draw_uniform((3, 2, 7, 7), H) >= 0.4) / 0.6
    x = (H @ layer.weight.T).unflatten(-1, (2, 4))
    expected = torch.zeros(3, 7, 2, 4)
    for b, h, u in itertools.product(range(3), range(2), range(7)):
        heard = [v for v in range(7) if v == u or A[b, u, v] > 0]
        score = [x[b, u, h] @ layer.receive[h] + x[b, v, h] @ layer.send[h] for v in heard]
        weight = nn.functional.leaky_relu(torch.stack(score), 0.2).softmax(0)
        expected[b, u, h] = sum(w * keep[b, h, u, v] * x[b, v, h] for w, v in zip(weight, heard, strict=True))
    close(dropped, expected.flatten(-2))


# batch norm
@pytest.mark.parametrize("shape", [(6, 4), (6, 5, 4), (6, 3, 2, 4)])
def test_batch_norm_is_that_of_torch(shape):
    ours, theirs = BatchNorm(4), nn.BatchNorm1d(4)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        nn.init.normal_(p)
        q.data = p.data.clone()
    target = torch.randn(shape)
    for _ in range(3):
        x = (2 * torch.randn(shape) + 1).requires_grad_()
        y = x.detach().clone().requires_grad_()
        out = ours(x, make_step(6, KEY))
        expected = theirs(y.flatten(0, -2)).reshape(shape)
        close(out, expected)
        (out * target).sum().backward()
        (expected * target).sum().backward()
        close(x.grad, y.grad)
        close(ours.weight.grad, theirs.weight.grad)
        close(ours.running_mean, theirs.running_mean)
        close(ours.running_var, theirs.running_var)
    theirs.eval()
    close(ours(x), theirs(x.flatten(0, -2)).reshape(shape))


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("shape", [(4,), (5, 4)])
def test_batch_norm_does_not_see_what_pads_the_stack_in_passes_that_lie_end_to_end(shape, passes):
    x, real = torch.randn(passes, 6, *shape), torch.tensor([1.0, 1, 1, 1, 0, 0])
    x[:, 4:] *= 100
    ours, theirs = BatchNorm(4), nn.BatchNorm1d(4)
    out = ours(x.flatten(0, 1), make_step(6, KEY, real)).unflatten(0, (passes, 6))
    close(out[:, :4].flatten(0, -2), theirs(x[:, :4].flatten(0, -2)))
    close(ours.running_mean, theirs.running_mean)
    close(ours.running_var, theirs.running_var)


def test_a_look_ahead_leaves_statistics_alone():
    norm, x = BatchNorm(4), torch.randn(6, 4)
    ahead = norm(x, make_step(6, KEY, update_statistics=False))
    assert torch.equal(norm.running_mean, torch.zeros(4))
    assert torch.equal(norm.running_var, torch.ones(4))
    close(norm(x, make_step(6, KEY)), ahead)
    assert not torch.equal(norm.running_mean, torch.zeros(4))


# random numbers of a step
def drawn(*shape, key=12345, skip=0, dtype=torch.float64):
    step = make_step(shape[0], key)
    for _ in range(skip):
        step.draw_uniform((1,), torch.zeros(1))
    return step.draw_uniform(shape, torch.zeros(1, dtype=dtype)).flatten().numpy()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("key", [0, 1, 12345, -(2**62)])
def test_numbers_are_uniform(key, dtype):
    u = drawn(200, 300, key=key, dtype=dtype).astype(float)
    assert stats.kstest(u, "uniform").pvalue > 1e-3
    assert stats.kstest(u[:300], "uniform").pvalue > 1e-3
    low = (u * 2**23).astype(np.int64) % 256  # low bits too
    assert stats.chisquare(np.bincount(low, minlength=256)).pvalue > 1e-3


def test_numbers_lie_strictly_between_zero_and_one_in_single_precision():
    # rounding must make none of them 0 or 1, whose logits are infinite; it takes many numbers to meet the outermost
    u = drawn(1 << 23, key=1, dtype=torch.float32)
    assert 0 < u.min() < 2.0**-22
    assert 1 > u.max() > 1 - 2.0**-22


def test_draws_are_independent():
    n = 40000
    draws = {
        "first": drawn(n),
        "second of the step": drawn(n, skip=1),
        "third of the step": drawn(n, skip=2),
        "next step": drawn(n, key=12346),
        "another step": drawn(n, key=12345 << 32),
        "shifted by one": np.roll(drawn(n), 1),
        "shifted by a row": np.roll(drawn(n), 116),
    }
    for (a, x), (b, y) in itertools.combinations(draws.items(), 2):
        assert abs(np.corrcoef(x, y)[0, 1]) < 4 / np.sqrt(n), (a, b)
        table = np.histogram2d(x, y, bins=16, range=[[0, 1], [0, 1]])[0]
        assert stats.chisquare(table.ravel()).pvalue > 1e-4, (a, b)


def test_a_step_draws_the_same_numbers_again():
    assert np.array_equal(drawn(50, 3), drawn(50, 3))
    assert not np.array_equal(drawn(50, 3), drawn(50, 3, skip=1))


def test_what_pads_the_stack_moves_no_number():
    assert np.array_equal(drawn(50, 4, 3)[: 30 * 12], drawn(30, 4, 3))


@pytest.mark.parametrize("shape", [(6, 4, 3), (6,), (1,), ()])
def test_a_stack_draws_the_numbers_of_its_runs(shape):
    keys = torch.tensor([5, -7, 2**60])
    like = torch.zeros(1)

    def two(key):
        step = make_step(6, key)
        return step.draw_uniform(shape, like), step.draw_uniform(shape, like)

    first, second = torch.vmap(two)(keys)
    for r, key in enumerate(keys):
        alone = two(key)
        assert torch.equal(first[r], alone[0])
        assert torch.equal(second[r], alone[1])
    assert len(set(torch.stack([first, second]).reshape(6, -1)[:, 0].tolist())) == 6


def test_inference_draws_nothing_whatever_the_mode_of_the_module():
    x = torch.randn(6, 7, 5)
    _, A = graphs(6)
    for layer, more in ((Dropout(0.5), ()), (GATLayer(5, 4, 2, True, 0.4), (A,)), (GINLayer(5, 4), (A,))):
        held = {name: t.clone() for name, t in layer.named_buffers()}
        expected = layer.eval()(x, *more)
        assert torch.equal(layer.train()(x, *more), expected)
        assert all(torch.equal(t, held[name]) for name, t in layer.named_buffers())
        assert not torch.allclose(layer.eval()(x, *more, make_step(6, KEY)), expected)


# dropout
def test_dropout_drops_its_share_and_keeps_the_mean():
    layer, x = Dropout(0.3), torch.ones(200, 300)
    step = make_step(200, KEY)
    once, again = layer(x, step), layer(x, step)
    dropped = float((once == 0).double().mean())
    assert stats.binomtest(round(dropped * x.numel()), x.numel(), 0.3).pvalue > 1e-3
    close(once[once != 0], torch.full_like(once[once != 0], 1 / 0.7))
    assert not torch.equal(once, again)
    both = float(((once == 0) & (again == 0)).double().mean())
    assert both == pytest.approx(0.09, abs=4 * np.sqrt(0.09 * 0.91 / x.numel()))
    assert torch.equal(layer(x), x)
    step = make_step(200, KEY)
    assert torch.equal(Dropout(0.0)(x, step), x)
    assert torch.equal(layer(x, step), once)  # a share of 0 draws nothing


# random order of the batch
def one_order(key, real):
    return make_step(len(real), key, real).draw_permutation()


def orders(n, real):
    return torch.vmap(one_order, in_dims=(0, None))(torch.arange(n), real)


def test_every_order_of_the_batch_is_equally_likely():
    found = orders(6000, torch.ones(4))
    assert (found.sort(1).values == torch.arange(4)).all()
    number = (found * torch.tensor([64, 16, 4, 1])).sum(1)
    count = np.unique(number.numpy(), return_counts=True)[1]
    assert len(count) == 24
    assert stats.chisquare(count).pvalue > 1e-3


def test_padding_stays_at_the_end_and_moves_nobody():
    real = torch.tensor([1.0, 1, 1, 1, 1, 0, 0])
    padded = orders(50, real)
    assert (padded[:, 5:].sort(1).values == torch.tensor([5, 6])).all()
    assert torch.equal(padded[:, :5], orders(50, torch.ones(5)))
    assert torch.equal(torch.stack([one_order(key, real) for key in torch.arange(50)]), padded)


def test_linear_in_groups_is_the_linear_layer():
    # the grouped way is taken on a GPU; its numbers and gradients are those of torch
    x = torch.randn(12, 5, 7, dtype=torch.float64, requires_grad=True)
    layer = Linear(7, 3).double()
    plain = F.linear(x, layer.weight, layer.bias)
    wanted = torch.autograd.grad(plain.square().sum(), (x, layer.weight, layer.bias))

    class Elsewhere(torch.Tensor):
        """A tensor that says it lies on another device."""

        @property
        def device(self):
            return torch.device("meta")

    found = linear(x.as_subclass(Elsewhere), layer.weight, layer.bias)
    torch.testing.assert_close(found.as_subclass(torch.Tensor), plain, atol=1e-12, rtol=0)
    given = torch.autograd.grad(found.square().sum(), (x, layer.weight, layer.bias))
    for a, b in zip(given, wanted, strict=True):
        torch.testing.assert_close(a.as_subclass(torch.Tensor), b, atol=1e-11, rtol=0)


@pytest.mark.parametrize("width", [5, 64])
def test_layer_normalisation_by_reductions_is_that_of_torch(width):
    layer = LayerNorm(width, eps=1e-3).double()
    with torch.no_grad():
        layer.weight.copy_(torch.randn(width))
        layer.bias.copy_(torch.randn(width))
    x = 3.0 + 2.0 * torch.randn(4, 7, width, dtype=torch.float64)
    torch.testing.assert_close(layer.normalise_by_reductions(x), torch.nn.LayerNorm.forward(layer, x))


P, B = 11, 6


def draw_scans() -> Scans:
    """Signed FC of six scans, one ROI of the third without signal, and a source mean."""
    A, alive = draw_connectomes(B, P, dead=[(2, 4)])
    (mean,), _ = draw_connectomes(1, P, seed=2)
    return Scans.of(A, alive)._replace(cut=edge_cut(A, 0.2), state=RunState.from_learned(mean=mean))


def plain_graphs(scans: Scans, mean: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Profiles and the strongest fifth of the edges, weighted by |FC|, one scan after the other."""
    X, W = scans.A.clone(), torch.zeros_like(scans.A)
    pairs = [(u, v) for u in range(P) for v in range(u + 1, P)]
    for b in range(B):
        for u, v in sorted(pairs, key=lambda e: -abs(float(scans.A[b][e])))[: round(0.2 * len(pairs))]:
            W[b, u, v] = W[b, v, u] = abs(scans.A[b, u, v])
        for u in range(P):
            for v in range(P):
                if not (scans.alive[b, u] and scans.alive[b, v]):
                    X[b, u, v] = mean[u, v]
    return X, W


def norm_of(ours: nn.Module, H: torch.Tensor, training: bool) -> torch.Tensor:
    """torch's batch norm with the weights of ours, over scans and ROIs."""
    theirs = nn.BatchNorm1d(H.shape[-1])
    theirs.load_state_dict(ours.state_dict(), strict=False)
    return theirs.train(training)(H.flatten(0, 1)).unflatten(0, H.shape[:2])


def gcn_by_pyg(net: GCNNetwork, X, W, training):
    from torch_geometric.nn import DenseGCNConv

    H = X
    for layer, norm in zip(net.layers, net.norms, strict=True):
        conv = DenseGCNConv(H.shape[-1], len(layer.weight))
        conv.lin.weight, conv.bias = layer.weight, layer.bias
        H = norm_of(norm, conv(H, W.clone()), training).relu()
    return H.mean(1) if net.readout == "mean" else H.flatten(1)


def gat_by_pyg(net: GATNetwork, X, W, training):
    from torch_geometric.nn import DenseGATConv

    H = X
    for i, layer in enumerate(net.layers):
        last = i == len(net.layers) - 1
        conv = DenseGATConv(H.shape[-1], layer.receive.shape[1], layer.heads, concat=not last)
        conv.lin.weight, conv.bias = layer.weight, layer.bias
        conv.att_dst.data, conv.att_src.data = layer.receive.data[None, None], layer.send.data[None, None]
        H = F.elu(conv(H, W.clone()))
    return H.mean(1)


def gin_by_pyg(net: GINNetwork, X, W, training):
    from torch_geometric.nn import DenseGINConv

    states = [X]
    for layer, norm in zip(net.layers, net.norms, strict=True):
        first, inner, _, second = layer.update
        received = DenseGINConv(nn.Identity(), float(layer.eps.detach()))(states[-1], (W > 0).double())
        updated = second(norm_of(inner, first(received), training).relu())
        states.append(norm_of(norm, updated, training).relu())
    read = states if net.readout == "every" else states[-1:]
    return torch.cat([H.sum(1) for H in read], -1) / P


QUIET = {"dropout": 0.0, "width": 6}
CASES = [
    (GCNNetwork, GCNSettings(**QUIET), gcn_by_pyg),
    (GCNNetwork, GCNSettings(**QUIET, layers=3, readout="concat"), gcn_by_pyg),
    (GATNetwork, GATSettings(**QUIET, attention_dropout=0.0, heads=3), gat_by_pyg),
    (GATNetwork, GATSettings(**QUIET, attention_dropout=0.0, heads=2, layers=3), gat_by_pyg),
    (GATNetwork, GATSettings(**QUIET, attention_dropout=0.0, heads=1, layers=1), gat_by_pyg),
    (GINNetwork, GINSettings(**QUIET), gin_by_pyg),
    (GINNetwork, GINSettings(**QUIET, layers=3, readout="last"), gin_by_pyg),
]


@pytest.mark.xdist_group("torch_geometric")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("kind", "settings", "by_pyg"), CASES)
def test_network_is_the_one_built_from_pyg(kind, settings, by_pyg, training):
    scans = draw_scans()
    net = moved(kind(InputShape(P, 1, 0), settings))
    expected = by_pyg(net, *plain_graphs(scans, scans.state.learned["mean"]), training)  # before the statistics move
    out = net(scans, make_step(B) if training else None)
    torch.testing.assert_close(out.representation, expected)
    torch.testing.assert_close(out.logit, F.linear(expected, net.classify.weight, net.classify.bias)[:, 0])


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (GCNNetwork, GCNSettings(dropout=0.5)),
        (GINNetwork, GINSettings(dropout=0.5)),
        (GATNetwork, GATSettings(dropout=0.5, attention_dropout=0.0)),
        (GATNetwork, GATSettings(dropout=0.0, attention_dropout=0.5)),
    ],
)
def test_states_and_attention_are_dropped_in_training_alone(kind, settings):
    scans = draw_scans()
    none = {name: 0.0 for name in ("dropout", "attention_dropout") if hasattr(settings, name)}
    nets = [kind(InputShape(P, 1, 0), s) for s in (settings, dataclasses.replace(settings, **none))]
    nets[1].load_state_dict(nets[0].state_dict())
    torch.testing.assert_close(*(net(scans).logit for net in nets))
    assert not torch.allclose(*(net(scans, make_step(B)).logit for net in nets))


@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_network_is_that_of_torch_on_the_entries_of_linear_models(norm, training):
    scans = draw_scans()
    net = MLPNetwork(InputShape(P, 1, 0), MLPSettings(width=7, norm=norm))
    x = torch.from_numpy(vectorise_fc(scans, scans.state.learned["mean"]))
    assert x.shape == (B, P * (P - 1) // 2)
    theirs = nn.Sequential(net.hidden, nn.BatchNorm1d(7) if norm else nn.Identity(), nn.ReLU()).train(training)
    hidden = theirs(x)
    if training:
        hidden = hidden * (make_step(B).draw_uniform((B, 7), x) >= 0.5) / 0.5
    out = net(scans, make_step(B) if training else None)
    torch.testing.assert_close(out.representation, hidden)
    torch.testing.assert_close(out.logit, net.classify(hidden)[:, 0])

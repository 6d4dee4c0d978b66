"""Layers against PyTorch Geometric and PyTorch; random numbers of a step, alone and in a stack."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from brio.methods.layers import (
    BatchNorm,
    Dropout,
    GATLayer,
    GINLayer,
    LayerNorm,
)
from brio.training import StepContext

KEY = torch.tensor(12345)


def step_of(real, key=KEY, **kwargs):
    """A step whose scans are all of one site; ``real`` is their number, or 0 for those that pad the stack."""
    real = torch.ones(real) if isinstance(real, int) else real
    return StepContext(key, real, torch.zeros(len(real), dtype=torch.long), **kwargs)


@pytest.fixture(autouse=True)
def _double():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


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
    dropped = layer(H, A, step_of(3))
    keep = (step_of(3).draw_uniform((3, 2, 7, 7), H) >= 0.4) / 0.6
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
        out = ours(x, step_of(6))
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


@pytest.mark.parametrize("shape", [(4,), (5, 4)])
def test_batch_norm_does_not_see_what_pads_the_stack(shape):
    alone, stacked = BatchNorm(4), BatchNorm(4)
    x, padding = torch.randn(6, *shape), 100 * torch.randn(3, *shape)
    expected = alone(x, step_of(6))
    out = stacked(torch.cat([x, padding]), step_of(torch.cat([torch.ones(6), torch.zeros(3)])))
    close(out[:6], expected)
    for name in ("running_mean", "running_var"):
        close(getattr(stacked, name), getattr(alone, name))
        assert not torch.equal(getattr(alone, name), getattr(BatchNorm(4), name))


def test_batch_norm_takes_several_passes_that_lie_end_to_end():
    x, real = torch.randn(2, 6, 4), torch.tensor([1.0, 1, 1, 1, 0, 0])
    ours, theirs = BatchNorm(4), nn.BatchNorm1d(4)
    out = ours(x.flatten(0, 1), step_of(real)).unflatten(0, (2, 6))
    close(out[:, :4].flatten(0, 1), theirs(x[:, :4].flatten(0, 1)))
    close(ours.running_var, theirs.running_var)


def test_a_look_ahead_leaves_statistics_alone():
    norm, x = BatchNorm(4), torch.randn(6, 4)
    ahead = norm(x, step_of(6, update_statistics=False))
    assert torch.equal(norm.running_mean, torch.zeros(4))
    assert torch.equal(norm.running_var, torch.ones(4))
    close(norm(x, step_of(6)), ahead)
    assert not torch.equal(norm.running_mean, torch.zeros(4))


# random numbers of a step


def drawn(*shape, key=12345, skip=0, dtype=torch.float64):
    step = step_of(shape[0], torch.tensor(key))
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
    u = drawn(1 << 24, key=1, dtype=torch.float32)
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
        step = step_of(6, key)
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
        assert not torch.allclose(layer.eval()(x, *more, step_of(6)), expected)


# dropout


def test_dropout_drops_its_share_and_keeps_the_mean():
    layer, x = Dropout(0.3), torch.ones(200, 300)
    step = step_of(200)
    once, again = layer(x, step), layer(x, step)
    dropped = float((once == 0).double().mean())
    assert stats.binomtest(round(dropped * x.numel()), x.numel(), 0.3).pvalue > 1e-3
    close(once[once != 0], torch.full_like(once[once != 0], 1 / 0.7))
    assert not torch.equal(once, again)
    both = float(((once == 0) & (again == 0)).double().mean())
    assert both == pytest.approx(0.09, abs=4 * np.sqrt(0.09 * 0.91 / x.numel()))
    assert torch.equal(layer(x), x)
    step = step_of(200)
    assert torch.equal(Dropout(0.0)(x, step), x)
    assert torch.equal(layer(x, step), once)  # a share of 0 draws nothing


# random order of the batch


def one_order(key, real):
    return step_of(real, key).draw_permutation()


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


def test_linear_in_groups_is_the_linear_layer(monkeypatch):
    # the grouped way is taken on a GPU; its numbers and gradients are those of torch
    from brio.methods import layers

    torch.manual_seed(0)
    x = torch.randn(12, 5, 7, dtype=torch.float64, requires_grad=True)
    layer = layers.Linear(7, 3).double()
    plain = torch.nn.functional.linear(x, layer.weight, layer.bias)
    wanted = torch.autograd.grad(plain.square().sum(), (x, layer.weight, layer.bias))

    class Elsewhere(torch.Tensor):
        """A tensor that says it lies on another device."""

        @property
        def device(self):
            return torch.device("meta")

    found = layers.linear(x.as_subclass(Elsewhere), layer.weight, layer.bias)
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

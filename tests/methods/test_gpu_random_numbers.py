"""Kernels of random numbers and dropout against the plain code: the same bits, compiled or interpreted."""

import pytest
import torch
from interpreted import DEVICE, GPU, between_nan, check_choice, choose_path, kernels_here
from steps import make_step

from brio.methods.layers import Dropout
from brio.training import random_numbers

KEYS = torch.tensor([3, -(2**62) + 17, 2**61 + 5])


@pytest.fixture(scope="module")
def twin():
    with kernels_here():
        from brio.training.gpu import random_numbers

        yield random_numbers


@pytest.fixture
def path(twin, monkeypatch):
    return choose_path(twin, random_numbers, "_gpu_twin", monkeypatch)


def by_both(path, compute):
    """The same by tensor operations and by kernels, and how many kernels that took."""
    path(False)
    plain = compute()
    launched = path(True)
    before = len(launched)
    return plain, compute(), len(launched) - before


def step_of(key):
    return make_step(2, key, torch.ones(2, device=DEVICE))


def drawn(shape, keys, shared=False):
    """Numbers of all runs."""

    def one(key, zero):
        return zero + step_of(key).draw_uniform(shape, zero)

    zeros = torch.zeros(len(keys), device=DEVICE)
    keys = keys.to(DEVICE)
    return torch.vmap(one, in_dims=(None if shared else 0, 0))(keys[0] if shared else keys, zeros)


@pytest.mark.parametrize("shape", [(), (1,), (7, 3), (1023,), (1024,), (5, 41, 13), (0, 4)])
@pytest.mark.parametrize(("runs", "shared"), [(1, False), (3, False), (3, True)])
def test_the_same_numbers_bit_for_bit(path, shape, runs, shared):
    plain, found, launched = by_both(path, lambda: drawn(shape, KEYS[:runs], shared))
    assert found.shape == (runs, *shape)
    assert found.dtype == torch.float32
    assert launched == 1
    assert torch.equal(found, plain)


def test_numbers_wrap_around_at_32_bits(twin):
    """The mixing function in 64-bit numbers, brought back to 32 bits at each step; keys at both ends."""
    keys = torch.tensor([[2**31 - 1, -(2**31)]], dtype=torch.int32, device=DEVICE)
    n = 4 * twin.BLOCK + 3
    h = torch.arange(n, dtype=torch.int64, device=DEVICE)

    def wrapped(h):
        return (h + 2**31) % 2**32 - 2**31

    def shift(h, bits):
        return (h % 2**32) >> bits

    h = wrapped(h * -1640531527 + 2**31 - 1)
    h = wrapped(wrapped(h ^ shift(h, 16)) * 2146121005)
    h = wrapped(wrapped(h ^ shift(h, 15) ^ -(2**31)) * -2073254261)
    h = wrapped(h ^ shift(h, 16))
    expected = ((h >> 9).double() + 0.5) / 2**23 + 0.5
    assert torch.equal(twin.uniform_from_keys(keys[0], (n,)).double(), expected)


def dropped(x, keys, p, shared):
    """Dropout of all runs, twice in one step, and the gradient of a weighted sum."""
    layer = Dropout(p)

    def one(x, key):
        step = step_of(key)
        return layer(layer(x.sin(), step), step)

    x = x.detach().requires_grad_()
    keys = keys.to(DEVICE)
    out = torch.vmap(one, in_dims=(0, None if shared else 0))(x, keys[0] if shared else keys)
    weight = torch.linspace(-1, 2, out.numel(), device=DEVICE).view(out.shape)
    return out.detach(), torch.autograd.grad((out * weight).sum(), x)[0]


@pytest.mark.parametrize(("p", "runs", "shared"), [(0.3, 1, False), (0.9, 3, False), (0.5, 3, True)])
def test_dropout_and_its_gradient(path, p, runs, shared):
    x = torch.randn(runs, 4, 37, 9, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    x[:, 0, 0] = torch.nan  # what is not a number stays so
    plain, found, launched = by_both(path, lambda: dropped(x, KEYS[:runs], p, shared))
    assert launched == 4  # two layers, there and back
    for mine, true in zip(found, plain, strict=True):
        assert torch.equal(mine == 0, true == 0)
        torch.testing.assert_close(mine, true, rtol=1e-6, atol=0, equal_nan=True)
    assert found[0][:, 0, 0].isnan().all()
    kept = (found[0] != 0).float().mean()
    assert abs(float(kept) - (1 - p) ** 2) < 0.06


def test_dropout_of_what_the_runs_share_and_of_views(path):
    x = torch.randn(9, 4, 37, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    layer = Dropout(0.4)

    def one(key, x):
        return layer(x.mT[1:], step_of(key))

    def compute():
        shared = torch.vmap(one, in_dims=(0, None))(KEYS.to(DEVICE), x)
        last = torch.vmap(one, in_dims=(0, 2))(KEYS.to(DEVICE), x[:, :, None, :3].permute(0, 1, 3, 2))
        return shared, last

    plain, found, _ = by_both(path, compute)
    for mine, true in zip(found, plain, strict=True):
        torch.testing.assert_close(mine, true, rtol=1e-6, atol=0)


def test_gradients_inside_vmap_and_of_gradients(path):
    """A look ahead takes its gradient inside of vmap (XG-GNN); second derivatives are there as well."""
    layer = Dropout(0.5)
    x = torch.randn(3, 60, generator=torch.Generator().manual_seed(1)).to(DEVICE)

    def loss(x, key):
        step = step_of(key)
        return layer(layer(x.square(), step).square(), step).sum() * step.draw_uniform((1,), x).sum()

    def compute():
        own = torch.vmap(torch.func.grad(loss))(x, KEYS.to(DEVICE))
        shared = torch.vmap(torch.func.grad(loss), in_dims=(0, None))(x, KEYS[0].to(DEVICE))
        second = torch.vmap(torch.func.grad(lambda x, key: torch.func.grad(loss)(x, key).sum()))(x, KEYS.to(DEVICE))
        y = x[0].detach().requires_grad_()
        (first,) = torch.autograd.grad(loss(y, KEYS[0].to(DEVICE)), y, create_graph=True)
        return own, shared, second, torch.autograd.grad(first.sum(), y)[0]

    plain, found, launched = by_both(path, compute)
    assert launched > 8
    for mine, true in zip(found, plain, strict=True):
        assert true.any()
        torch.testing.assert_close(mine, true, rtol=1e-5, atol=0)


def test_nothing_beside_the_tensors_is_read_or_written(twin, path, monkeypatch):
    monkeypatch.setattr(twin, "launch", between_nan(twin.launch))
    x = torch.ones(2, 1030, device=DEVICE)
    for compute in (lambda: dropped(x, KEYS[:2], 0.5, False)[0], lambda: drawn((1030,), KEYS[:2])):
        plain, found, launched = by_both(path, compute)
        assert launched
        assert torch.equal(found, plain)


def test_the_last_of_very_many_numbers(twin):
    """Numbers of several runs that 32 bits do not count; the interpreter sees few."""
    n = 2**30 + 7 if GPU else 2000
    if GPU and torch.cuda.mem_get_info()[0] < 60 << 30:
        pytest.skip("takes 50 GiB of GPU memory")
    keys = torch.tensor([[1, 2], [3, 4], [1, 2]], dtype=torch.int32, device=DEVICE)
    numbers = torch.vmap(lambda keys: twin.uniform_from_keys(keys, (n,)))(keys)
    assert torch.equal(numbers[2], numbers[0])
    assert not torch.equal(numbers[1, -50:], numbers[0, -50:])
    kept = torch.vmap(lambda x, keys: twin.drop_out(x, keys, 0.5))(torch.ones_like(numbers), keys)
    assert torch.equal(kept[2] == 2, numbers[2] >= 0.5)


def test_in_single_precision_on_a_gpu(twin, monkeypatch):
    check_choice(random_numbers._gpu_twin, twin, random_numbers, monkeypatch)

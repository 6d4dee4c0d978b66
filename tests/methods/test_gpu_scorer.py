"""Kernels that score edges against layers written out edge by edge: compiled on a GPU, else in Triton's interpreter."""

import functools

import interpreted
import pytest
import torch
from interpreted import DEVICE, GPU, LONG_INTERPRETED, TOLERANCE, error
from steps import make_step
from torch.func import functional_call

from brio.methods import make_method
from brio.methods.edges import scorer
from brio.methods.edges.scorer import EdgeBatchNorm, EdgeInstanceNorm, EdgeMLP, Edges, list_edges
from brio.training import random_numbers

NORMS = [EdgeInstanceNorm, EdgeBatchNorm]
KEYS = torch.tensor([3, 2**61 + 5])
N_IN = 6


@pytest.fixture(scope="module")
def twin():
    with interpreted.kernels_here():
        from brio.methods.edges.gpu import scorer

        yield scorer


@pytest.fixture
def path(twin, monkeypatch):
    monkeypatch.setattr(random_numbers, "_gpu_twin", lambda like: None)  # draws are those of the plain code
    return interpreted.choose_path(twin, scorer, "find_gpu_twin", monkeypatch)


def problem(R, B, P, share=0.4, seed=0):
    """States H [R, B, P, n_in] (float64) and edges; all graphs but the first have fewer edges than there is room."""
    g = torch.Generator().manual_seed(seed + P)
    pairs = P * (P - 1) // 2
    room = max(1, round(share * pairs))
    A = torch.zeros(R, B, P, P, dtype=torch.float64)
    for graph, a in enumerate(A.flatten(0, 1)):
        order = torch.randperm(pairs, generator=g)[: max(1, room - 2 * (graph % 3))]
        u, v = torch.triu_indices(P, P, 1)[:, order]
        a[u, v] = a[v, u] = 1
    H = torch.randn(R, B, P, N_IN, generator=g, dtype=torch.float64)
    return H.to(DEVICE), torch.vmap(functools.partial(list_edges, share=share))(A.to(DEVICE))


def networks(R, widths, norm, p, dtype):
    """An MLP without parameters, parameters and running statistics of R runs."""
    return interpreted.stack_networks(lambda: EdgeMLP(N_IN, widths, p, norm), R, dtype)


class Written(EdgeMLP):
    """The MLP over edges, layer by layer: nothing folded, every norm from the edges themselves."""

    def forward(self, H, edges, step=None):
        x = edges.gather(self.receiver(H), edges.receiver) + edges.gather(self.sender(H), edges.sender)
        for norm, linear in zip(self.norms, self.linears, strict=True):
            x = linear(self.dropped(self.normed(norm, x, edges.real, step).relu(), step))
        return x.squeeze(-1)

    def normed(self, norm, x, real, step):
        if isinstance(norm, EdgeInstanceNorm):
            n = real.sum(1).clamp_min(1)[:, None, None]
            mean = (real.unsqueeze(-1) * x).sum(1, keepdim=True) / n
            variance = (real.unsqueeze(-1) * (x - mean).square()).sum(1, keepdim=True) / n
            return (x - mean) / (variance + norm.eps).sqrt()
        mean, variance = norm.running_mean, norm.running_var
        if step is not None:
            counted = (real * step.real[:, None]).unsqueeze(-1)
            n = counted.sum()
            mean = (counted * x).sum((0, 1)) / n
            variance = (counted * (x - mean).square()).sum((0, 1)) / n
            norm.running_mean.mul_(0.9).add_(0.1 * mean.detach())
            norm.running_var.mul_(0.9).add_(0.1 * variance.detach() * n / (n - 1))
        return (x - mean) / (variance + norm.eps).sqrt() * norm.weight + norm.bias

    def dropped(self, x, step):
        if step is None or self.dropout.p == 0:
            return x
        return x * (step.draw_uniform(x.shape, x.float()) >= self.dropout.p) / (1 - self.dropout.p)


def scored(network, params, buffers, H, edges, keys, real, shared=(), training=True):
    """Scores of all runs, gradients of a weighted sum of those of edges, and running statistics after the pass."""
    H = H.detach().requires_grad_()
    weight = torch.randn(edges.real.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    one_seed = "seed" in shared

    def one(params, buffers, H, edges, key):
        step = make_step(len(real), key, real.to(H.dtype)) if training else None
        return functional_call(network, params | buffers, (H, edges, step), strict=True)

    dims = (0, 0, None if "states" in shared else 0, None if "edges" in shared else 0, None if one_seed else 0)
    keys = keys.to(DEVICE)
    found = torch.vmap(one, in_dims=dims)(params, buffers, H, edges, keys[0] if one_seed else keys)
    loss = (found * edges.real * weight.to(found)).sum()
    inputs = params | {"H": H}
    return found.detach(), dict(zip(inputs, torch.autograd.grad(loss, list(inputs.values())), strict=True)), buffers


def single(H, edges):
    return H.float(), edges._replace(real=edges.real.float())


def agree(path, R, B, P, widths, norm, p, training=True, padded=0, shared=(), tolerance=TOLERANCE):
    """Kernels in float32 against the layers written out in float64: scores, gradients, statistics."""
    H, edges = problem(R, B, P, share=0.8 if P == 5 else 0.4)  # the norm of a handful of edges is ill-conditioned
    if "states" in shared:
        H = H[0]
    if "edges" in shared:
        edges = Edges(*(t[0] for t in edges))
    real = (torch.arange(B) < B - padded).double().to(DEVICE)
    keys = KEYS[torch.arange(R) % 2]
    network, *state = networks(R, widths, norm, p, torch.float64)
    network.__class__ = Written
    true, true_gradient, true_buffers = scored(network, *state, H, edges, keys, real, shared, training)
    network, *state = networks(R, widths, norm, p, torch.float32)
    launched = path(True)
    before = len(launched)
    found, gradient, buffers = scored(network, *state, *single(H, edges), keys, real, shared, training)
    moments = 0 if norm is EdgeBatchNorm and not training else len(widths) - 1
    assert len(launched) - before == 2 * (len(widths) + moments)
    assert error(found, true) < tolerance
    size = max(float(g.norm()) for g in true_gradient.values())
    for name, value in gradient.items():
        difference = float((value.double() - true_gradient[name]).norm())
        # a bias before a norm has no gradient, but for rounding
        assert difference < 10 * tolerance * max(float(true_gradient[name].norm()), 1e-2 * size), name
    assert buffers.keys() == true_buffers.keys()
    for name, value in buffers.items():
        assert error(value, true_buffers[name]) < tolerance, name


def long(*case):
    return pytest.param(*case, marks=LONG_INTERPRETED)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    ("R", "B", "P", "widths", "p", "more"),
    [
        (2, 3, 5, (32, 8), 0.5, {}),
        long(1, 3, 5, (32, 8), 0.5, {}),
        long(2, 3, 5, (32, 8), 0.0, {}),
        long(2, 2, 20, (32, 8), 0.5, {}),
        (2, 1, 8, (12, 5, 3), 0.3, {}),  # other widths and depths
        long(2, 1, 8, (7,), 0.3, {}),
        long(2, 2, 12, (64, 32, 16), 0.3, {}),
        (1, 3, 8, (16, 8), 0.5, {"padded": 1}),
        (1, 2, 8, (32, 8), 0.5, {"training": False}),
        (2, 1, 8, (16, 8), 0.5, {"shared": ("seed", "edges", "states")}),
        *(long(2, 2, 8, (16, 8), 0.5, {"shared": (one,)}) for one in ("seed", "edges", "states")),
    ],
)
def test_kernels_compute_what_is_written_out(path, norm, R, B, P, widths, p, more):
    agree(path, R, B, P, widths, norm, p, **more)


@pytest.mark.parametrize(("block", "numbers", "P"), [((16, 3), 64, 12), long((32, 1), 512, 20), long((16, 3), 64, 20)])
def test_other_blocks(twin, path, monkeypatch, block, numbers, P):
    monkeypatch.setattr(twin, "BLOCK", twin.BLOCK | {"EDGES": block[0], "BLOCKS": block[1]})
    monkeypatch.setattr(twin, "NUMBERS", numbers)
    for norm in NORMS:
        agree(path, 1, 1, P, (16, 8), norm, 0.5)


@pytest.mark.parametrize(
    ("P", "h", "numbers", "blocks"),
    [(5, 3, 4096, 16), (20, 17, 512, 16), (20, 8, 128, 1), long(40, 8, 128, 3), long(130, 32, 4096, 16)],
)
def test_ends_of_edges_and_their_gradients(twin, monkeypatch, P, h, numbers, blocks):
    """Against incidence matrices in float64, over programs that share the edges and the ROIs of a graph."""
    monkeypatch.setattr(twin, "BLOCK", twin.BLOCK | {"BLOCKS": blocks})
    monkeypatch.setattr(twin, "NUMBERS", numbers)
    R, B = 2, 2
    _, edges = problem(R, B, P)
    g = torch.Generator().manual_seed(P)
    r, s = (torch.randn(R, B, P, h, generator=g, dtype=torch.float64).to(DEVICE).requires_grad_() for _ in range(2))
    weight = torch.randn(R, B, edges.receiver.shape[-1], h, generator=g, dtype=torch.float64).to(DEVICE)
    rois = torch.arange(P, device=DEVICE)
    receives, sends = ((end.unsqueeze(-1) == rois).double() for end in (edges.receiver, edges.sender))
    true = receives @ r + sends @ s
    expected = torch.autograd.grad((weight * true).sum(), (r, s))
    r, s = (t.detach().float().requires_grad_() for t in (r, s))
    found = torch.vmap(twin.add_ends)(r, s, edges)
    assert error(found, true) < TOLERANCE
    for mine, one in zip(torch.autograd.grad((weight.float() * found).sum(), (r, s)), expected, strict=True):
        assert error(mine, one) < TOLERANCE


@pytest.mark.skipif(not GPU, reason="the order of sums is open on a GPU only")
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("widths", [(32, 8), (256, 64)], ids=["by kernels", "published"])
def test_the_same_gradients_again_bit_for_bit(norm, widths):
    H, edges = single(*problem(3, 32, 116))
    found = []
    for _ in range(5):
        network, *state = networks(3, widths, norm, 0.5, torch.float32)
        real = torch.ones(32, device=DEVICE)
        _, gradient, _ = scored(network, *state, H, edges, KEYS[torch.arange(3) % 2], real)
        found.append(gradient)
    for again in found[1:]:
        assert all(torch.equal(g, again[name]) for name, g in found[0].items())


@pytest.mark.parametrize("norm", NORMS)
def test_layers_too_wide_for_kernels_gather_their_ends_by_kernels_in_pieces(twin, path, monkeypatch, norm):
    """So that the order of sums over edges is fixed for them too."""
    widths = (150, 8)
    H, edges = problem(2, 2, 9)
    keys, real = KEYS, torch.ones(2, dtype=torch.float64, device=DEVICE)
    network, *state = networks(2, widths, norm, 0.5, torch.float64)
    network.__class__ = Written
    true, true_gradient, _ = scored(network, *state, H, edges, keys, real)
    launched = path(True)
    before = len(launched)
    monkeypatch.setattr(scorer, "find_gpu_twin", lambda H, widths: None if max(widths, default=0) > 64 else twin)
    network, *state = networks(2, widths, norm, 0.5, torch.float32)
    found, gradient, _ = scored(network, *state, *single(H, edges), keys, real)
    assert len(launched) - before == 3  # 64, 64 and 22 numbers of an edge, in the backward pass
    filled = edges.real.bool()
    assert error(found[filled], true[filled]) < TOLERANCE
    for name, one in true_gradient.items():
        if not name.endswith("bias"):  # norms remove what a bias adds
            assert error(gradient[name], one) < 10 * TOLERANCE, name


def test_products_of_ten_bits_where_torch_is_told_so(path):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        agree(path, 1, 2, 8, (32, 8), EdgeBatchNorm, 0.5, tolerance=5e-3 if GPU else TOLERANCE)
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("norm", NORMS)
def test_without_gradient_the_same_numbers_also_of_views(path, norm):
    H, edges = single(*problem(2, 4, 6))
    path(True)
    network, params, buffers = networks(2, (16, 8), norm, 0.0, torch.float32)

    @torch.no_grad()
    def score(H, edges):
        one = torch.vmap(lambda p, *inputs: functional_call(network, p, inputs))
        return one(params | buffers, H, edges)

    whole = score(H, edges)
    for part in (slice(1, 3), slice(0, 4, 2)):
        few = score(H[:, part], Edges(*(t[:, part] for t in edges)))
        torch.testing.assert_close(few, whole[:, part], rtol=1e-5, atol=1e-5)


def test_a_graph_without_edges_is_no_reason_for_nan(path):
    H, edges = single(*problem(1, 2, 6))
    empty = Edges(*(t * torch.tensor([1, 0], device=DEVICE)[None, :, None].to(t.dtype) for t in edges))
    path(True)
    for norm in NORMS:
        network, *state = networks(1, (16, 8), norm, 0.5, torch.float32)
        found, gradient, _ = scored(network, *state, H, empty, KEYS[:1], torch.ones(2, device=DEVICE))
        assert found.isfinite().all()
        assert all(g.isfinite().all() for g in gradient.values())


def test_what_is_not_a_number_stays_so(path):
    H, edges = single(*problem(1, 2, 6))
    H[0, 1, 2, 0] = torch.nan
    path(True)
    network, *state = networks(1, (16, 8), EdgeInstanceNorm, 0.0, torch.float32)
    found, _, _ = scored(network, *state, H, edges, KEYS[:1], torch.ones(2, device=DEVICE))
    assert found[0, 0].isfinite().all()
    assert found[0, 1].isnan().all()


def test_moments_of_values_far_from_zero(twin):
    _, edges = problem(1, 3, 33)
    x = 3 + 1e-2 * torch.randn(3, edges.real.shape[-1], 5, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    found = twin.compute_edge_moments(x, edges.real[0].float())
    for mine, true in zip(found, scorer.compute_edge_moments(x.double(), edges.real[0]), strict=True):
        torch.testing.assert_close(mine.double(), true, rtol=1e-4, atol=0)


def test_nothing_beside_the_tensors_is_read_or_written(twin, path, monkeypatch):
    monkeypatch.setattr(twin, "launch", interpreted.between_nan(twin.launch))
    for norm in NORMS:
        agree(path, 2, 1, 8, (12, 5), norm, 0.5)
    _, edges = problem(2, 1, 8)
    r, s = torch.randn(2, 2, 1, 8, 12, device=DEVICE).requires_grad_().unbind()
    (gradient,) = torch.autograd.grad(torch.vmap(twin.add_ends)(r, s, edges).sum(), r)
    torch.testing.assert_close(gradient.sum(), torch.tensor(12.0 * edges.receiver.numel(), device=DEVICE))


def test_the_last_of_very_many_graphs(twin):
    """Numbers of edges that 32 bits do not count; the interpreter sees few graphs."""
    P, h = 40 if GPU else 12, 16
    _, edges = problem(1, 1, P)
    n = edges.receiver.shape[-1]
    B = 2**31 // (n * h) // 2 + 1 if GPU else 2  # of each of two runs
    if GPU and torch.cuda.mem_get_info()[0] < 80 << 30:
        pytest.skip("takes 80 GiB of GPU memory")
    torch.manual_seed(0)
    state, W, bias = torch.randn(2, 1, 1, P, h), torch.randn(2, h, h), torch.randn(2, h)

    def score(B):
        r, s = (torch.zeros(2, B, P, h, device=DEVICE) for _ in range(2))
        r[-1, -1], s[-1, -1] = state[:, 0, 0].to(DEVICE)
        inputs = [t.to(DEVICE).requires_grad_() for t in (r, s, W, bias)]
        to, of, real = (t[0].expand(B, n) for t in edges)

        def one(r, s, W, bias):
            x = twin.apply_first_layer(r, s, Edges(to, of, real), W, bias)
            mean, variance = twin.compute_edge_moments(x, real.float())
            return twin.apply_later_layer(x, variance, mean, W, bias)[-1]

        y = torch.vmap(one)(*inputs)
        dr, ds, _, _ = torch.autograd.grad(y.square().sum(), inputs)
        return y.detach(), dr[-1, -1], ds[-1, -1]

    for many, alone in zip(score(B), score(1), strict=True):
        torch.testing.assert_close(many, alone, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("widths", "chosen"), [((64, 8), True), ((), True), ((65, 8), False)])
def test_kernels_are_used_where_they_can_be(twin, monkeypatch, widths, chosen):
    interpreted.check_choice(
        lambda like: scorer.find_gpu_twin(like, widths), twin if chosen else None, scorer, monkeypatch
    )


@pytest.mark.parametrize(
    ("name", "seeds"),
    [
        ("gsat", (0, 0)),
        ("disc", (0, 1)),
        *(pytest.param(name, (0, 1), marks=LONG_INTERPRETED) for name in ("gsat", "cepg", "disco", "brainood")),
    ],
)
def test_a_training_step(path, monkeypatch, name, seeds):
    """Losses of a stack and their gradients, with draws by kernels as well; runs of one seed share those."""
    from brio.training.gpu import random_numbers as gpu_random_numbers

    def choose(kernels):
        twin = gpu_random_numbers if kernels else None
        monkeypatch.setattr(random_numbers, "_gpu_twin", lambda like: twin)
        return path(kernels)

    method = make_method(name, {"width": 8, "edge_width": 2, "cell_batch": 1, "layers": 1})
    (plain_gradient, plain_stack), (gradient, stack) = interpreted.compare_steps(choose, method, seeds)
    assert path(True)
    largest = max(float(g.norm()) for g in plain_gradient.values())
    for n, g in gradient.items():
        assert float((g - plain_gradient[n]).norm()) < 1e-4 * max(float(plain_gradient[n].norm()), 1e-2 * largest), n
    for n, b in stack.buffers.items():
        torch.testing.assert_close(b, plain_stack.buffers[n], rtol=1e-4, atol=1e-5)

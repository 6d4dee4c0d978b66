"""Kernels of the signed encoder against its plain code: compiled on a GPU, else in Triton's interpreter."""

import contextlib
import sys
import sysconfig
from types import SimpleNamespace

import interpreted
import pytest
import torch
from interpreted import DEVICE, GPU, LONG_INTERPRETED, TOLERANCE, error
from torch.func import functional_call

from brio import kernels as launching
from brio.methods import make_method
from brio.methods.brio import encoder
from brio.methods.brio.encoder import SignedEncoder, find_gpu_twin, inverse_root, signed_graphs


@pytest.fixture(scope="module")
def fused():
    """The module of kernels."""
    with interpreted.kernels_here():
        from brio.methods.brio.gpu import encoder as fused

        yield fused


@pytest.fixture
def path(fused, monkeypatch):
    return interpreted.choose_path(fused, encoder, "find_gpu_twin", monkeypatch)


def scans(R, B, P, shared=False, dead=True):
    """A, S, alive, mean, c_mean and c_sd of R runs, which may see the same scans. Float64, on the device."""
    g = torch.Generator().manual_seed(P)
    lead = (B,) if shared else (R, B)
    off = 1 - torch.eye(P, dtype=torch.float64)

    def symmetric(*shape):
        x = torch.randn(*shape, P, P, generator=g, dtype=torch.float64) / 2
        return torch.tanh(x + x.mT) * off

    A, mean = symmetric(*lead), 0.4 * symmetric(R)
    alive = torch.rand(*lead, P, generator=g) > (0.15 if dead else -1)
    alive[..., 0, :] = True  # a whole scan beside those with gaps
    A = A * alive.unsqueeze(-1) * alive.unsqueeze(-2)
    S = (torch.rand(R, P, P, generator=g) > 0.75) | torch.eye(P).roll(1, 0).bool()  # every ROI has a partner
    S = (S | S.mT) * off
    if P > 4:  # an ROI without any edge, one without positive and one without negative edges
        for M in (A, mean):
            for u, sign in ((1, 0), (2, 1), (3, -1)):
                M[..., u, :] = sign * M[..., u, :].abs()
                M[..., :, u] = sign * M[..., :, u].abs()
            M[..., 2, 3] = M[..., 3, 2] = 0
    c_mean = torch.randn(R, P, 3, generator=g, dtype=torch.float64)
    c_sd = 0.5 + torch.rand(R, P, 3, generator=g, dtype=torch.float64)
    return tuple(t.to(DEVICE) for t in (A, S, alive, mean, c_mean, c_sd))


def single(graphs):
    return tuple(t.float() if t.is_floating_point() else t for t in graphs)


def networks(R, P, d, dtype=torch.float32):
    """An encoder without parameters, and those of R runs."""
    return interpreted.stack_networks(lambda: SignedEncoder(P, 16, d, 2), R, dtype)[:2]


def encode(network, params, graphs, in_dims=0):
    return torch.vmap(lambda p, *graphs: functional_call(network, p, graphs), in_dims=in_dims)(params, *graphs)


def gradients(H, params):
    """Of a weighted sum of all that was encoded."""
    weight = torch.randn(H.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(H)
    return dict(zip(params, torch.autograd.grad((H * weight).sum(), list(params.values())), strict=True))


def agree(path, R, B, P, d, shared=False, dead=True, tolerance=TOLERANCE):
    """Kernels in float32 against tensor operations in float64: representations and every gradient."""
    graphs, dims = scans(R, B, P, shared, dead), (0, None, 0, None, 0, 0, 0) if shared else 0
    path(False)
    network, params = networks(R, P, d, torch.float64)
    true = encode(network, params, graphs, dims)
    true_gradient = gradients(true, params)
    launched = path(True)
    network, params = networks(R, P, d)
    found = encode(network, params, single(graphs), dims)
    gradient = gradients(found, params)
    assert len(launched) == 7  # forward: embed, two layers; backward: two kernels a layer
    assert error(found, true) < tolerance
    for name in gradient:
        assert error(gradient[name], true_gradient[name]) < 5 * tolerance, name


# what kernels compute


@pytest.mark.parametrize(
    ("R", "B", "P", "d", "shared", "dead"),
    [
        (1, 1, 5, 64, False, True),
        (2, 2, 20, 64, False, True),
        (2, 1, 12, 48, True, False),
        (1, 1, 70, 16, True, True),  # more rows than a block has
        pytest.param(2, 1, 116, 64, True, True, marks=LONG_INTERPRETED),
        pytest.param(1, 1, 200, 64, False, True, marks=LONG_INTERPRETED),
    ],
)
def test_kernels_compute_what_the_plain_encoder_does(path, R, B, P, d, shared, dead):
    agree(path, R, B, P, d, shared, dead)


@pytest.mark.parametrize(("rows", "columns"), [(128, 32), (32, 16)])
def test_other_blocks(fused, path, monkeypatch, rows, columns):
    monkeypatch.setattr(fused, "BLOCK", fused.BLOCK | {"ROWS": rows, "COLUMNS": columns})
    agree(path, 1, 1, 40, 16)


def test_products_of_ten_bits_where_torch_is_told_so(path):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        agree(path, 1, 1, 12, 64, tolerance=3e-3 if GPU else TOLERANCE)  # the interpreter multiplies exactly
    finally:
        torch.set_float32_matmul_precision(before)


def test_without_gradient_the_same_numbers(path):
    graphs, (network, params) = single(scans(2, 1, 6)), networks(2, 6, 16)
    path(True)
    kept = encode(network, params, graphs)
    with torch.no_grad():
        torch.testing.assert_close(encode(network, params, graphs), kept, rtol=0, atol=1e-6)


def test_weak_and_missing_edges_have_the_roots_of_the_plain_encoder(fused):
    A, S = torch.zeros(1, 5, 5), 1 - torch.eye(5)
    for u, v, weight in ((0, 1, 0.5), (0, 2, -0.3), (1, 3, 1e-40)):
        A[0, u, v] = A[0, v, u] = weight
    live, none = torch.ones(1, 5, dtype=torch.uint8), torch.zeros(5, 5)
    E, V = torch.zeros(5, 16), torch.zeros(16, 3)
    graphs = [t.to(DEVICE) for t in (E, V, A, live, none, S.to(torch.uint8))]
    plain = (torch.zeros(5, 3, device=DEVICE), torch.ones(5, 3, device=DEVICE))
    _, root = fused.embed(*graphs[:2], plain, tuple(graphs[2:]))
    _, plus, minus = signed_graphs(A, S)
    expected = torch.cat([inverse_root(G.sum(-1)) for G in (plus, minus)], -1).mT
    assert expected[0, 0, 3] > 1e18  # 1e-40 is below the smallest normal number
    torch.testing.assert_close(root.cpu(), expected)


# runs, and where tensors lie


@pytest.mark.parametrize(
    "dims",
    [(0, *[None] * 6), (None, 0, None, 0, None, None, None), (None, None, 0, None, 0, 0, 0), (None,) * 7],
    ids=["own parameters", "own scans", "own state", "all shared"],
)
def test_runs_may_share_anything(path, dims):
    graphs, (network, params) = single(scans(2, 1, 6)), networks(2, 6, 16)
    params = params if dims[0] == 0 else {n: p[0] for n, p in params.items()}
    graphs = tuple(t if dim == 0 else t[0] for t, dim in zip(graphs, dims[1:], strict=True))
    one = torch.vmap(lambda x, p, *graphs: x + functional_call(network, p, graphs), in_dims=(0, *dims))
    found = []
    for kernels in (False, True):
        path(kernels)
        found.append(one(torch.zeros(2, device=DEVICE), params, *graphs))
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=2e-5)


def test_scans_that_are_views(fused):
    A, S, alive, mean, *standard = single(scans(2, 5, 20))
    live, S = alive.to(torch.uint8), S.to(torch.uint8)
    E, V = torch.randn(2, 20, 32, device=DEVICE), torch.randn(2, 32, 3, device=DEVICE)

    def embed(A, live):
        one = torch.vmap(lambda E, V, c_mean, c_sd, *graphs: fused.embed(E, V, (c_mean, c_sd), graphs))
        H, _ = one(E, V, *standard, A, live, mean, S)
        return H

    whole = embed(A, live)
    for part in (slice(1, 3), slice(0, 5, 2)):
        assert torch.equal(embed(A[:, part], live[:, part]), whole[:, part])
    args = [t.unsqueeze(1) for t in (E, V, *standard, A, live, mean, S)]
    args[4:6] = (t.permute(1, 2, 0, *range(3, t.dim())) for t in args[4:6])  # the runs come last, but for ROIs
    H, *_ = torch.vmap(fused._Embed.apply, in_dims=(0, 0, 0, 0, 2, 2, 0, 0))(*args)
    assert torch.equal(H.squeeze(1), whole)


def test_nothing_between_the_tensors_is_read_or_written(fused, path, monkeypatch):
    monkeypatch.setattr(fused, "launch", interpreted.between_nan(fused.launch))
    agree(path, 2, 1, 13, 48)


def test_the_last_of_very_many_graphs(path):
    """Elements of A and of H that numbers of 32 bits do not count; the interpreter sees few graphs."""
    P = d = 64
    B = 2**31 // P**2 + 1 if GPU else 2
    if GPU and torch.cuda.mem_get_info()[0] < 110 << 30:
        pytest.skip("takes 100 GiB of GPU memory")
    A, S, alive, mean, *_ = (t[0] for t in single(scans(1, 1, P, dead=False)))
    many = A.new_zeros(B, P, P)
    many[-1] = A[0]
    network = SignedEncoder(P, 16, d, 1).to(DEVICE)
    path(True)
    found = []
    for graphs in (A, many):
        H = network(graphs, S, alive.expand(len(graphs), P), mean)[-1]
        found.append((H.detach(), gradients(H, dict(network.named_parameters()))))
    (alone, alone_gradient), (last, last_gradient) = found
    torch.testing.assert_close(last, alone, rtol=0, atol=1e-5)
    for name, gradient in last_gradient.items():
        torch.testing.assert_close(gradient, alone_gradient[name], rtol=1e-4, atol=1e-5)


def test_no_graphs_at_all(path):
    A, S, alive, mean, *_ = single(scans(2, 1, 6))
    network, params = networks(2, 6, 16)
    path(True)
    H = encode(network, params, (A[:, :0], S, alive[:, :0], mean))
    assert H.shape == (2, 0, 6, 16)
    assert not any(g.any() for g in gradients(H, params).values())


def test_graphs_get_no_gradient_and_say_so(path):
    A, *rest = single(scans(2, 1, 6))
    network, params = networks(2, 6, 16)
    path(True)
    H = encode(network, params, (A.requires_grad_(), *rest))
    with pytest.raises(NotImplementedError, match="no gradient"):
        H.sum().backward()


@pytest.mark.parametrize("run", [pytest.param("whole", marks=LONG_INTERPRETED)])
def test_a_training_step_and_a_refresh(path, run):
    """BRIO's own calls: losses of a stack on scans of each run, qualifications on scans that runs share."""
    small = {"d_h": 16, "layers": 1, "K": 1, "T_w": 0, "assignment_iterations": 5, "sinkhorn_iterations": 5}
    method, names = make_method("brio", small), ("pi_task", "q_re", "alpha_bar", "g")
    (plain_gradient, plain_stack), (gradient, stack) = interpreted.compare_steps(path, method, (0, 0), refresh=True)
    assert max(error(gradient[n], plain_gradient[n]) for n in gradient) < 1e-3
    plain, found = plain_stack.state.training, stack.state.training
    assert max(error(found[n], plain[n]) for n in names) < 1e-3


# when kernels are used


def test_kernels_run_on_the_gpu_of_their_tensors(monkeypatch):
    launched = []

    class Kernel:
        def __getitem__(self, grid):
            return lambda *args, **sizes: launched.append((grid, args, sizes))

    @contextlib.contextmanager
    def device_of(t):
        launched.append(t)
        yield
        launched.append("left")

    monkeypatch.setattr(torch.cuda, "device_of", device_of)
    launching.launch(Kernel(), 3, "x", "y", BLOCK=4)
    assert launched == ["x", ((3,), ("x", "y"), {"BLOCK": 4}), "left"]


@pytest.fixture
def new_gpu(monkeypatch):
    """As on a machine with a GPU, gcc and the header of Python; nothing about it has been asked yet."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(launching, "_launchers_can_be_built", lambda: True)
    launching.kernels_run_on.cache_clear()
    yield
    launching.kernels_run_on.cache_clear()


def graphs_on_a_gpu(**other):
    """What is asked of graphs before kernels are chosen."""
    usual = {"is_cuda": True, "dtype": torch.float32, "requires_grad": False, "shape": (3, 116, 116)}
    return SimpleNamespace(**usual | {"device": torch.device("cuda", 0)} | other)


def test_kernels_are_used_where_they_can_be(fused, new_gpu):
    assert [d for d in range(1, 200) if find_gpu_twin(graphs_on_a_gpu(), d) is fused] == [16, 32, 48, 64]
    for other in (
        {"is_cuda": False},
        {"dtype": torch.float64},
        {"requires_grad": True},
        {"shape": (1, 40_000, 40_000)},
    ):
        assert find_gpu_twin(graphs_on_a_gpu(**other), 64) is None, other


def test_with_kernels_more_graphs_go_in_a_pass(fused, new_gpu):
    brio = make_method("brio")
    plain, ours = (brio.bytes_per_scan(graphs_on_a_gpu(is_cuda=gpu, element_size=lambda: 4)) for gpu in (False, True))
    assert 4 * 116 * 116 < ours < plain / 2


def test_not_without_triton(new_gpu, monkeypatch):
    for name in ("encoder", "encoder_kernels"):
        monkeypatch.delitem(sys.modules, f"brio.methods.brio.gpu.{name}", raising=False)
        monkeypatch.delattr(f"brio.methods.brio.gpu.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "triton", None)
    assert find_gpu_twin(graphs_on_a_gpu(), 64) is None


def test_not_without_a_compiler_and_that_is_asked_once(fused, new_gpu, monkeypatch):
    answers = [False, True]
    monkeypatch.setattr(launching, "_launchers_can_be_built", lambda: answers.pop(0))
    assert find_gpu_twin(graphs_on_a_gpu(), 64) is None
    assert find_gpu_twin(graphs_on_a_gpu(), 64) is None
    launching.kernels_run_on.cache_clear()
    assert find_gpu_twin(graphs_on_a_gpu(), 64) is fused


def test_launchers_need_a_compiler_and_the_header_of_python(tmp_path, monkeypatch):
    def executable(name):
        (tmp_path / name).touch(mode=0o755)
        return str(tmp_path / name)

    monkeypatch.setattr(sysconfig, "get_path", lambda *names: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    (tmp_path / "Python.h").touch()
    assert not launching._launchers_can_be_built()
    monkeypatch.setenv("CC", executable("own"))
    assert launching._launchers_can_be_built()
    monkeypatch.setenv("CC", "missing")
    executable("clang")
    assert not launching._launchers_can_be_built()  # Triton would insist on CC
    monkeypatch.delenv("CC")
    assert launching._launchers_can_be_built()
    (tmp_path / "Python.h").unlink()
    assert not launching._launchers_can_be_built()

"""The kernel of entropic transport against its plain code: compiled on a GPU, else in Triton's interpreter."""

import pytest
import torch
from interpreted import DEVICE, TOLERANCE, choose_path, kernels_here

from brio.methods.brio import qualification
from brio.methods.brio.qualification import alignment_loss, extend_clouds
from brio.transport import entropic_cost, sinkhorn


@pytest.fixture(scope="module")
def kernel():
    with kernels_here():
        from brio.transport import sinkhorn_kernel

        yield sinkhorn_kernel


@pytest.fixture
def path(kernel, monkeypatch):
    return choose_path(kernel, sinkhorn, "find_gpu_twin", monkeypatch)


def draw(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(DEVICE)


def solve(C, weights):
    C = C.detach().clone().requires_grad_()
    cost = entropic_cost(C, 0.1, 12, *weights)
    (cost * torch.linspace(-1, 2, cost.numel()).to(C).view(cost.shape)).sum().backward()
    return cost.detach().double(), C.grad.double()


@pytest.mark.parametrize("shape", [(5, 1, 1), (3, 8, 8), (2, 3, 5, 7), (2, 16, 9), (2, 32, 32), (3, 1, 6), (0, 8, 8)])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_kernel_solves_what_tensor_operations_solve(path, shape, weighted):
    C, weights = 2 * draw(*shape), ()
    if weighted:  # some points are padding
        eta, zeta = draw(*shape[:-1], seed=1) + 0.1, draw(*shape[:-2], shape[-1], seed=2) + 0.1
        eta[..., shape[-2] // 2 + 1 :] = 0
        weights = tuple((w / w.sum(-1, keepdim=True)).log() for w in (eta, zeta))
    path(False)
    true, true_gradient = solve(C, weights)
    launched = path(True)
    cost, gradient = solve(C.float(), tuple(w.float() for w in weights))
    assert len(launched) == 1
    torch.testing.assert_close(cost, true, atol=10 * TOLERANCE, rtol=0)
    torch.testing.assert_close(gradient, true_gradient, atol=10 * TOLERANCE, rtol=0)


def test_larger_clouds_and_other_precisions_are_solved_by_tensor_operations():
    assert sinkhorn.find_gpu_twin(torch.zeros(2, 33, 8, device=DEVICE)) is None
    assert sinkhorn.find_gpu_twin(torch.zeros(2, 8, 8, device=DEVICE, dtype=torch.float64)) is None
    assert (sinkhorn.find_gpu_twin(torch.zeros(2, 32, 8, device=DEVICE)) is not None) == (DEVICE == "cuda")


def test_alignment_of_many_runs_with_small_cells(path):
    R, E, n, past, J, d = 2, 3, 2, 5, 2, 4
    pairs = E * (E - 1) // 2
    factors = torch.nn.functional.normalize(draw(R, E, 2, n, J, d) - 0.5, dim=-1)
    earlier = torch.nn.functional.normalize(draw(R, E, 2, past, J, d, seed=3) - 0.5, dim=-1)
    alpha_bar = torch.softmax(draw(R, pairs, 2, J, seed=4), -1)
    g, pair_weight = draw(R, pairs, 2, seed=5), torch.full((R, pairs), 1 / pairs, device=DEVICE, dtype=torch.float64)
    size = torch.randint(1, 12, (R, E, 2), generator=torch.Generator().manual_seed(6)).double().to(DEVICE)

    def align(dtype):
        live = factors.detach().to(dtype, copy=True).requires_grad_()
        state = {"past_factors": earlier, "past_scans": size.new_full((R,), 40), "cell_size": size}
        state = {name: t.to(dtype, copy=True) for name, t in state.items()}

        def loss(live, past, alpha_bar, g, weight):
            clouds, log_weight = extend_clouds(live, past)
            return alignment_loss(clouds, alpha_bar, g, weight, 0.1, 10, log_weight)

        value = torch.vmap(loss)(live, state, *(t.to(dtype) for t in (alpha_bar, g, pair_weight)))
        value.sum().backward()
        return value.detach().double(), live.grad.double(), state

    path(False)
    true, true_gradient, _ = align(torch.float64)
    launched = path(True)
    value, gradient, state = align(torch.float32)
    assert len(launched) == 1
    torch.testing.assert_close(value, true, atol=10 * TOLERANCE, rtol=0)
    torch.testing.assert_close(gradient, true_gradient, atol=10 * TOLERANCE, rtol=0)
    assert (state["past_scans"] == 42).all()
    torch.testing.assert_close(state["past_factors"][:, :, :, :n].double(), factors, atol=1e-6, rtol=0)
    torch.testing.assert_close(
        state["past_factors"][:, :, :, n:].double(), earlier[:, :, :, : past - n], atol=1e-6, rtol=0
    )
    assert qualification.entropic_cost is entropic_cost

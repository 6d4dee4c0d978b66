"""Stacked AdamW against torch.optim.AdamW, run by run."""

import torch

from brio.training.stack import StackedAdamW

SHAPES = {"matrix": (4, 3), "vector": (5,), "scalar": ()}


def start(seed, runs):
    g = torch.Generator().manual_seed(seed)
    return {n: torch.randn(runs, *s, dtype=torch.float64, generator=g) for n, s in SHAPES.items()}


def gradients(seed, steps, runs):
    g = torch.Generator().manual_seed(seed)
    scale = torch.logspace(-4, 2, steps, dtype=torch.float64)
    return [{n: k * torch.randn(runs, *s, dtype=torch.float64, generator=g) for n, s in SHAPES.items()} for k in scale]


def by_torch(params, grads):
    """One run by torch's own optimiser."""
    leaves = {n: p.clone().requires_grad_() for n, p in params.items()}
    optimiser = torch.optim.AdamW(leaves.values(), lr=3e-2, weight_decay=1e-1, foreach=False)
    for step in grads:
        for n, leaf in leaves.items():
            leaf.grad = None if step.get(n) is None else step[n].clone()
        optimiser.step()
    return {n: leaf.detach() for n, leaf in leaves.items()}


def stacked(params, grads, active):
    leaves = {n: p.clone().requires_grad_() for n, p in params.items()}
    optimiser = StackedAdamW(leaves, 3e-2, 1e-1)
    for step, go in zip(grads, active, strict=True):
        for n, leaf in leaves.items():
            leaf.grad = None if step.get(n) is None else step[n].clone()
        optimiser.step(go)
    return leaves, optimiser


def close(a, b, tolerance=1e-12):
    for n in b:
        torch.testing.assert_close(a[n], b[n], atol=tolerance, rtol=tolerance)


def row(tensors, r):
    return {n: t[r] for n, t in tensors.items()}


def test_runs_that_sit_steps_out_equal_their_own_optimiser_with_fewer_steps():
    params, grads = start(2, 3), gradients(3, 40, 3)
    active = torch.rand(40, 3, generator=torch.Generator().manual_seed(4)) < torch.tensor([0.9, 0.5, 0.2])
    active[:5, 2] = False  # a run that has not taken a single step yet
    found, optimiser = stacked(params, grads, active)
    for r in range(3):
        mine = [row(g, r) for g, go in zip(grads, active[:, r], strict=True) if go]
        close(row({n: t.detach() for n, t in found.items()}, r), by_torch(row(params, r), mine))
    assert optimiser.steps.tolist() == active.sum(0).tolist()


def test_a_run_that_sits_out_is_untouched_bit_for_bit():
    params, grads = start(5, 2), gradients(6, 10, 2)
    found, optimiser = stacked(params, grads, torch.tensor([[True, False]] * 10))
    for n in SHAPES:
        assert torch.equal(found[n][1], params[n][1])
        assert not torch.equal(found[n][0], params[n][0])
        assert (optimiser.mean[n][1] == 0).all()
        assert (optimiser.square[n][1] == 0).all()


def test_a_parameter_without_gradient_is_left_alone_decay_included():
    params, grads = start(7, 1), gradients(8, 12, 1)
    for k, g in enumerate(grads):
        if k >= 6:
            g["vector"] = None
    found, _ = stacked(params, grads, torch.ones(12, 1, dtype=torch.bool))
    alone = [{n: None if t is None else t[0] for n, t in g.items()} for g in grads]
    close(row({n: t.detach() for n, t in found.items()}, 0), by_torch(row(params, 0), alone))


def test_gradients_are_used_up_by_a_step():
    params = {n: p.requires_grad_() for n, p in start(9, 1).items()}
    optimiser = StackedAdamW(params, 1e-2, 0.0)
    sum(p.square().sum() for p in params.values()).backward()
    optimiser.step(torch.tensor([True]))
    assert all(p.grad is None for p in params.values())


def test_going_on_with_some_runs_equals_never_having_had_the_others():
    params, grads = start(10, 3), gradients(11, 20, 3)
    whole, _ = stacked(params, grads, torch.ones(20, 3, dtype=torch.bool))
    leaves, optimiser = stacked(params, grads[:9], torch.ones(9, 3, dtype=torch.bool))
    keep = torch.tensor([0, 2])
    rest = {n: p.detach()[keep].requires_grad_() for n, p in leaves.items()}
    optimiser.select(rest, keep)
    for g in grads[9:]:
        for n in rest:
            rest[n].grad = g[n][keep].clone()
        optimiser.step(torch.ones(2, dtype=torch.bool))
    for n in SHAPES:
        assert torch.equal(rest[n], whole[n][keep])

"""A run inside a stack gives the numbers of the run alone: weights, cells and their batches, and AdamW run by run."""

import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from small_cohorts import call_run, cohort_of, small, split

from brio.connectome import Connectomes
from brio.training import Run
from brio.training import stack as stack_module
from brio.training.stack import SourceCells, Stack, StackedAdamW
from fitted_runs import assert_close_run

METHODS = ["brio", "brio-wo-rs", "brio-wo-tr", "brio-wo-sm", "brio-wo-sf", "brio-wo-qg", "backbone"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.soak) if name != "brio" else name for name in METHODS]
)
def test_weights_after_fifty_steps_equal_those_of_the_run_alone(name, graphs, uneven, last_epoch):
    # source sites 4 and 2, so the stack pads; the run with padding is compared
    method = small(name, epochs=13, M=20, cell_batch=1)
    other, fitted = method.fit(graphs, uneven[1:])
    (alone,) = method.fit(graphs, uneven[2:])
    steps = int(Stack.build(method, graphs, uneven[2:]).sources.steps(1)[0])
    assert steps * fitted.selected_epoch >= 50
    assert_close_run(fitted, alone)
    assert (other.parameters["w"] - fitted.parameters["w"]).abs().max() > 1e-3


def test_initial_weights_depend_on_the_seed_alone(graphs, cohort, uneven):
    method = small(epochs=3)
    torch.manual_seed(123)
    drawn = torch.rand(1)
    torch.manual_seed(123)
    stack = Stack.build(method, graphs, uneven)
    assert torch.equal(torch.rand(1), drawn)  # the generator of the caller is left where it was
    for p in stack.params.values():
        assert torch.equal(p[0], p[2])
    assert not torch.equal(stack.params["w"][0], stack.params["w"][1])


def test_margins_are_the_logits_of_each_run_in_passes_of_any_size(graphs, uneven, monkeypatch):
    stack = Stack.build(small(), graphs, uneven)
    scans = np.stack([np.arange(20), np.arange(20, 40), np.arange(30, 50)])
    whole = stack.score_scans(scans)
    for r in range(3):
        out = call_run(stack, r, graphs.full[scans[r]], graphs.alive[scans[r]])
        np.testing.assert_allclose(whole[r], out.logit.detach().numpy(), atol=1e-12)
    assert not graphs.alive[:50].all()
    monkeypatch.setattr(stack_module, "pass_budget", lambda device: 1)
    np.testing.assert_allclose(stack.score_scans(scans), whole, atol=1e-12)
    shared = stack.forward(stack.inputs.take(torch.arange(7)), shared=True)
    np.testing.assert_allclose(shared.logit[0], whole[0, :7], atol=1e-12)
    some = stack.forward(stack.inputs.take(torch.arange(7)), shared=True, runs=torch.tensor([2]))
    assert torch.equal(some.logit[0], shared.logit[2])


def test_a_refresh_takes_no_more_memory_than_a_step_and_finds_the_same(graphs, uneven, monkeypatch):
    method = small()
    stages, found, asked = method.stages(), [], []
    plain = Connectomes.iterate_reestimates

    def watched(self, *words):
        asked.append(words[-1])
        for chunk, A in plain(self, *words):
            sizes.append(A[0, 0].numel() * A.element_size() * A.shape[0] * A.shape[1])
            yield chunk, A

    monkeypatch.setattr(Connectomes, "iterate_reestimates", watched)
    for room in (None, 1):
        sizes = []
        stack = Stack.build(method, graphs, uneven[2:])
        method.begin_stage(stack, stages[-1])
        if room is not None:
            stack.step_bytes = room
        method.refresh(stack, np.ones(1, dtype=bool), 0)
        found.append({name: stack.state.training[name].clone() for name in ("pi_task", "q_re", "alpha_bar", "g")})
        assert asked.pop() == (room or 64 << 20)
        assert room is None or max(sizes) <= max(room, method.settings.K * 8 * 10**2)
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)


def test_a_finished_run_scores_other_cohorts_of_the_atlas(graphs, rows, uneven):
    method = small()
    fitted_runs = method.fit(graphs, uneven)
    for fitted in fitted_runs[:2]:
        again = method.predict_margins(fitted, graphs, fitted.run.fold.test)
        np.testing.assert_allclose(again, fitted.test_logit, atol=1e-12)
        elsewhere = cohort_of([row for row in rows if row[0] in ("dog", "fox")])
        there = method.predict_margins(fitted, Connectomes(elsewhere, dtype=torch.float64), np.arange(len(elsewhere)))
        here = method.predict_margins(fitted, graphs, np.flatnonzero(np.isin(graphs.cohort.sites, ["dog", "fox"])))
        np.testing.assert_allclose(there, here, atol=1e-10)


@pytest.mark.parametrize("cell_batch", [1, 2, 3, 7])
def test_batches_draw_evenly_from_every_source_site_and_class(cohort, uneven, cell_batch):
    sources = SourceCells(cohort, uneven)
    for epoch in (1, 2, 5):
        batches, active = sources.batches(epoch, cell_batch)
        assert batches.shape[2:] == (4, 2, cell_batch)
        for r, run in enumerate(uneven):
            source, E = run.fold.source, sources.n_sites[r]
            steps = int(active[:, r].sum())
            assert steps == max(1, len(source) // (2 * E * cell_batch))
            assert active[:steps, r].all()  # the steps a run takes come first
            site, label = cohort.sites[source], cohort.labels[source]
            for (e, name), c in itertools.product(enumerate(np.unique(site)), (0, 1)):
                times = Counter(batches[:steps, r, e, c].ravel().tolist())
                counts = [times.pop(i, 0) for i in source[(site == name) & (label == c)]]
                assert not times
                assert max(counts) - min(counts) <= 1


def test_small_cells_go_round_and_large_cells_are_covered_over_epochs(rows):
    few = [row for row in rows if row[2] in {"ant-00", "ant-01", "ant-03"} or row[0] in {"bee", "dog", "fox"}]
    cohort = cohort_of(few)
    run = Run(split(cohort, "abd", "f", "f"), 3)
    sources = SourceCells(cohort, [run])
    assert sources.size[0, 0].tolist() == [1, 2]
    batches, _ = sources.batches(1, 4)
    assert len(set(batches[0, 0, 0, 0].tolist())) == 1
    assert sorted(Counter(batches[0, 0, 0, 1].tolist()).values()) == [2, 2]
    seen = {int(i) for epoch in range(1, 12) for i in sources.batches(epoch, 1)[0].ravel()}
    assert seen == set(run.fold.source.tolist())


SHAPES = {"matrix": (4, 3), "vector": (5,), "scalar": ()}


def by_torch(params, grads):
    """One run by torch's own optimiser."""
    leaves = {n: p.clone().requires_grad_() for n, p in params.items()}
    optimiser = torch.optim.AdamW(leaves.values(), lr=3e-2, weight_decay=1e-1, foreach=False)
    for step in grads:
        for n, leaf in leaves.items():
            leaf.grad = None if step[n] is None else step[n].clone()
        optimiser.step()
    return {n: leaf.detach() for n, leaf in leaves.items()}


def test_each_run_takes_the_steps_of_its_own_optimiser():
    """Runs sit steps out, untouched bit for bit; a parameter loses its gradient; a run leaves the stack."""
    g = torch.Generator().manual_seed(2)

    def draw(size=1.0):
        return {n: size * torch.randn(3, *s, dtype=torch.float64, generator=g) for n, s in SHAPES.items()}

    params, grads = draw(), [draw(size) for size in torch.logspace(-4, 2, 40, dtype=torch.float64)]
    for step in grads[20:]:
        step["vector"] = None  # which is left alone, decay included
    active = torch.rand(40, 3, generator=g) < torch.tensor([0.9, 0.5, 0.2])
    active[:5, 2] = False  # a run that has not taken a single step yet
    leaves, rows = {n: p.clone().requires_grad_() for n, p in params.items()}, torch.arange(3)
    optimiser = StackedAdamW(leaves, 3e-2, 1e-1)
    for number, (step, go) in enumerate(zip(grads, active, strict=True)):
        if number == 30:
            rows = torch.tensor([0, 2])
            leaves = {n: p.detach()[rows].requires_grad_() for n, p in leaves.items()}
            optimiser.select(leaves, rows)
        before = {n: p.detach().clone() for n, p in leaves.items()}
        for n, leaf in leaves.items():
            leaf.grad = None if step[n] is None else step[n][rows].clone()
        optimiser.step(go[rows])
        assert all(torch.equal(leaf[~go[rows]], before[n][~go[rows]]) for n, leaf in leaves.items())
    assert optimiser.steps.tolist() == active[:, rows].sum(0).tolist()
    for position, r in enumerate(rows.tolist()):
        own = [step for step, go in zip(grads, active[:, r], strict=True) if go]
        own = [{n: None if t is None else t[r] for n, t in step.items()} for step in own]
        for n, expected in by_torch({n: p[r] for n, p in params.items()}, own).items():
            torch.testing.assert_close(leaves[n][position].detach(), expected, atol=1e-12, rtol=1e-12)

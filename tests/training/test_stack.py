"""A run inside a stack gives the numbers of the run alone."""

import numpy as np
import pytest
import torch
from small_cohorts import cohort_of, small, split

from brio.connectome import Connectomes
from brio.training import InputShape, Run, Scans
from brio.training import stack as stack_module
from brio.training.stack import Stack
from brio.training.trainer import BestValidationEpoch

METHODS = ["brio", "brio-wo-rs", "brio-wo-tr", "brio-wo-sm", "brio-wo-sf", "brio-wo-qg", "backbone"]


@pytest.fixture
def last_epoch(monkeypatch):
    """Choose the last checkpoint always, so that whole trainings are compared, not their first epochs."""
    monkeypatch.setattr(BestValidationEpoch, "score", lambda self, logit: np.nextafter(self.best.clip(0), 2))


def furthest(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[n] - other[n]).abs().max()) for n in one)


def compare(method, graphs, runs, again, weights, qualifications):
    """Fit runs together and some alone; trained weights and qualifications must agree within their tolerances."""
    together = method.fit(graphs, runs)
    for run, fitted in zip(runs, together, strict=True):
        if run not in again:
            continue
        (alone,) = method.fit(graphs, [run])
        steps = int(Stack.build(method, graphs, [run]).sources.steps(method.settings.cell_batch)[0])
        assert steps * fitted.selected_epoch >= 50
        assert alone.selected_epoch == fitted.selected_epoch
        one, other = alone.tensors, fitted.tensors
        trained = [n for n in one if n.startswith("parameters.")]
        assert furthest({n: one[n] for n in trained}, {n: other[n] for n in trained}) < weights
        assert furthest(one, other) < qualifications
        np.testing.assert_allclose(fitted.test_logit, alone.test_logit, atol=10 * weights)
    assert furthest({"w": together[0].parameters["w"]}, {"w": together[-1].parameters["w"]}) > 1e-3


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.soak) if name.startswith("brio-wo-") else name for name in METHODS]
)
def test_weights_after_fifty_steps_equal_those_of_the_run_alone(name, graphs, uneven, last_epoch):
    # source sites 4 and 2, so the stack pads; the run with most padding is compared
    method = small(name, epochs=13, M=20, cell_batch=1, patience=None)
    compare(method, graphs, uneven[1:], uneven[2:], 1e-8, 1e-8)


@pytest.mark.soak  # the same in double precision is above
def test_in_single_precision_runs_agree_to_one_in_ten_thousand(cohort, uneven, last_epoch):
    # support is a ratio of small squares: it magnifies the rounding of contributions that hardly vary
    method = small(epochs=13, M=20, cell_batch=1, patience=None)
    compare(method, Connectomes(cohort, dtype=torch.float32), uneven[1:], uneven[2:], 1e-4, 5e-3)


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
    stack = Stack.build(small(epochs=4), graphs, uneven)
    scans = np.stack([np.arange(20), np.arange(20, 40), np.arange(30, 50)])
    whole = stack.score_scans(scans)
    for r in range(3):
        network = stack.method.network(InputShape(10, 1, 0)).double()
        network.load_state_dict({n: p[r].detach() for n, p in stack.params.items()})
        state = stack.state.select(torch.tensor(r))
        out = network(Scans.of(graphs.full[scans[r]], graphs.alive[scans[r]])._replace(state=state))
        np.testing.assert_allclose(whole[r], out.logit.detach().numpy(), atol=1e-12)
    assert not graphs.alive[:50].all()
    monkeypatch.setattr(stack_module, "pass_budget", lambda device: 1)
    np.testing.assert_allclose(stack.score_scans(scans), whole, atol=1e-12)
    shared = stack.forward(stack.inputs.take(torch.arange(7)), shared=True)
    np.testing.assert_allclose(shared.logit[0], whole[0, :7], atol=1e-12)
    some = stack.forward(stack.inputs.take(torch.arange(7)), shared=True, runs=torch.tensor([2]))
    assert torch.equal(some.logit[0], shared.logit[2])


def test_a_refresh_takes_no_more_memory_than_a_step_and_finds_the_same(graphs, uneven, monkeypatch):
    method = small(epochs=4)
    due = np.ones(3, dtype=bool)
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
        stack = Stack.build(method, graphs, uneven)
        method.begin_stage(stack, stages[-1])
        if room is not None:
            stack.step_bytes = room
        method.refresh(stack, due, 0)
        found.append({name: stack.state.training[name].clone() for name in ("pi_task", "q_re", "alpha_bar", "g")})
        assert asked.pop() == (room or 64 << 20)
        assert room is None or max(sizes) <= max(room, method.settings.K * 8 * 10**2)
    for other in found[1:]:
        for name, value in other.items():
            torch.testing.assert_close(value, found[0][name], rtol=0, atol=1e-12)


def test_a_finished_run_scores_other_cohorts_of_the_atlas(graphs, rows, uneven):
    method = small(epochs=4, patience=None)
    fitted_runs = method.fit(graphs, uneven)
    for fitted in fitted_runs[:2]:
        again = method.predict_margins(fitted, graphs, fitted.run.fold.test)
        np.testing.assert_allclose(again, fitted.test_logit, atol=1e-12)
        elsewhere = cohort_of([row for row in rows if row[0] in ("dog", "fox")])
        there = method.predict_margins(fitted, Connectomes(elsewhere, dtype=torch.float64), np.arange(len(elsewhere)))
        here = method.predict_margins(fitted, graphs, np.flatnonzero(np.isin(graphs.cohort.sites, ["dog", "fox"])))
        np.testing.assert_allclose(there, here, atol=1e-10)


def test_runs_of_one_fold_and_many_seeds_share_a_stack(graphs, cohort, last_epoch):
    fold = split(cohort, "abcd", "e", "f")
    runs = [Run(fold, seed) for seed in range(2)]
    method = small(epochs=4, patience=None)
    for run, fitted in zip(runs, method.fit(graphs, runs), strict=True):
        assert furthest(fitted.tensors, method.fit(graphs, [run])[0].tensors) < 1e-10

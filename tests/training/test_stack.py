"""A run inside a stack gives the numbers of the run alone."""

import numpy as np
import pytest
import torch
from conftest import cohort_of, small, split

from brio.connectome import Connectomes
from brio.training import Outcome, Run
from brio.training.selection import Validation
from brio.training.stack import Stack

METHODS = ["brio", "brio-wo-rs", "brio-wo-tr", "brio-wo-sm", "brio-wo-sf", "brio-wo-qg", "backbone"]
PER_PAIR = ("context.alpha_bar", "context.g")
PER_SITE = ("context.q_re",)


@pytest.fixture
def last_epoch(monkeypatch):
    """Choose the last checkpoint always, so that whole trainings are compared, not their first epochs."""
    monkeypatch.setattr(Validation, "score", lambda self, logit: np.nextafter(self.best.clip(0), 2))


def own(outcome: Outcome, n_sites: int) -> dict[str, torch.Tensor]:
    """Weights of a run without what a wider stack pads."""
    out = {}
    for name, t in outcome.weights.items():
        if name in PER_SITE:
            t = t[:n_sites]
        if name in PER_PAIR:
            room = next(E for E in range(2, 9) if E * (E - 1) // 2 == len(t))
            first, second = torch.triu_indices(room, room, 1)
            t = t[(first < n_sites) & (second < n_sites)]
        out[name] = t
    return out


def furthest(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[n] - other[n]).abs().max()) for n in one)


@pytest.mark.parametrize("name", METHODS)
def test_weights_after_fifty_steps_equal_those_of_the_run_alone(name, graphs, uneven, last_epoch):
    method = small(name, epochs=27, patience=None)  # at least two steps an epoch
    together = method.fit(graphs, uneven)
    moved = []
    for n_sites, run, outcome in zip((3, 4, 2), uneven, together, strict=True):
        (alone,) = method.fit(graphs, [run])
        assert alone.selected_epoch == outcome.selected_epoch == 27
        assert furthest(own(alone, n_sites), own(outcome, n_sites)) < 1e-8
        np.testing.assert_allclose(outcome.test_logit, alone.test_logit, atol=1e-8)
        moved.append(alone.weights["w"])
    assert furthest({"w": moved[0]}, {"w": moved[2]}) > 1e-3  # runs of one seed and unlike folds do differ


@pytest.mark.parametrize("name", ["brio", "backbone"])
def test_in_single_precision_runs_agree_to_one_in_ten_thousand(name, cohort, uneven, last_epoch):
    graphs = Connectomes(cohort, dtype=torch.float32)
    method = small(name, epochs=27, patience=None)
    together = method.fit(graphs, uneven)
    for n_sites, run, outcome in zip((3, 4, 2), uneven, together, strict=True):
        (alone,) = method.fit(graphs, [run])
        assert furthest(own(alone, n_sites), own(outcome, n_sites)) < 1e-4


def test_an_outcome_holds_the_qualifications_of_its_own_source_sites(graphs, uneven):
    # whoever reads alpha_bar or g of a finished run cannot know how wide the stack was that trained it
    outcomes = small(epochs=3, patience=None).fit(graphs, uneven)
    for n_sites, outcome in zip((3, 4, 2), outcomes, strict=True):
        pairs = n_sites * (n_sites - 1) // 2
        assert tuple(outcome.weights["context.q_re"].shape) == (n_sites, 2, 3)
        assert tuple(outcome.weights["context.alpha_bar"].shape) == (pairs, 2, 3)
        assert tuple(outcome.weights["context.g"].shape) == (pairs, 2)


def test_order_of_the_runs_does_not_matter(graphs, uneven):
    method = small(epochs=6, patience=None)
    there, back = method.fit(graphs, uneven), method.fit(graphs, uneven[::-1])[::-1]
    for n_sites, a, b in zip((3, 4, 2), there, back, strict=True):
        assert a.run is b.run
        assert furthest(own(a, n_sites), own(b, n_sites)) < 1e-10


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


def test_losses_of_a_stack_are_those_of_its_runs(graphs, uneven):
    method = small(epochs=4)
    stack = Stack.build(method, graphs, uneven)
    batches, _ = stack.sources.batches(1, 2)
    stage = method.stages()[0]
    together = stack.losses(batches[0], stage)
    for r, run in enumerate(uneven):
        single = Stack.build(method, graphs, [run])
        alone = single.losses(single.sources.batches(1, 2)[0][0], stage)
        assert together[r].item() == pytest.approx(alone[0].item(), abs=1e-12)


def test_passes_of_any_size_give_the_same_margins(graphs, uneven, monkeypatch):
    stack = Stack.build(small(epochs=4), graphs, uneven)
    scans = np.stack([np.arange(20), np.arange(20, 40), np.arange(30, 50)])
    whole = stack.margins(scans)
    monkeypatch.setitem(__import__("brio.training.stack").training.stack._PASS_BYTES, "cpu", 1)
    np.testing.assert_allclose(stack.margins(scans), whole, atol=1e-12)
    shared = stack.forward(graphs.full[:7], graphs.alive[:7], shared=True)
    np.testing.assert_allclose(shared.logit[0], whole[0, :7], atol=1e-12)
    some = stack.forward(graphs.full[:7], graphs.alive[:7], shared=True, runs=torch.tensor([2]))
    assert torch.equal(some.logit[0], shared.logit[2])


def test_a_finished_run_scores_other_cohorts_of_the_atlas(graphs, rows, uneven):
    method = small(epochs=4, patience=None)
    outcomes = method.fit(graphs, uneven)
    for outcome in outcomes:
        again = method.margins(outcome, graphs, outcome.run.fold.test)
        np.testing.assert_allclose(again, outcome.test_logit, atol=1e-12)
        elsewhere = cohort_of([row for row in rows if row[0] in ("dog", "fox")])
        there = method.margins(outcome, Connectomes(elsewhere, dtype=torch.float64), np.arange(len(elsewhere)))
        here = method.margins(outcome, graphs, np.flatnonzero(np.isin(graphs.cohort.sites, ["dog", "fox"])))
        np.testing.assert_allclose(there, here, atol=1e-10)


def test_runs_of_one_fold_and_many_seeds_share_a_stack(graphs, cohort, last_epoch):
    fold = split(cohort, "abcd", "e", "f")
    runs = [Run(fold, seed) for seed in range(3)]
    method = small(epochs=6, patience=None)
    for run, outcome in zip(runs, method.fit(graphs, runs), strict=True):
        assert furthest(outcome.weights, method.fit(graphs, [run])[0].weights) < 1e-10

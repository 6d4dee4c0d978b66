"""Stages, freezing, refreshes, patience and reproducibility of a training."""

import dataclasses
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from small_cohorts import losses, small, split

from brio.connectome import Connectomes
from brio.errors import BrioError
from brio.methods.brio import Brio
from brio.methods.brio.qualification import alignment_loss
from brio.training import InputShape, Run, Scans, group_tensors, trainer
from brio.training.stack import Stack


def bits(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


def test_a_repeated_fit_is_the_same_bit_for_bit(cohort, uneven):
    method = small(epochs=4, patience=None)
    torch.manual_seed(1)
    first = method.fit(Connectomes(cohort), uneven)
    torch.manual_seed(2)
    np.random.seed(3)  # noqa: NPY002 - global generators must not be read
    again = method.fit(Connectomes(cohort), uneven)
    for a, b in zip(first, again, strict=True):
        assert bits(a.tensors, b.tensors)
        assert np.array_equal(a.test_logit, b.test_logit)
        assert a.validation_auc == b.validation_auc


def test_the_assignment_is_frozen_after_warm_up_and_embeddings_go_on(graphs, uneven, every_epoch, monkeypatch):
    warm = {}
    enter = Brio.begin_stage

    def recorded(self, stack, stage):
        warm[stage.name] = {n: p.detach().clone() for n, p in stack.params.items()}
        enter(self, stack, stage)

    monkeypatch.setattr(Brio, "begin_stage", recorded)
    small(epochs=9, T_w=3, patience=None).fit(graphs, uneven)
    start, anchored, states = warm["warm-up"], warm["guided"], every_epoch
    assert len(states) == 6  # no checkpoint of the warm-up is offered
    for name in ("assignment.queries", "assignment.keys.weight"):
        assert not torch.equal(start[name], anchored[name])
        assert all(torch.equal(s[f"parameters.{name}"], anchored[name]) for s in states)
    roi = [anchored["encoder.roi"], *(s["parameters.encoder.roi"] for s in states)]
    assert all(not torch.equal(a, b) for a, b in pairwise(roi))
    assert all(torch.equal(s["inference.Pi_bar"], states[0]["inference.Pi_bar"]) for s in states)
    assert all(torch.equal(s["learned.S"], states[0]["learned.S"]) for s in states)


def test_pi_bar_is_the_assignment_at_the_end_of_the_warm_up(graphs, uneven):
    method = small(epochs=4)
    stack = Stack.build(method, graphs, uneven)
    method.begin_stage(stack, method.stages()[0])
    assert "Pi_bar" not in stack.state.inference
    method.begin_stage(stack, method.stages()[1])
    for r in range(3):
        network = method.network(InputShape(10, 1, 0)).double()
        network.load_state_dict({n: p[r].detach() for n, p in stack.params.items()})
        expected = network.assignment(network.encoder.roi)
        torch.testing.assert_close(stack.state.inference["Pi_bar"][r], expected.detach(), atol=1e-13, rtol=0)


def entropy(z, y):
    return math.log1p(math.exp(-z)) if y == 1 else math.log1p(math.exp(z))


def loss_by_hand(graphs, stack, batch, r):
    """Eq. (26) over the scans of a batch, from the logits of the run's own network."""
    network = stack.method.network(InputShape(graphs.n_rois, 1, 0)).double()
    network.load_state_dict({n: p[r].detach() for n, p in stack.params.items()})
    state = stack.state.select(torch.tensor(r))
    E = int(stack.sources.n_sites[r])
    total = 0.0
    for e in range(E):
        for c in (0, 1):
            scans = batch[r, e, c]
            out = network(Scans.of(graphs.full[scans], graphs.alive[scans])._replace(state=state))
            assert (graphs.cohort.labels[scans] == c).all()
            total += sum(entropy(z, c) for z in out.logit.tolist()) / len(scans)
    return total / (2 * E)


def test_guided_loss_adds_the_weighted_alignment_of_the_same_batch(graphs, uneven):
    method = small(epochs=4, lambda_env=3.0)
    s = method.settings
    stack = Stack.build(method, graphs, uneven)
    guided = method.stages()[1]
    method.begin_stage(stack, guided)
    batch = stack.sources.batches(1, 2)[0][0]
    before = losses(stack, batch, guided)  # no qualification yet: its cache is empty and nothing is aligned
    method.refresh(stack, np.ones(3, dtype=bool), 0)
    after = losses(stack, batch, guided)
    for r, E in enumerate((3, 4, 2)):
        expected = loss_by_hand(graphs, stack, batch, r)
        assert before[r].item() == pytest.approx(expected, abs=1e-12)
        scans = batch[r, :E]
        network = method.network(InputShape(10, 1, 0)).double()
        network.load_state_dict({n: p[r].detach() for n, p in stack.params.items()})
        state = stack.state.select(torch.tensor(r))
        flat = scans.reshape(-1)
        factors = network(Scans.of(graphs.full[flat], graphs.alive[flat])._replace(state=state)).factors.unflatten(
            0, scans.shape
        )
        first, second = torch.triu_indices(4, 4, 1)
        real = (first < E) & (second < E)
        weight = torch.full((int(real.sum()),), 2 / (E * (E - 1)), dtype=torch.float64)
        aligned = alignment_loss(
            factors,
            state.training["alpha_bar"][real],
            state.training["g"][real],
            weight,
            s.epsilon,
            s.sinkhorn_iterations,
        )
        assert aligned.item() > 1e-4
        assert after[r].item() == pytest.approx(expected + 3.0 * aligned.item(), abs=1e-12)


def test_lambda_zero_trains_the_backbone(graphs, uneven):
    settings = {"epochs": 5, "patience": None}
    plain = small("backbone", **settings).fit(graphs, uneven)
    off = small("brio", lambda_env=0.0, **settings).fit(graphs, uneven)
    on = small("brio", lambda_env=0.5, **settings).fit(graphs, uneven)
    for a, b, c in zip(plain, off, on, strict=True):
        assert bits(a.tensors, b.tensors)
        assert not torch.equal(a.parameters["w"], c.parameters["w"])
        assert a.block_length is None
        assert c.block_length is not None


def test_all_runs_are_refreshed_together_every_m_epochs(graphs, uneven, monkeypatch):
    seen, taken = [], []

    class CountedStep(trainer.Step):
        def __call__(self, scans, active, key, epoch):
            taken.append(epoch)
            super().__call__(scans, active, key, epoch)

    def refresh(self, stack, due, number):
        seen.append((max(taken), number, due.tolist()))

    monkeypatch.setattr(Brio, "refresh", refresh)
    monkeypatch.setattr(trainer, "Step", CountedStep)
    small(epochs=9, T_w=2, M=3, patience=None).fit(graphs, uneven)
    assert seen == [(2, 0, [True] * 3), (5, 1, [True] * 3), (8, 2, [True] * 3)], "after epochs 2, 5 and 8"


def test_optimisation_steps_are_those_that_were_taken(graphs, uneven, monkeypatch):
    taken = []

    class CountedStep(trainer.Step):
        def __call__(self, scans, active, key, epoch):
            taken.append(active.copy())
            super().__call__(scans, active, key, epoch)

    monkeypatch.setattr(trainer, "Step", CountedStep)
    fitted_runs = small(epochs=5, patience=None, cell_batch=1).fit(graphs, uneven)
    assert [o.steps for o in fitted_runs] == np.sum(taken, axis=0).tolist()
    assert {o.trained_epochs for o in fitted_runs} == {5}


@pytest.fixture(scope="module")
def stopping(graphs, cohort):
    """A method and five fitted runs that leave the stack at different epochs: the first to stop sit out for a while."""
    folds = ["abc/de/f", "bcde/f/a", "ef/ab/c", "acd/ef/b", "abf/cd/e"]
    method = small(epochs=20, T_w=3, M=12, patience=3)
    fits = method.fit(graphs, [Run(split(cohort, *f.split("/")), seed) for seed, f in enumerate(folds)])
    assert len({fitted.trained_epochs for fitted in fits}) >= 3
    return method, fits


def test_runs_of_a_stack_stop_on_their_own_and_equal_the_run_alone(graphs, stopping):
    method, fits = stopping
    for fitted in fits:
        (alone,) = method.fit(graphs, [fitted.run])
        assert (fitted.selected_epoch, fitted.trained_epochs) == (alone.selected_epoch, alone.trained_epochs)
        assert fitted.steps == alone.steps
        assert fitted.validation_auc == alone.validation_auc
        assert fitted.trained_epochs in (fitted.selected_epoch + 3, 20)
        assert fitted.tensors.keys() == alone.tensors.keys()
        for name, t in alone.tensors.items():
            torch.testing.assert_close(fitted.tensors[name], t, atol=1e-8, rtol=0)
        np.testing.assert_allclose(fitted.test_logit, alone.test_logit, atol=1e-8)


def test_the_validation_curve_tells_which_epoch_was_chosen(graphs, cohort, stopping, every_epoch):
    method, fits = stopping
    for fitted in fits:
        curve = fitted.details["validation_curve"]
        assert [epoch for epoch, _ in curve] == list(range(4, fitted.trained_epochs + 1)), "none of the warm-up"
        scores = [score for _, score in curve]
        assert max(scores) == pytest.approx(fitted.validation_auc, abs=1e-5)
        assert curve[scores.index(max(scores))][0] == fitted.selected_epoch
    (alone,) = method.fit(graphs, [fits[3].run])
    assert alone.details["validation_curve"] == fits[3].details["validation_curve"]
    state = every_epoch[-1]  # the last state of that run alone, scored by hand
    parameters, state = group_tensors({name: t[0] for name, t in state.items()})
    last = dataclasses.replace(alone, parameters=parameters, state=state)
    scans = alone.run.fold.validation
    expected = roc_auc_score(cohort.labels[scans], method.predict_margins(last, graphs, scans))
    assert alone.details["validation_curve"][-1] == [alone.trained_epochs, round(expected, 5)]


def test_without_a_selectable_epoch_the_settings_are_refused(graphs, uneven):
    with pytest.raises(BrioError):
        small(epochs=2, T_w=2).fit(graphs, uneven)


def test_tensors_of_a_fitted_run_do_not_hold_the_whole_stack_in_memory(graphs, uneven):
    for fitted in small(epochs=3, patience=None).fit(graphs, uneven):
        for name, t in fitted.tensors.items():
            assert t.untyped_storage().nbytes() == t.nbytes, name

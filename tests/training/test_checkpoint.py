"""A training that goes on from any of its checkpoints ends in the bits of one that was never interrupted."""

import json

import numpy as np
import pytest
import torch
from small_cohorts import small, split

from brio.connectome import Connectomes
from brio.methods import make_method
from brio.methods.mlp import MLP
from brio.results.store import read_checkpoint, write_checkpoint
from brio.training import Run
from brio.training.stack import Stack, StackedAdamW
from brio.training.trainer import BestValidationEpoch, ResumableTraining, StackCheckpoint, StackTraining


class InMemory:
    """Keeps the checkpoint of every epoch; its facts go through JSON."""

    def __init__(self, start: StackCheckpoint | None = None) -> None:
        self.start, self.stored = start, []

    def load(self):
        return self.start

    def is_due(self):
        return True

    def save(self, checkpoint):
        self.stored.append(StackCheckpoint(json.loads(json.dumps(checkpoint.facts)), checkpoint.tensors))


def facts(fitted):
    names = ("validation_auc", "selected_epoch", "trained_epochs", "block_length", "details", "steps")
    return {name: getattr(fitted, name) for name in names}


def assert_same(one, other):
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert json.dumps(facts(a)) == json.dumps(facts(b))  # NaN equals NaN
        assert np.array_equal(a.test_logit, b.test_logit, equal_nan=True)
        assert list(a.tensors) == list(b.tensors)
        assert all(torch.equal(a.tensors[name], b.tensors[name]) for name in a.tensors)
        assert all(a.tensors[name].dtype == b.tensors[name].dtype for name in a.tensors)
        assert np.array_equal(a.run.fold.test, b.run.fold.test)


@pytest.fixture(scope="module")
def five(cohort) -> list[Run]:
    """Runs that stop in unlike epochs, so that the stack shrinks."""
    folds = ["abc/de/f", "bcde/f/a", "ef/ab/c", "acd/ef/b", "abf/cd/e"]
    return [Run(split(cohort, *f.split("/")), seed) for seed, f in enumerate(folds)]


@pytest.mark.parametrize("which", ["some", pytest.param("all", marks=pytest.mark.soak)])
def test_from_any_epoch_of_a_stack_that_shrinks_and_is_refitted(which, cohort, five):
    graphs = Connectomes(cohort)
    epochs = {"epochs": 10, "patience": 2} if which == "some" else {"epochs": 16, "patience": 3}
    method = make_method("mlp", {**epochs, "cell_batch": 4, "width": 8, "refit": True})
    whole, stores = method.fit(graphs, five), InMemory()
    assert_same(whole, method.fit(graphs, five, checkpoints=stores))  # storing changes nothing
    sizes = [len(one.tensors["now/rows/order"]) for one in stores.stored]
    finished = [len(one.facts["finished"]) for one in stores.stored]
    shrunk, refit = next(k for k, size in enumerate(sizes) if size < 5), finished.index(1)
    assert shrunk < refit - 1, "the stack shrinks in the fit, and trains on"
    assert stores.stored[shrunk].facts["done"].keys() < stores.stored[refit - 1].facts["done"].keys()
    for number in (shrunk, refit) if which == "some" else range(len(sizes)):
        trained, rest = [], InMemory(stores.stored[number])
        fitted = method.fit(graphs, five, lambda message, share, to=trained: to.append(message), rest)
        assert_same(whole, fitted)
        # a training asks for no checkpoint after its last epoch
        assert len(trained) == len(rest.stored) + (1 if finished[number] else 2), "no epoch is trained again"
        assert [later.facts for later in rest.stored] == [later.facts for later in stores.stored[number + 1 :]]


def test_brio_goes_on_inside_and_between_its_stages(cohort, uneven, tmp_path):
    """Through a file, with the qualification, which is refreshed between steps."""
    graphs, runs = Connectomes(cohort), uneven[2:]
    stores = InMemory()
    whole = small(epochs=4, patience=None, T_w=1, M=2).fit(graphs, runs, checkpoints=stores)
    assert ["now/state/training/g" in one.tensors for one in stores.stored] == [False, True, True]
    for one in stores.stored[:2]:  # the end of the warm-up, and one epoch later
        write_checkpoint(tmp_path / "checkpoint.safetensors", "brio", 1.5, one)
        read, seconds = read_checkpoint(tmp_path / "checkpoint.safetensors", "brio")
        assert seconds == 1.5
        again = small(epochs=4, patience=None, T_w=1, M=2).fit(graphs, runs, checkpoints=InMemory(read))
        assert_same(whole, again)


def test_a_run_that_has_diverged_stays_so(graphs, uneven, monkeypatch):
    score = BestValidationEpoch.score
    first = uneven[0].fold.validation[0]

    def broken(self, logit):
        return np.where(self.scans[:, 0] == first, np.nan, score(self, logit))

    monkeypatch.setattr(BestValidationEpoch, "score", broken)
    method = make_method("mlp", {"epochs": 4, "patience": 2, "cell_batch": 4, "width": 8})
    stores = InMemory()
    whole = method.fit(graphs, uneven, checkpoints=stores)
    assert np.isnan(whole[0].validation_auc)
    for one in stores.stored:
        assert_same(whole, method.fit(graphs, uneven, checkpoints=InMemory(one)))


class OddMemory(MLP):
    """A method whose state lies in memory in another order than its axes, with a name that looks like a path."""

    def begin_stage(self, stack: Stack, stage) -> None:
        n = len(stack)
        stack.state.training["odd/name"] = torch.arange(6.0 * n).reshape(3, 2, n).permute(2, 1, 0)
        stack.state.training["shared"] = torch.ones(n, 1).expand(n, 4)
        stack.state.training["count"] = torch.arange(n)


def test_tensors_come_back_as_they_lay_in_memory(graphs, uneven):
    method, stores = OddMemory(MLP.Settings(epochs=2, cell_batch=4, width=8)), InMemory()
    whole = method.fit(graphs, uneven, checkpoints=stores)
    (one,) = stores.stored
    resumable, stack = ResumableTraining(InMemory(one)), Stack.build(method, graphs, uneven)
    optimiser = StackedAdamW(stack.params, 1e-3, 0.0)
    choice, rows = BestValidationEpoch(graphs.cohort, uneven, method.settings), np.arange(len(stack))
    now = StackTraining(stack, optimiser, choice, rows, rows >= 0, {})
    resumable.restore(now)
    odd = now.stack.state.training["odd/name"]
    assert (tuple(odd.shape), odd.stride()) == ((3, 2, 3), (1, 3, 6))
    assert torch.equal(odd, torch.arange(18.0).reshape(3, 2, 3).permute(2, 1, 0))
    assert torch.equal(now.stack.state.training["shared"], torch.ones(3, 4))
    assert now.stack.state.training["count"].dtype == torch.int64
    assert optimiser.params is now.stack.params
    assert all(p.requires_grad and p.is_leaf for p in now.stack.params.values())
    assert_same(whole, method.fit(graphs, uneven, checkpoints=InMemory(one)))


def test_a_checkpoint_says_where_it_was_stored():
    assert StackCheckpoint({"epoch": 7, "finished": []}, {}).describe() == "epoch 7"
    assert StackCheckpoint({"epoch": 7, "finished": [[], []]}, {}).describe() == "epoch 7 of training 3"

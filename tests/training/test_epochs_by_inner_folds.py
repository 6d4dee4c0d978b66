"""Runs without validation scans: inner folds of the source scans choose the number of epochs."""

import numpy as np
import pytest
import torch
from small_cohorts import cohort_of, small, split
from test_checkpoint import InMemory, assert_same

from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.console import silent
from brio.methods import make_method
from brio.protocol import make_inner_folds, make_training_fold
from brio.training import Run
from brio.training.trainer import BestMeanEpoch, GivenEpoch, ResumableTraining, _train_until_chosen

EPOCHS = 4
SOURCES = {"three": "abc", "two": "ab"}  # each site validates in turn; fifths of the participants do

REST = [("gcn", "ab"), ("brio", "abc")]


def method(name, **values):
    """A small network that trains for a few epochs."""
    if name == "gcn":
        return make_method(name, {"epochs": EPOCHS, "cell_batch": 2, "learning_rate": 3e-3, **values})
    return small(name, **{"epochs": EPOCHS, "patience": None, **values})


@pytest.fixture(scope="module")
def runs(cohort):
    return [Run(split(cohort, source, "", "f"), 3) for source in SOURCES.values()]


@pytest.mark.parametrize("name", ["gcn", pytest.param("brio", marks=pytest.mark.soak)])
def test_the_epoch_has_the_best_mean_auc_of_trainings_by_hand(graphs, cohort, runs, name):
    for run, fitted in zip(runs, method(name, patience=None).fit(graphs, runs), strict=True):
        inner = [Run(fold, run.seed) for fold in make_inner_folds(cohort, run.fold, run.seed)]
        curves = [one.details["validation_curve"] for one in method(name, patience=None).fit(graphs, inner)]
        mean = np.mean([[score for _, score in curve] for curve in curves], axis=0)
        epochs = [epoch for epoch, _ in curves[0]]
        np.testing.assert_allclose([score for _, score in fitted.details["validation_curve"]], mean, atol=2e-5)
        assert fitted.selected_epoch == epochs[int(np.argmax(mean))]
        assert fitted.validation_auc == pytest.approx(mean.max(), abs=2e-5)
        by_hand = GivenEpoch(np.array([fitted.selected_epoch]))
        (hand,) = _train_until_chosen(method(name), graphs, [run], by_hand, silent, ResumableTraining())
        for tensor, t in hand.tensors.items():
            torch.testing.assert_close(fitted.tensors[tensor], t, atol=1e-8, rtol=1e-8)
        np.testing.assert_allclose(fitted.test_logit, hand.test_logit, atol=1e-7)


@pytest.mark.parametrize("name", ["gcn", pytest.param("brio", marks=pytest.mark.soak)])
def test_a_run_in_a_stack_is_the_run_alone(graphs, runs, name):
    patient = method(name, patience=2)
    fits = patient.fit(graphs, runs)
    (alone,) = patient.fit(graphs, runs[1:])
    assert fits[1].run is runs[1]
    assert (alone.selected_epoch, alone.trained_epochs) == (fits[1].selected_epoch, fits[1].trained_epochs)
    assert alone.steps == fits[1].steps
    np.testing.assert_allclose(fits[1].test_logit, alone.test_logit, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "source"),
    [("gcn", "abc"), ("brio", "ab"), *(pytest.param(*case, marks=pytest.mark.soak) for case in REST)],
)
def test_labels_and_frames_of_the_test_site_reach_no_weight(rows, name, source):
    def fit(rows):
        cohort = cohort_of(rows)
        fold = split(cohort, source, "", "f")
        return method(name, epochs=4).fit(Connectomes(cohort, dtype=torch.float64), [Run(fold, 0)])[0]

    rng = np.random.default_rng(7)
    labels = iter(rng.permutation([label for site, label, _, _ in rows if site == "fox"]))
    other = [
        (s, int(next(labels)), w, rng.permutation(x)[: len(x) - 3]) if s == "fox" else (s, c, w, x)
        for s, c, w, x in rows
    ]
    real, noise = fit(rows), fit(other)
    assert real.tensors.keys() == noise.tensors.keys()
    assert [n for n in real.tensors if not torch.equal(real.tensors[n], noise.tensors[n])] == []
    assert (real.selected_epoch, real.details) == (noise.selected_epoch, noise.details)
    assert not np.array_equal(real.test_logit, noise.test_logit)


def test_labels_of_source_sites_do_choose(rows):
    """The test above could not fail if nothing moved the choice."""
    curves = []
    for flipped in (False, True):
        cohort = cohort_of([(s, 1 - c if flipped and s == "bee" else c, w, x) for s, c, w, x in rows])
        run = Run(split(cohort, "abc", "", "f"), 0)
        curves.append(method("gcn", epochs=1).fit(Connectomes(cohort), [run])[0].details["validation_curve"])
    assert curves[0] != curves[1]


def test_an_interrupted_training_goes_on_inside_and_after_the_inner_folds(graphs, runs):
    network, stores = make_method("mlp", {"epochs": 8, "patience": None, "width": 8, "cell_batch": 2}), InMemory()
    whole = network.fit(graphs, runs)
    assert_same(whole, network.fit(graphs, runs, checkpoints=stores))
    finished = [len(one.facts["finished"]) for one in stores.stored]
    assert finished.count(0) == 7
    assert 1 in finished, "else no training after the inner folds is interrupted"
    for start in (stores.stored[3], stores.stored[finished.index(1)]):
        assert_same(whole, network.fit(graphs, runs, checkpoints=InMemory(start)))


def test_a_run_whose_inner_folds_diverge_says_so(graphs, runs, monkeypatch):
    monkeypatch.setattr(BestMeanEpoch, "score", lambda self, logit: np.full(len(logit), np.nan))
    (fitted,) = method("gcn").fit(graphs, runs[:1])
    assert np.isnan(fitted.validation_auc)
    assert np.isnan(fitted.test_logit).all()
    assert len(fitted.test_logit) == len(runs[0].fold.test)


def test_progress_goes_forward(graphs, runs):
    shares = []
    method("gcn").fit(graphs, runs[:1], lambda message, share: shares.append(share))
    assert shares == sorted(shares)
    assert len(shares) > EPOCHS
    assert 0.8 < max(shares) <= 1


def test_a_network_that_cannot_be_called_without_scans_is_fitted_without_test_scans():
    cohort = simulate(Simulation(n_sites=2, per_class=4, n_rois=8, frames=50))
    run = Run(make_training_fold(cohort, 0, 0), 0)
    (fitted,) = make_method("gsat", {"epochs": 1, "cell_batch": 2}).fit(Connectomes(cohort), [run])
    assert len(fitted.test_logit) == 0

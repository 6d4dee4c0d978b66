"""AUC by ranks against scikit-learn, the selection rules, and which checkpoint is kept."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from small_cohorts import split

from brio.errors import BrioError
from brio.protocol import Fold
from brio.training import NeuralSettings, Run
from brio.training.trainer import BestValidationEpoch, rank_auc


def test_rank_auc_equals_scikit_learn_with_ties_and_padding():
    rng = np.random.default_rng(0)
    logit = rng.normal(size=(30, 25)).round(1)
    label = rng.integers(0, 2, (30, 25))
    mask = rng.random((30, 25)) > 0.3
    found = rank_auc(logit, label, mask)
    for r in range(30):
        assert found[r] == pytest.approx(roc_auc_score(label[r, mask[r]], logit[r, mask[r]]), abs=1e-12)


def test_rank_auc_of_a_diverged_run_is_nan():
    # a network that has diverged must not look like one that guesses, let alone like a good one
    label, mask = np.array([[0, 0, 1, 1]]), np.ones((1, 4), dtype=bool)
    assert np.isnan(rank_auc(np.full((1, 4), np.nan), label, mask)[0])
    assert np.isnan(rank_auc(np.array([[0.0, 1.0, np.nan, np.nan]]), label, mask)[0])


def runs_of(cohort):
    return [Run(split(cohort, "abc", "de", "f"), 0), Run(split(cohort, "bcd", "f", "a"), 0)]


def test_rules_pool_the_scans_or_average_the_sites(cohort):
    runs = runs_of(cohort)
    rng = np.random.default_rng(1)
    for rule in ("pooled", "site-mean"):
        validation = BestValidationEpoch(cohort, runs, NeuralSettings(validation_auc=rule))
        logit = rng.normal(size=validation.scans.shape)
        found = validation.score(logit)
        for r, run in enumerate(runs):
            scans = run.fold.validation
            assert validation.scans[r, : len(scans)].tolist() == scans.tolist()
            z, y, site = logit[r, : len(scans)], cohort.labels[scans], cohort.sites[scans]
            pooled = roc_auc_score(y, z)
            by_site = np.mean([roc_auc_score(y[site == s], z[site == s]) for s in np.unique(site)])
            assert found[r] == pytest.approx(pooled if rule == "pooled" else by_site, abs=1e-12)


def test_site_mean_ignores_shifts_between_sites_and_sites_of_one_class(cohort):
    fold = split(cohort, "abc", "de", "f")
    lone = np.flatnonzero((cohort.sites == "fox") & (cohort.labels == 1))[:2]
    fold = Fold("x", fold.source, np.concatenate([fold.validation, lone]), fold.test, (), ())
    validation = BestValidationEpoch(cohort, [Run(fold, 0)], NeuralSettings(validation_auc="site-mean"))
    z = np.random.default_rng(2).normal(size=validation.scans.shape)
    shifted = z + np.where(validation.site == "dog", 100.0, 0.0)
    base = validation.score(z)
    assert base == pytest.approx(validation.score(shifted))
    aucs = [
        roc_auc_score(validation.label[0, here], z[0, here])
        for here in (validation.site[0] == "dog", validation.site[0] == "elk")
    ]
    assert base[0] == pytest.approx(np.mean(aucs))


def offered(validation, scores, monkeypatch):
    """Offer checkpoints with given scores; each state is its epoch number."""
    for epoch, score in enumerate(scores, start=1):
        monkeypatch.setattr(type(validation), "score", lambda self, _, score=score: np.asarray(score, dtype=float))
        validation.consider(lambda scans: np.zeros(scans.shape), {"w": torch.full((2, 3), float(epoch))}, epoch)
    monkeypatch.undo()


def test_the_first_best_checkpoint_is_kept_for_each_run(cohort, monkeypatch):
    validation = BestValidationEpoch(cohort, runs_of(cohort), NeuralSettings())
    offered(validation, [(0.5, 0.7), (0.6, 0.7), (0.6, 0.2), (0.4, 0.8), (0.6, 0.8)], monkeypatch)
    assert validation.best.tolist() == [0.6, 0.8]
    assert validation.epoch.tolist() == [2, 4]
    assert validation.checkpoint["w"][:, 0].tolist() == [2.0, 4.0]


def test_kept_checkpoints_are_copies(cohort):
    validation = BestValidationEpoch(cohort, runs_of(cohort), NeuralSettings())
    state = {"w": torch.zeros(2, 3)}
    validation.consider(lambda scans: np.random.default_rng(0).normal(size=scans.shape), state, 1)
    state["w"] += 1
    assert (validation.checkpoint["w"] == 0).all()


def test_validation_scans_of_one_class_are_refused(cohort):
    fold = split(cohort, "abc", "de", "f")
    ones = fold.validation[cohort.labels[fold.validation] == 1]
    with pytest.raises(BrioError, match="one class"):
        BestValidationEpoch(cohort, [Run(Fold("x", fold.source, ones, fold.test, (), ("dog",)), 0)], NeuralSettings())

"""Training again on source and validation scans, to the epoch that the validation scans chose."""

import numpy as np
import pytest
import torch
from small_cohorts import small, split

from brio.errors import BrioError
from brio.protocol import Fold
from brio.training import Run
from brio.training.trainer import BestValidationEpoch, GivenEpoch


def test_it_is_a_training_on_all_scans_that_ends_at_the_chosen_epoch(graphs, cohort, uneven, monkeypatch):
    words = {"epochs": 9, "patience": None, "M": 16}
    first = small(**words).fit(graphs, uneven)
    again = small(**words, refit=True).fit(graphs, uneven)
    assert len({o.selected_epoch for o in first}) > 1  # else the runs' own ends are not seen
    for run, one, two in zip(uneven, first, again, strict=True):
        assert (two.run, two.validation_auc, two.selected_epoch) == (run, one.validation_auc, one.selected_epoch)
        assert (two.details, two.trained_epochs, two.steps) == (one.details, one.trained_epochs, one.steps)
        assert not np.allclose(two.test_logit, one.test_logit)
        # by hand: all scans are source, other scans stand in for validation and the last epoch is taken
        monkeypatch.setattr(BestValidationEpoch, "score", lambda self, logit: np.nextafter(self.best.clip(0), 2))
        merged = np.sort(np.concatenate([run.fold.source, run.fold.validation]))
        fold = Fold("by hand", merged, run.fold.test, run.fold.test, (), ())
        (hand,) = small(**words | {"epochs": one.selected_epoch}).fit(graphs, [Run(fold, run.seed)])
        monkeypatch.undo()
        assert hand.tensors.keys() == two.tensors.keys()
        for name, t in hand.tensors.items():
            torch.testing.assert_close(two.tensors[name], t, atol=1e-8, rtol=1e-8)
        np.testing.assert_allclose(two.test_logit, hand.test_logit, atol=1e-7)


def test_patience_and_runs_that_stop_early_change_nothing(graphs, uneven):
    method = small(epochs=12, patience=3, M=16, refit=True)
    together = method.fit(graphs, uneven[1:])
    for run, fitted in zip(uneven[1:], together, strict=True):
        (alone,) = method.fit(graphs, [run])
        assert alone.selected_epoch == fitted.selected_epoch
        assert alone.trained_epochs == fitted.trained_epochs
        np.testing.assert_allclose(fitted.test_logit, alone.test_logit, atol=1e-7)


def test_a_second_training_that_diverges_is_told(graphs, uneven, monkeypatch):
    consider = GivenEpoch.consider

    def broken(self, margins, state, epoch):
        consider(self, margins, {n: t * np.nan if t.is_floating_point() else t for n, t in state.items()}, epoch)

    monkeypatch.setattr(GivenEpoch, "consider", broken)
    method = small(epochs=4, patience=None, refit=True)
    (fitted,) = method.fit(graphs, uneven[:1])
    assert np.isnan(fitted.validation_auc)
    with pytest.raises(BrioError, match="diverged"):
        fitted.require_finite("brio")


def test_what_was_learned_from_is_told(graphs, cohort, uneven):
    fold = uneven[0].fold
    plain, again = small(), small(refit=True)
    assert plain.training_scans(cohort, fold) is fold.source
    both = np.sort(np.concatenate([fold.source, fold.validation]))
    assert again.training_scans(cohort, fold).tolist() == both.tolist()
    assert again.bytes_per_run(graphs, uneven[0]) > plain.bytes_per_run(graphs, uneven[0])


def test_a_run_that_has_diverged_is_not_trained_again(graphs, uneven, monkeypatch):
    score = BestValidationEpoch.score

    def broken(self, logit):
        return np.where(np.arange(len(logit)) == 1, np.nan, score(self, logit))

    monkeypatch.setattr(BestValidationEpoch, "score", broken)
    fitted_runs = small(epochs=4, patience=None, refit=True).fit(graphs, uneven)
    assert [o.selected_epoch is None for o in fitted_runs] == [False, True, False]
    assert np.isnan(fitted_runs[1].test_logit).all()
    assert np.isfinite(fitted_runs[2].test_logit).all()


def test_the_merged_fold_leaves_out_what_could_not_be_source(cohort):
    fold = split(cohort, "abc", "de", "f")
    without = Fold(fold.name, fold.source, fold.validation, fold.test, (), ("dog", "elk"), one_class_sites=("elk",))
    merged = without.move_validation_to_source(cohort)
    assert set(cohort.sites[merged.source]) == {"ant", "bee", "cat", "dog"}
    assert (np.diff(merged.source) > 0).all()
    assert len(merged.validation) == 0
    assert merged.test is fold.test

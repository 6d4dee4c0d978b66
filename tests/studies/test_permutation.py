"""The permutation study: uniform p values where nothing is planted, a small one where something is."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import brio
from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.jobs import JobSpec
from brio.methods import make_method
from brio.protocol import auc, leave_one_site_out
from brio.studies import StudyContext, refits, run_study
from brio.studies.refits import compute_p, permute_labels, relabel_cohort, score_label_columns
from brio.training import Run

NOTHING = {"stable": 0.0, "unstable": 0.0, "spurious": 0.0, "dead_share": 0.0}


@pytest.fixture(scope="module")
def cohort():
    return simulate(Simulation(n_sites=5, per_class=5, n_rois=12, frames=60, stable=0.9))


@pytest.fixture
def fewer(monkeypatch):
    monkeypatch.setattr(refits, "PERMUTATIONS_IN_CLOSED_FORM", 60)
    monkeypatch.setattr(refits, "PERMUTATIONS", 2)


def run(cohort, out, *methods, seeds=2, validation_sites=0):
    settings = {"protocol.validation_sites": validation_sites}
    context = StudyContext(JobSpec(cohort, methods, seeds=seeds, settings=settings, device="cpu"), out)
    return run_study("permutation", context)


@pytest.mark.usefixtures("fewer")
def test_planted_signal_beats_every_permutation(cohort, tmp_path):
    place = run(cohort, tmp_path)
    table = pd.read_csv(place / "table.csv")
    assert table["permutation"].tolist() == list(range(61))
    assert (table["arm"] == "ridge,choose_by=source-sites").all()
    for column in ("auc", "pair_weighted_auc"):
        observed, permuted = table[column].iloc[0], table[column].iloc[1:]
        assert observed > 0.9 > permuted.max()
        assert 0.4 < permuted.mean() < 0.6
    text = (place / "finding.md").read_text()
    assert "ridge, mean over sites" in text
    assert "p = 0.016" in text, "1 / 61"
    assert "smoke" in text, "two seeds"
    assert json.loads((place / "study.json").read_text())["arms"] == ["ridge,choose_by=source-sites"]


@pytest.mark.usefixtures("fewer", "undrawn")
@pytest.mark.parametrize("validation_sites", [0, 2])
def test_rows_are_ordinary_runs_on_permuted_labels(cohort, tmp_path, validation_sites):
    table = pd.read_csv(run(cohort, tmp_path / "study", validation_sites=validation_sites) / "table.csv")
    labels = permute_labels(cohort, 60)
    settings = {"protocol.validation_sites": validation_sites}
    settings |= {} if validation_sites else {"choose_by": "source-sites"}
    options = {"seeds": 2, "settings": settings, "exclude": False, "device": "cpu"}
    result = brio.run(relabel_cohort(cohort, labels[:, 1]), ["ridge"], out=tmp_path / "run", **options)
    by_site = result.rows.groupby("fold")["auc"].mean()
    assert table["auc"][2] == pytest.approx(by_site.mean(), abs=1e-6), "the table has six digits"
    one_seed = result.predictions[result.predictions["seed"] == 0].groupby("fold")["label"]
    pairs = one_seed.sum() * (one_seed.size() - one_seed.sum())
    assert table["pair_weighted_auc"][2] == pytest.approx((by_site * pairs).sum() / pairs.sum(), abs=1e-6)


@pytest.mark.usefixtures("fewer", "undrawn")
def test_other_methods_are_run_on_permuted_cohorts_and_resumed(cohort, tmp_path, monkeypatch):
    place = run(cohort, tmp_path, "svm", seeds=1)
    table = pd.read_csv(place / "table.csv")
    assert table["permutation"].tolist() == [0, 1, 2]
    assert table["auc"].nunique() == 3
    method, folds = make_method("svm", {"choose_by": "source-sites"}), leave_one_site_out(cohort, 0, 0)
    labels = permute_labels(cohort, 2)
    relabelled = Connectomes(relabel_cohort(cohort, labels[:, 1]))
    fits = method.fit(relabelled, [Run(fold, 0) for fold in folds])
    expected = np.mean([auc(labels[f.run.fold.test, 1], f.test_logit) for f in fits])
    assert table["auc"][2] == pytest.approx(expected, abs=1e-6)

    def refuse(*given):
        raise AssertionError("trained again")

    monkeypatch.setattr(type(method), "fit", refuse)
    again = run(cohort, tmp_path, "svm", seeds=1)
    pd.testing.assert_frame_equal(pd.read_csv(again / "table.csv"), table)


def p_of_empty_cohort(seed):
    cohort = simulate(Simulation(n_sites=4, per_class=4, n_rois=8, frames=40, seed=seed, **NOTHING))
    labels = np.column_stack([cohort.labels, permute_labels(cohort, 99)])
    method = make_method("ridge", {"choose_by": "source-sites", "penalties": 3})
    runs = [Run(fold, 0) for fold in leave_one_site_out(cohort, 0, 0)]
    scores = score_label_columns(method, Connectomes(cohort), runs, labels).mean(axis=0).to_numpy()
    return compute_p(scores[0], scores[1:])


@pytest.mark.soak
def test_p_is_uniform_where_nothing_is_planted():
    p = [p_of_empty_cohort(seed) for seed in range(25)]
    assert stats.kstest(p, "uniform").pvalue > 0.05


@pytest.mark.soak
def test_p_is_uniform_over_many_cohorts():
    p = np.array([p_of_empty_cohort(seed) for seed in range(300)])
    assert stats.kstest(p, "uniform").pvalue > 0.05
    for level in (0.05, 0.1, 0.2):
        assert stats.binomtest(int((p <= level).sum()), len(p), level).pvalue > 0.05


def test_p_counts_ties_and_the_observed_value():
    assert compute_p(0.5, np.array([0.5, 0.4, 0.6])) == 3 / 4
    assert compute_p(0.9, np.zeros(999)) == 1 / 1000

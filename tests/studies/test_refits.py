"""Permuted labels and learning curves: p is uniform where nothing is planted, curves rise where something is."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from study_contexts import make_study

import brio
from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.methods import make_method
from brio.protocol import auc, leave_one_site_out
from brio.studies import refits
from brio.studies.refits import (
    compute_p,
    keep_participants,
    keep_sites,
    permute_labels,
    relabel_cohort,
    score_label_columns,
)
from brio.training import Run

QUIET = {"unstable": 0.0, "spurious": 0.0, "dead_share": 0.0}
BY_SOURCE = {"choose_by": "source-sites"}
ARM = "ridge,choose_by=source-sites"


# ---------------------------------------------------------------- permutations


@pytest.fixture(scope="module")
def separable():
    return simulate(Simulation(n_sites=5, per_class=5, n_rois=12, frames=60, stable=0.9))


@pytest.fixture
def fewer(monkeypatch):
    monkeypatch.setattr(refits, "PERMUTATIONS_IN_CLOSED_FORM", 60)
    monkeypatch.setattr(refits, "PERMUTATIONS", 2)


@pytest.mark.usefixtures("fewer")
@pytest.mark.parametrize("validation_sites", [0, 2])
def test_planted_signal_beats_every_permutation_and_rows_are_ordinary_runs(separable, tmp_path, validation_sites):
    settings = {"protocol.validation_sites": validation_sites}
    place = make_study("permutation", separable, tmp_path / "study", seeds=2, settings=settings)
    table, arm = pd.read_csv(place / "table.csv"), "ridge" if validation_sites else ARM
    assert table["permutation"].tolist() == list(range(61))
    assert json.loads((place / "study.json").read_text())["arms"] == [arm] == table["arm"].unique().tolist()
    for column in ("auc", "pair_weighted_auc"):
        observed, permuted = table[column].iloc[0], table[column].iloc[1:]
        assert observed > 0.9 > permuted.max()
        assert 0.4 < permuted.mean() < 0.6
    text = (place / "finding.md").read_text()
    for words in ("ridge, mean over sites", "p = 0.016", "smoke"):  # 1 / 61, two seeds
        assert words in text
    labels = permute_labels(separable, 60)
    settings |= {} if validation_sites else BY_SOURCE
    options = {"seeds": 2, "settings": settings, "exclude": False, "device": "cpu"}
    result = brio.run(relabel_cohort(separable, labels[:, 1]), ["ridge"], out=tmp_path / "run", **options)
    by_site = result.rows.groupby("fold")["auc"].mean()
    assert table["auc"][2] == pytest.approx(by_site.mean(), abs=1e-6), "the table has six digits"
    one_seed = result.predictions[result.predictions["seed"] == 0].groupby("fold")["label"]
    pairs = one_seed.sum() * (one_seed.size() - one_seed.sum())
    assert table["pair_weighted_auc"][2] == pytest.approx((by_site * pairs).sum() / pairs.sum(), abs=1e-6)


@pytest.mark.usefixtures("fewer", "undrawn")
def test_other_methods_are_run_on_permuted_cohorts_and_resumed(separable, tmp_path, monkeypatch):
    table = pd.read_csv(make_study("permutation", separable, tmp_path, ["svm"]) / "table.csv")
    assert table["permutation"].tolist() == [0, 1, 2]
    assert table["auc"].nunique() == 3
    method, folds = make_method("svm", BY_SOURCE), leave_one_site_out(separable, 0, 0)
    labels = permute_labels(separable, 2)
    relabelled = Connectomes(relabel_cohort(separable, labels[:, 1]))
    fits = method.fit(relabelled, [Run(fold, 0) for fold in folds])
    expected = np.mean([auc(labels[f.run.fold.test, 1], f.test_logit) for f in fits])
    assert table["auc"][2] == pytest.approx(expected, abs=1e-6)
    monkeypatch.setattr(type(method), "fit", lambda *given: pytest.fail("trained again"))
    again = make_study("permutation", separable, tmp_path, ["svm"])
    pd.testing.assert_frame_equal(pd.read_csv(again / "table.csv"), table)


def p_of_empty_cohort(seed):
    cohort = simulate(Simulation(n_sites=4, per_class=4, n_rois=8, frames=40, seed=seed, stable=0.0, **QUIET))
    labels = np.column_stack([cohort.labels, permute_labels(cohort, 99)])
    method = make_method("ridge", BY_SOURCE | {"penalties": 3})
    runs = [Run(fold, 0) for fold in leave_one_site_out(cohort, 0, 0)]
    scores = score_label_columns(method, Connectomes(cohort), runs, labels).mean(axis=0).to_numpy()
    return compute_p(scores[0], scores[1:])


@pytest.mark.soak
def test_p_is_uniform_where_nothing_is_planted():
    p = np.array([p_of_empty_cohort(seed) for seed in range(300)])
    assert stats.kstest(p, "uniform").pvalue > 0.05
    for level in (0.05, 0.1, 0.2):
        assert stats.binomtest(int((p <= level).sum()), len(p), level).pvalue > 0.05


def test_p_counts_ties_and_the_observed_value():
    assert compute_p(0.5, np.array([0.5, 0.4, 0.6])) == 3 / 4
    assert compute_p(0.9, np.zeros(999)) == 1 / 1000


# ---------------------------------------------------------------- learning curves


@pytest.fixture(scope="module")
def learnable():
    return simulate(Simulation(n_sites=9, per_class=10, n_rois=16, frames=60, stable=0.3, **QUIET))


@pytest.fixture(scope="module")
def place(learnable, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"SITE_COUNTS": (2, 4, 12), "SHARES": (0.2, 0.5), "DRAWS": 2}.items():
            patch.setattr(refits, name, value)
        out = tmp_path_factory.mktemp("learning")
        yield make_study("learning-curve", learnable, out, settings={"penalties": 3})


@pytest.fixture(scope="module")
def rows(place):
    table = pd.read_csv(place / "table.csv")
    return table.assign(size=table["size"].replace("all", "inf").astype(float))


@pytest.mark.parametrize("axis", ["sites", "participants"])
def test_curves_rise_to_the_ordinary_run(rows, place, axis):
    own = rows[rows["axis"] == axis]
    means = own.groupby("size")["auc"].mean()
    assert means.is_monotonic_increasing
    assert means.loc[np.inf] - means.iloc[0] > 0.05
    results = pd.read_csv(place.parent.parent / "arms" / "loso" / ARM / "results.csv")
    last, ordinary = (t.set_index(["fold", "seed"])["auc"].sort_index() for t in (own[np.isinf(own["size"])], results))
    assert last.to_numpy() == pytest.approx(ordinary.to_numpy(), abs=1e-6)


def test_sizes_are_what_they_say(rows):
    sites, people = (rows[rows["axis"] == axis] for axis in ("sites", "participants"))
    assert sorted(sites["size"].unique()) == [2, 4, np.inf], "twelve sites are more than there are"
    assert (sites["source_sites"] == sites["size"].clip(upper=8)).all()
    assert (people["source_sites"] == 8).all()
    share = people["source_participants"] / people.groupby(["fold", "seed"])["source_participants"].transform("max")
    assert (share - people["size"].clip(upper=1)).abs().max() < 0.06


@pytest.mark.parametrize(("axis", "size", "keep"), [("sites", 4, keep_sites), ("participants", 0.5, keep_participants)])
def test_every_point_is_an_ordinary_fit_on_fewer_source_scans(rows, learnable, axis, size, keep):
    fold = leave_one_site_out(learnable, 0, 0)[4]
    method = make_method("ridge", BY_SOURCE | {"penalties": 3})
    (fitted,) = method.fit(Connectomes(learnable), [Run(keep(fold, learnable, size, 0, 1), 0)])
    point = {"axis": axis, "size": size, "fold": fold.name, "seed": 0, "draw": 1}
    found = rows[(rows[list(point)] == pd.Series(point)).all(axis=1)]
    assert found["auc"].item() == pytest.approx(auc(learnable.labels[fold.test], fitted.test_logit), abs=1e-6)


def test_subsets_are_nested_balanced_and_leave_the_test_site_whole(learnable):
    fold, sites = leave_one_site_out(learnable, 0, 2)[0], learnable.sites
    few, more = (keep_sites(fold, learnable, count, 0, 3) for count in (2, 5))
    tenth, half = (keep_participants(fold, learnable, share, 0, 3) for share in (0.01, 0.5))
    for smaller, larger in ((few, more), (tenth, half)):
        assert set(smaller.source) < set(larger.source) < set(fold.source)
    kept = np.unique(sites[few.source])
    assert len(kept) == 2
    assert set(np.flatnonzero(np.isin(sites, kept))) == set(few.source), "sites are whole"
    cells = pd.DataFrame({"site": sites[tenth.source], "label": learnable.labels[tenth.source]}).value_counts()
    assert (cells == 1).all()
    assert len(cells) == 2 * len(np.unique(sites[fold.source]))
    for subset in (few, more, tenth, half):
        np.testing.assert_array_equal(subset.test, fold.test)
        np.testing.assert_array_equal(subset.validation, fold.validation)
    for seed, draw in ((0, 4), (1, 3)):
        assert set(keep_sites(fold, learnable, 2, seed, draw).source) != set(few.source)

"""The linear family against scikit-learn and nilearn on explicit features, and the controls."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from contract_cohorts import split
from sklearn.covariance import OAS, oas
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import roc_auc_score
from sklearn.svm import SVC

from brio import run as evaluate
from brio.cohort import Cohort
from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.methods import find_method, list_methods, make_method
from brio.methods.linear.base import HeldRows
from brio.methods.linear.tangent import geometric_mean, map_to_tangent_space, shrink_correlations
from brio.training import Run

WHOLE = Simulation(n_sites=6, per_class=6, n_rois=12, frames=80, dead_share=0.0, stable=0.6)


@pytest.fixture(scope="module")
def graphs():
    return Connectomes(simulate(WHOLE), dtype=torch.float64)


@pytest.fixture(scope="module")
def fold(graphs):
    return split(graphs.cohort, [1, 2, 3], [4, 5], [6])


def entries(graphs):
    u, v = np.triu_indices(graphs.n_rois, 1)
    return graphs.full.numpy()[:, u, v]


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("ridge", lambda penalty: RidgeClassifier(alpha=penalty)),
        ("logistic", lambda penalty: LogisticRegression(C=4 / penalty, tol=1e-10, max_iter=10000)),
        ("svm", lambda penalty: SVC(C=1 / penalty, kernel="linear", tol=1e-8)),
    ],
)
def test_margins_are_those_of_scikit_learn_on_the_entries(graphs, fold, name, make):
    method = make_method(name)
    (fitted,) = method.fit(graphs, [Run(fold, 0)])
    X, y = entries(graphs), graphs.cohort.labels
    centre = X[fold.source].mean(0)
    scale = ((X[fold.source] - centre) ** 2).sum(1).mean()
    models = [make(p).fit(X[fold.source] - centre, y[fold.source]) for p in method.settings.grid * scale]
    scores = [roc_auc_score(y[fold.validation], m.decision_function(X[fold.validation] - centre)) for m in models]
    best = max(
        np.flatnonzero(np.isclose(scores, max(scores), rtol=0, atol=1e-12))
    )  # of equal ones the strongest penalty
    assert fitted.validation_auc == pytest.approx(scores[best], abs=1e-9)
    assert fitted.details["penalty"] == pytest.approx(method.settings.grid[best] * scale)
    expected = models[best].decision_function(X[fold.test] - centre)
    np.testing.assert_allclose(fitted.test_logit, expected, atol=2e-3)


def test_choice_by_source_sites_leaves_each_out_in_turn(graphs, fold):
    method = make_method("ridge", {"choose_by": "source-sites"})
    X, y, site = entries(graphs), graphs.cohort.labels, graphs.cohort.sites
    x = X[fold.source]
    penalties = method.settings.grid * ((x - x.mean(0)) ** 2).sum(1).mean()
    scores = []
    for penalty in penalties:
        aucs = []
        for left in np.unique(site[fold.source]):
            inside, out = (fold.source[(site[fold.source] == left) == withheld] for withheld in (False, True))
            model = RidgeClassifier(alpha=penalty).fit(X[inside], y[inside])
            aucs.append(roc_auc_score(y[out], model.decision_function(X[out])))
        scores.append(np.mean(aucs))
    best = max(np.flatnonzero(np.isclose(scores, max(scores), rtol=0, atol=1e-12)))  # of equal ones the strongest
    model = RidgeClassifier(alpha=penalties[best]).fit(x, y[fold.source])
    (fitted,) = method.fit(graphs, [Run(fold, 0)])
    assert fitted.details["penalty"] == pytest.approx(penalties[best])
    np.testing.assert_allclose(fitted.parameters["coefficients"].numpy(), model.coef_.ravel(), atol=1e-9)
    expected = roc_auc_score(y[fold.validation], model.decision_function(X[fold.validation]))
    assert fitted.validation_auc == pytest.approx(expected)


def test_validation_scans_of_one_class_have_no_part_in_a_choice_by_source_sites(graphs, fold):
    validation = fold.validation[graphs.cohort.labels[fold.validation] == 1]
    one_class = Run(replace(fold, validation=validation), 0)
    without = Run(replace(fold, validation=validation[:0], validation_sites=()), 0)
    fitted, expected = make_method("ridge", {"choose_by": "source-sites"}).fit(graphs, [one_class, without])
    assert fitted.validation_auc == expected.validation_auc
    np.testing.assert_array_equal(fitted.test_logit, expected.test_logit)


def test_zero_filling_of_dead_rois_is_a_setting():
    graphs = Connectomes(simulate(replace(WHOLE, dead_share=0.3)))
    run = Run(split(graphs.cohort, [1, 2, 3], [4, 5], [6]), 0)
    (zero,), (filled,) = (
        make_method("ridge", {"dead_rois": how}).fit(graphs, [run]) for how in ("zero", "source-mean")
    )
    assert (zero.state.learned["mean"] == 0).all()
    dead = ~graphs.alive[run.fold.test].all(1).numpy()
    assert 0 < dead.sum() < len(dead)
    assert np.abs(filled.test_logit - zero.test_logit)[dead].max() > 1e-6


def test_shrinkage_is_scikit_learns_oas(graphs):
    for i in (0, 7, 20):
        x = graphs.scan(i).numpy()
        expected, share = oas(x)
        assert 0 < share < 1
        found = shrink_correlations(graphs.full[i : i + 1], torch.tensor([float(len(x))]), None)[0]
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)
        fixed = shrink_correlations(graphs.full[i : i + 1], torch.tensor([float(len(x))]), 0.25)[0].numpy()
        np.testing.assert_allclose(fixed, 0.75 * np.corrcoef(x.T) + 0.25 * np.eye(12), atol=1e-5)


def test_map_to_tangent_space_are_nilearns(graphs, fold):
    from nilearn.connectome import ConnectivityMeasure
    from nilearn.connectome.connectivity_matrices import _geometric_mean

    scans = [graphs.scan(int(i)).numpy() for i in fold.source]
    theirs = ConnectivityMeasure(OAS(store_precision=False), kind="tangent", standardize="zscore_sample").fit(scans)
    S = torch.stack(
        [
            shrink_correlations(graphs.full[int(i)][None], torch.tensor([float(len(x))]), None)[0]
            for i, x in zip(fold.source, scans, strict=True)
        ]
    )
    mean = geometric_mean(S, iterations=50)
    np.testing.assert_allclose(mean.numpy(), _geometric_mean(list(S.numpy()), max_iter=60, tol=1e-10), atol=1e-6)
    whitening = torch.from_numpy(theirs.whitening_)
    found = map_to_tangent_space(S[:3], whitening).numpy()
    from nilearn.connectome import sym_matrix_to_vec

    for k in range(3):
        W = theirs.whitening_ @ S[k].numpy() @ theirs.whitening_
        size, axes = np.linalg.eigh(W)
        T = (axes * np.log(size)) @ axes.T
        norm = np.linalg.norm(T)
        assert np.linalg.norm(found[k]) == pytest.approx(norm)
        upper = sym_matrix_to_vec(T) * np.sqrt(2)  # nilearn keeps the lower triangle, row by row
        np.testing.assert_allclose(np.sort(found[k]), np.sort(upper), atol=1e-8)


def test_the_reference_is_the_mean_of_the_source_alone(graphs, fold):
    method = make_method("tangent-ridge")
    (fitted,) = method.fit(graphs, [Run(fold, 0)])
    index = torch.from_numpy(fold.source)
    S = shrink_correlations(graphs.full[index], torch.from_numpy(graphs.n_frames[fold.source]).double(), None)
    W = fitted.state.learned["whitening"]
    torch.testing.assert_close(W @ S.mean(0) @ W, torch.eye(12, dtype=torch.float64), atol=1e-8, rtol=0)


def test_fc_and_tangent_together_have_equal_weight(graphs, fold):
    method = make_method("fc-tangent-ridge")
    run = Run(fold, 0)
    (fitted,) = method.fit(graphs, [run])
    x = method.extract_features(method.gather_inputs(graphs).take(torch.from_numpy(fold.source)), fitted.state.learned)
    x = x - x.mean(0)
    n_fc = 12 * 11 // 2
    assert (x[:, :n_fc] ** 2).sum(1).mean() == pytest.approx(1.0)
    assert (x[:, n_fc:] ** 2).sum(1).mean() == pytest.approx(1.0)


def shortcut_cohort(what):
    """Scans of pure noise in which age, length or a dead ROI goes with the diagnosis."""
    rng = np.random.default_rng(0)
    scans, site, label, age, sex = [], [], [], [], []
    for e in range(6):
        for k in range(16):
            c = k % 2
            n = 60 + (15 * c if what == "length-only" else 0) + int(rng.integers(0, 10))
            x = rng.normal(size=(n, 8))
            if what == "dead-rois-only" and c and k % 4 == 1:
                x[:, 3] = 0.0
            scans.append(x)
            site.append(f"s{e}")
            label.append(c)
            age.append(20 + (8 * c if what == "covariates-only" else 0) + rng.normal(0, 4))
            sex.append(rng.choice(["F", "M"]))
    import pandas as pd

    extra = pd.DataFrame({"age": age, "sex": sex, "mean_fd": rng.uniform(0.1, 0.3, len(age)), "tr": 2.0})
    extra.loc[5, "mean_fd"] = np.nan
    return Cohort.from_scans(scans, site=site, label=label, covariates=extra)


@pytest.mark.parametrize("name", ["covariates-only", "length-only", "dead-rois-only"])
def test_a_control_finds_its_shortcut_and_says_so(name):
    assert find_method(name).control
    result = evaluate(shortcut_cohort(name), [name], device="cpu", exclude=False)
    assert result.rows["auc"].mean() > 0.6
    (warning,) = result.summary.warnings
    assert warning.startswith(f"{name} reaches AUC")
    assert "at unseen sites" in warning
    folds = evaluate(shortcut_cohort(name), [name], device="cpu", exclude=False, protocol="kfold")
    assert "in test folds" in folds.summary.warnings[0]
    others = [n for n in ("covariates-only", "length-only", "dead-rois-only") if n != name]
    quiet = evaluate(shortcut_cohort(name), others, device="cpu", exclude=False)
    assert quiet.rows.groupby("method")["auc"].mean().between(0.3, 0.65).all()


@pytest.mark.parametrize("n_features", [1, 2, 7, 116, 6670])
def test_scans_with_equal_features_have_equal_margins(n_features):
    rng = np.random.default_rng(n_features)
    kinds, kind = rng.normal(size=(3, n_features)), np.arange(53) % 3
    rows = HeldRows(kinds, kinds.mean(0), lambda scans: kinds[kind[scans]])
    coefficients = rng.normal(size=n_features)
    margins = rows.project(np.arange(53), coefficients)
    assert len(set(margins.tolist())) == 3
    np.testing.assert_allclose(margins, (kinds[kind] - kinds.mean(0)) @ coefficients, atol=1e-10)


@pytest.mark.parametrize("classes", [("F", "M"), ("0", "1")])
def test_a_control_that_is_given_the_label_is_not_called_a_shortcut(classes):
    cohort = shortcut_cohort("nothing")
    sex = np.where(cohort.labels == 1, "M", "F")
    cohort = replace(cohort, classes=classes, participants=cohort.participants.assign(sex=sex))
    result = evaluate(cohort, ["covariates-only"], device="cpu", exclude=False)
    assert result.rows["auc"].mean() > 0.95
    (warning,) = result.summary.warnings
    assert warning.startswith("covariates-only is given sex, which is the label here")
    assert "leave it out" in warning


@pytest.mark.parametrize(("name", "solutions"), [("ridge", 2), ("core-scaffold", 4)])
def test_seeds_with_the_same_scans_share_a_solution_where_nothing_is_drawn(graphs, fold, name, solutions, monkeypatch):
    other = split(graphs.cohort, [1, 2, 4], [3, 5], [6])
    method = make_method(name)
    calls = []
    learn = type(method).learn_features

    def learn_and_count(self, source, scans):
        calls.append(source)
        return learn(self, source, scans)

    monkeypatch.setattr(type(method), "learn_features", learn_and_count)
    runs = [Run(f, seed) for seed in (0, 1) for f in (fold, other)]
    fitted_runs = method.fit(graphs, runs)
    assert len(calls) == solutions
    assert [o.run for o in fitted_runs] == runs
    assert not np.array_equal(fitted_runs[0].test_logit, fitted_runs[1].test_logit)
    if name == "ridge":
        assert np.array_equal(fitted_runs[0].test_logit, fitted_runs[2].test_logit)
        assert np.array_equal(fitted_runs[1].test_logit, method.fit(graphs, runs[3:])[0].test_logit)


def test_folds_that_differ_in_one_part_share_no_solution(graphs):
    """The same source scans, but others to choose the penalty by, or others to test."""
    runs = [Run(split(graphs.cohort, [1, 2, 3], *rest), 0) for rest in (([4], [6]), ([5], [6]), ([4], [5]))]
    method = make_method("ridge")
    for run, fitted in zip(runs, method.fit(graphs, runs), strict=True):
        (alone,) = method.fit(graphs, [run])
        assert np.array_equal(fitted.test_logit, alone.test_logit)
        assert fitted.validation_auc == alone.validation_auc


@pytest.mark.parametrize("dead_share", [0.0, 0.3])
@pytest.mark.parametrize("fill", ["source-mean", "zero"])
def test_shared_products_are_those_of_the_features_of_the_fold(dead_share, fill):
    graphs = Connectomes(simulate(replace(WHOLE, dead_share=dead_share)))
    fold = split(graphs.cohort, [1, 2, 3], [4, 5], [6])
    method = make_method("ridge", {"dead_rois": fill})
    prepared = method.prepare_run(graphs, method.open_scans(graphs), Run(fold, 0))
    assert (graphs.alive.all().item()) == (dead_share == 0.0)
    np.testing.assert_allclose(prepared.gram, prepared.rows.x @ prepared.rows.x.T, atol=1e-11)
    np.testing.assert_allclose(prepared.rows.x.mean(0), 0.0, atol=1e-12)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU")
@pytest.mark.parametrize("name", [entry.name for entry in list_methods() if entry.family in ("linear", "control")])
def test_a_fit_in_a_job_on_a_gpu_is_that_of_the_cpu(name):
    cohort, method = simulate(replace(WHOLE, dead_share=0.1)), make_method(name)
    here, there = (Connectomes(cohort, device, torch.float64) for device in ("cpu", "cuda"))
    runs = [Run(split(cohort, *sites), 0) for sites in (([1, 2, 3], [4, 5], [6]), ([2, 3, 4], [5, 6], [1]))]
    assert {t.device.type for t in method.open_scans(there)(runs[0].fold.source)[:-1]} == {"cpu"}
    for own, other in zip(method.fit(here, runs), method.fit(there, runs), strict=True):
        np.testing.assert_allclose(other.test_logit, own.test_logit, atol=1e-6)
        margin = method.predict_margins(other, there, other.run.fold.test)
        np.testing.assert_allclose(margin, other.test_logit, atol=1e-6)

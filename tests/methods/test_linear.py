"""The linear family against scikit-learn and nilearn on explicit features, many labels, large cohorts, and controls."""

import copy
import dataclasses
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import torch
from contract_cohorts import CONTROLS, split
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import block_diag, logm, solve
from sklearn.covariance import OAS, oas
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, RidgeClassifier
from sklearn.metrics import roc_auc_score
from sklearn.svm import SVC

from brio import run as evaluate
from brio.cohort import Cohort
from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.device import resolve_device
from brio.errors import BrioError
from brio.jobs.job import check_memory
from brio.methods import find_method, list_methods, make_method
from brio.methods.linear import base
from brio.methods.linear.logistic import fit_logistic_path
from brio.methods.linear.ridge import KernelRidgeMethod, fit_ridge_path
from brio.methods.linear.tangent import geometric_mean, map_to_tangent_space, shrink_correlations
from brio.protocol import leave_one_site_out
from brio.studies.refits import permute_labels, relabel_cohort
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


def choose_best(scores):
    """Position of the best score; of equal ones that of the strongest penalty."""
    return max(np.flatnonzero(np.isclose(scores, max(scores), rtol=0, atol=1e-12)))


@pytest.mark.parametrize("choose_by", ["validation", "source-sites"])
@pytest.mark.parametrize(
    ("name", "make", "error"),
    [
        ("ridge", lambda penalty: RidgeClassifier(alpha=penalty), 1e-9),
        ("logistic", lambda penalty: LogisticRegression(C=4 / penalty, tol=1e-10, max_iter=10000), 2e-3),
        ("svm", lambda penalty: SVC(C=1 / penalty, kernel="linear", tol=1e-8), 2e-3),
    ],
)
def test_margins_are_those_of_scikit_learn_on_the_entries(graphs, fold, name, make, error, choose_by):
    method = make_method(name, {"choose_by": choose_by})
    (fitted,) = method.fit(graphs, [Run(fold, 0)])
    X, y, site = entries(graphs), graphs.cohort.labels, graphs.cohort.sites[fold.source]
    X = X - X[fold.source].mean(0)
    penalties = method.settings.grid * (X[fold.source] ** 2).sum(1).mean()

    def score(model, scans):
        return roc_auc_score(y[scans], model.decision_function(X[scans]))

    choices = [(fold.source, fold.validation)]
    if choose_by == "source-sites":
        choices = [(fold.source[site != left], fold.source[site == left]) for left in np.unique(site)]
    scores = [np.mean([score(make(p).fit(X[own], y[own]), out) for own, out in choices]) for p in penalties]
    best = penalties[choose_best(scores)]
    model = make(best).fit(X[fold.source], y[fold.source])
    assert fitted.details["penalty"] == pytest.approx(best)
    assert fitted.validation_auc == pytest.approx(score(model, fold.validation), abs=1e-9)
    np.testing.assert_allclose(fitted.parameters["coefficients"].numpy(), model.coef_.ravel(), atol=error)
    np.testing.assert_allclose(fitted.test_logit, model.decision_function(X[fold.test]), atol=error)


def test_validation_scans_of_one_class_have_no_part_in_a_choice_by_source_sites(graphs, fold):
    validation = fold.validation[graphs.cohort.labels[fold.validation] == 1]
    one_class = Run(replace(fold, validation=validation), 0)
    without = Run(replace(fold, validation=validation[:0], validation_sites=()), 0)
    fitted, expected = make_method("ridge", {"choose_by": "source-sites"}).fit(graphs, [one_class, without])
    assert fitted.validation_auc == expected.validation_auc
    np.testing.assert_array_equal(fitted.test_logit, expected.test_logit)


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
    S = shrink_correlations(graphs.full[fold.source], torch.tensor([float(len(x)) for x in scans]), None)
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
    site, label = np.repeat([f"s{e}" for e in range(6)], 16), np.tile([0, 1], 48)
    length = 60 + 15 * label * (what == "length-only") + rng.integers(0, 10, 96)
    scans = [rng.normal(size=(n, 8)) for n in length]
    if what == "dead-rois-only":
        for scan in scans[1::4]:  # patients
            scan[:, 3] = 0.0
    age = 20 + 8 * label * (what == "covariates-only") + rng.normal(0, 4, 96)
    sex, mean_fd = rng.choice(["F", "M"], 96), rng.uniform(0.1, 0.3, 96)
    extra = pd.DataFrame({"age": age, "sex": sex, "mean_fd": mean_fd, "tr": 2.0})
    extra.loc[5, "mean_fd"] = np.nan
    return Cohort.from_scans(scans, site=site, label=label, covariates=extra)


@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_finds_its_shortcut_and_says_so(name):
    assert find_method(name).control
    result = evaluate(shortcut_cohort(name), CONTROLS, device="cpu", exclude=False)
    mean = result.rows.groupby("method")["auc"].mean()
    assert mean.pop(name) > 0.6
    assert mean.between(0.3, 0.65).all()
    (warning,) = result.summary.warnings
    assert warning.startswith(f"{name} reaches an AUC of")
    assert "at unseen sites" in warning
    if name == "length-only":
        folds = evaluate(shortcut_cohort(name), [name], device="cpu", exclude=False, protocol="kfold")
        assert "in test folds" in folds.summary.warnings[0]


@pytest.mark.parametrize("n_features", [1, 2, 7, 116, 6670])
def test_scans_with_equal_features_have_equal_margins(n_features):
    rng = np.random.default_rng(n_features)
    kinds, kind = rng.normal(size=(3, n_features)), np.arange(53) % 3
    rows = base.HeldRows(kinds, kinds.mean(0), lambda scans: kinds[kind[scans]])
    coefficients = rng.normal(size=n_features)
    margins = rows.project(np.arange(53), coefficients)
    assert len(set(margins.tolist())) == 3
    np.testing.assert_allclose(margins, (kinds[kind] - kinds.mean(0)) @ coefficients, atol=1e-10)


@pytest.mark.parametrize("lost", [["sex"], ["age", "mean_fd"]])
def test_the_confound_baseline_uses_the_covariates_that_there_are(lost):
    cohort, names = shortcut_cohort("covariates-only"), {"sex": "sex", "age": "age", "mean_fd": "motion"}
    table, same = cohort.participants, {"sex": "F", "age": 30.0, "mean_fd": 0.2}
    tables = [table, table.assign(**{name: same[name] for name in lost}), table.drop(columns=lost)]
    says = [[], [], []]
    whole, constant, without = (
        evaluate(replace(cohort, participants=one), ["covariates-only"], device="cpu", exclude=False, say=said.append)
        for one, said in zip(tables, says, strict=True)
    )
    margins = [result.predictions["margin"].to_numpy() for result in (whole, constant, without)]
    np.testing.assert_allclose(margins[2], margins[1], atol=1e-12)  # a gap tells as little as a constant
    assert np.abs(margins[2] - margins[0]).max() > 0.01
    used = [name for column, name in names.items() if column not in lost]
    assert whole.summary.methods["covariates-only"].needs == tuple(names.values())
    assert without.summary.methods["covariates-only"].needs == tuple(used)
    (line,) = [line for line in says[2] if "'covariates-only' uses" in line]
    assert f"uses {' and '.join(used)} (" in line
    (line,) = [line for line in says[0] if "'covariates-only' uses" in line]
    assert "motion is unknown for 1 scan, which" in line


def test_a_covariate_that_few_scans_lack_is_filled_with_the_mean_of_the_source():
    cohort = shortcut_cohort("covariates-only")
    age = cohort.participants["age"].where(np.arange(len(cohort)) != 3)
    result = evaluate(
        replace(cohort, participants=cohort.participants.assign(age=age)), ["covariates-only"], device="cpu"
    )
    assert result.summary.methods["covariates-only"].needs == ("sex", "age", "motion")
    assert result.rows["auc"].mean() > 0.8


def test_confound_baselines_decide_nothing_by_the_seed():
    """So that one seed of them beside a linear model without validation sites is no smoke run."""
    names = ["ridge", "covariates-only", "length-only", "dead-rois-only"]
    settings = {"protocol.validation_sites": 0, "choose_by": "source-sites"}
    result = evaluate(shortcut_cohort("nothing"), names, device="cpu", settings=settings)
    assert not result.summary.smoke_run


@pytest.mark.parametrize("classes", [("F", "M"), ("0", "1")])
def test_a_control_that_is_given_the_label_is_not_called_a_shortcut(classes):
    cohort = shortcut_cohort("nothing")
    sex = np.where(cohort.labels == 1, "M", "F")
    cohort = replace(cohort, classes=classes, participants=cohort.participants.assign(sex=sex))
    result = evaluate(cohort, ["covariates-only"], device="cpu", exclude=False)
    assert result.rows["auc"].mean() > 0.95
    (warning,) = result.summary.warnings
    assert warning.startswith("covariates-only uses sex as an input, but sex is the label here")
    assert "leave this method out" in warning


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
    assert prepared.learned["mean"].any().item() == (fill == "source-mean")


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


N_ROIS = 8


@pytest.fixture(scope="module")
def holed():
    cohort = simulate(Simulation(n_sites=6, per_class=7, n_rois=N_ROIS, frames=60, stable=0.5, dead_share=0.3))
    return Connectomes(cohort, dtype=torch.float64)


@pytest.fixture(scope="module")
def own(holed):
    return split(holed.cohort, [1, 2, 3, 4], [5], [6])


def log_edges(holed, source, s=0.5):
    """Edges of scipy's matrix logarithm; edges without signal hold the mean of the source scans."""
    A, alive = holed.full.numpy(), holed.alive.numpy()
    logs = np.stack([logm((1 - s) * (np.tanh(a) + np.eye(N_ROIS)) + s * np.eye(N_ROIS)).real for a in A])
    columns = []
    for u, v in combinations(range(N_ROIS), 2):
        both = alive[:, u] & alive[:, v]
        mean = logs[[i for i in source if both[i]], u, v].mean()
        columns.append(np.where(both, logs[:, u, v], mean))
    assert not alive[source].all()
    return np.stack(columns, 1)


def fit_with_dummies(x, y, site, penalty):
    """Coefficients of a ridge regression in which one dummy for each site is free of penalty."""
    dummies = (site[:, None] == np.unique(site)).astype(float)
    residual = np.column_stack([x, y]) - LinearRegression(fit_intercept=False).fit(
        dummies, np.column_stack([x, y])
    ).predict(dummies)
    xr, yr = residual[:, :-1], residual[:, -1]
    return np.linalg.solve(xr.T @ xr + penalty * np.eye(x.shape[1]), xr.T @ yr)


def test_the_model_is_a_ridge_with_a_free_intercept_for_each_site_calibrated_on_inner_folds(holed, own):
    method = make_method("log-ridge")
    (fitted,) = method.fit(holed, [Run(own, 0)])
    x = log_edges(holed, own.source)
    label, site = holed.cohort.labels, holed.cohort.sites
    inside = x[own.source]
    scale = ((inside - inside.mean(0)) ** 2).sum(1).mean()
    x = x - inside.mean(0)
    y, source_site = 2.0 * label - 1, site[own.source]
    of_sites = [own.source[source_site == e] for e in np.unique(source_site)]
    scores, margins = [], []
    for penalty in method.settings.grid * scale:
        margin = np.zeros(len(y))
        for withheld in of_sites:
            other = np.setdiff1d(own.source, withheld)
            margin[withheld] = x[withheld] @ fit_with_dummies(x[other], y[other], site[other], penalty)
        scores.append(np.mean([roc_auc_score(label[m], margin[m]) for m in of_sites]))
        margins.append(margin[own.source])
    best = choose_best(scores)
    assert fitted.details["penalty"] == pytest.approx(method.settings.grid[best] * scale)
    within = margins[best] - np.array([margins[best][source_site == e].mean() for e in source_site])
    slope = max(0.1, LogisticRegression(C=1e6).fit(within[:, None], label[own.source]).coef_[0, 0])
    coefficients = fit_with_dummies(x[own.source], y[own.source], source_site, method.settings.grid[best] * scale)
    np.testing.assert_allclose(fitted.parameters["coefficients"].numpy(), slope * coefficients, atol=1e-7)
    intercept = float(fitted.parameters["intercept"])
    np.testing.assert_allclose(fitted.test_logit, slope * x[own.test] @ coefficients + intercept, atol=1e-7)
    probability = 1 / (1 + np.exp(-(slope * margins[best] + intercept)))
    assert probability.mean() == pytest.approx(label[own.source].mean(), abs=1e-8)
    assert fitted.validation_auc == pytest.approx(
        roc_auc_score(label[own.validation], x[own.validation] @ coefficients)
    )
    np.testing.assert_allclose(method.predict_margins(fitted, holed, own.test), fitted.test_logit, atol=1e-10)


def test_scans_that_allow_no_inner_folds_are_refused(holed):
    own = split(holed.cohort, [1], [5], [6])
    few = np.concatenate([own.source[holed.cohort.labels[own.source] == c][:n] for c, n in ((0, 4), (1, 6))])
    with pytest.raises(BrioError, match=r"at least 5 participants of each class .* one class has 4"):
        make_method("log-ridge").fit(holed, [Run(dataclasses.replace(own, source=np.sort(few)), 0)])
    controls = own.source[holed.cohort.labels[own.source] == 0]
    with pytest.raises(BrioError, match="both classes at every source site"):
        make_method("log-ridge").fit(holed, [Run(dataclasses.replace(own, source=controls), 0)])


def test_inner_folds_of_one_site_are_fits_to_the_other_fifths():
    rng = np.random.default_rng(3)
    x, y, fifth = rng.normal(size=(30, 5)), np.where(np.arange(30) % 2, 1.0, -1.0), np.arange(30) // 2 % 5
    penalties = np.array([0.5, 20.0])
    prepared = base.PreparedRun(None, {}, None, x @ x.T, penalties, fifth, np.full(30, "one"))
    margins = make_method("log-ridge").predict_inner_folds(prepared, y, penalties)
    for k, penalty in enumerate(penalties):
        for f in range(5):
            kept, withheld = fifth != f, fifth == f
            expected = Ridge(alpha=penalty).fit(x[kept], y[kept]).predict(x[withheld])
            gap = margins[k, withheld] - expected  # equal up to the intercept
            np.testing.assert_allclose(gap, gap.mean(), atol=1e-10)


@pytest.fixture
def products():
    """Gram matrix of 90 scans with three strong directions, their labels, and their sites, one of a single scan."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 300)) + 3 * rng.normal(size=(90, 3)) @ rng.normal(size=(3, 300))
    site = np.append(rng.integers(0, 5, 89), 5)
    return x @ x.T, np.where(rng.random(90) > 0.4, 1.0, -1.0), site


def solve_directly(gram, y, group, penalty):
    """Weights of scans in the order of their groups, by dense algebra with a projection matrix."""
    order = np.argsort(group, kind="stable")
    sizes = np.unique(group, return_counts=True)[1]
    centring = block_diag(*(np.eye(size) - 1 / size for size in sizes))
    equations = centring @ gram[np.ix_(order, order)] @ centring + penalty * np.eye(len(y))
    weights = np.empty(len(y))
    weights[order] = solve(equations, centring @ y[order], assume_a="pos")
    return weights


@pytest.mark.parametrize("intercepts", ["one", "one for each site"])
def test_every_column_and_penalty_solves_its_own_equations(products, intercepts):
    gram, y, site = products
    group = site if intercepts == "one for each site" else np.zeros(90)
    included = np.stack([np.ones(90, dtype=bool), *(site != k for k in range(6)), np.arange(90) % 3 > 0], axis=1)
    penalties = np.array([3.0, 0.1, 10.0, 0.1, 1.0]) * np.trace(gram) / 90
    weights = fit_ridge_path(gram, y, group, penalties, included)
    for k, penalty in enumerate(penalties):
        for column, seen in enumerate(included.T):
            expected = solve_directly(gram[np.ix_(seen, seen)], y[seen], group[seen], penalty)
            np.testing.assert_allclose(weights[k, seen, column], expected, atol=1e-8 * np.abs(expected).max())
            assert not weights[k, ~seen, column].any()


@pytest.mark.parametrize("penalties", [(1e-4, 100.0), (1e-3, 30.0), (0.1, 10.0)], ids=str)
def test_no_residual_is_above_the_tolerance(penalties):
    """Strengths of directions over ten powers of ten, where residuals rise again after they were small enough."""
    rng = np.random.default_rng(0)
    x = np.linalg.qr(rng.normal(size=(150, 150)))[0] * np.logspace(0, -5, 150)
    gram, y = x @ x.T, np.where(rng.random(150) > 0.5, 1.0, -1.0)
    grid = np.geomspace(*penalties, 8) * np.trace(gram) / 150
    seen, centring = np.ones((150, 1), dtype=bool), np.eye(150) - 1 / 150
    weights = fit_ridge_path(gram, y, np.zeros(150), grid, seen, 1e-8)[..., 0]
    for penalty, w in zip(grid, weights, strict=True):
        residual = centring @ (y - gram @ (centring @ w)) - penalty * w
        assert np.linalg.norm(residual) <= 1.1e-8 * np.linalg.norm(centring @ y)


def test_labels_without_contrast_within_groups_have_no_weights(products):
    gram, _, site = products
    y = np.where(site > 2, 1.0, -1.0)
    assert not fit_ridge_path(gram, y, site, np.array([1.0, 2.0]), np.ones((90, 1), dtype=bool)).any()


def test_a_penalty_too_small_to_converge_is_refused(products, monkeypatch):
    gram, y, site = products
    monkeypatch.setattr("brio.methods.linear.ridge._STEPS", 3)
    with pytest.raises(BrioError, match="did not converge in 3 steps; use a larger least_penalty"):
        fit_ridge_path(gram, y, site, np.array([1e-9]), np.ones((90, 1), dtype=bool))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(8, 40), st.integers(1, 60), st.floats(-4, 4))
def test_each_column_is_the_regression_of_scikit_learn(seed, n, r, log_size):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, r)) * 10**log_size
    positive = rng.permutation(np.arange(n) % 2 == 0)
    included = np.ones((n, 3), dtype=bool)
    included[rng.choice(n, 2, replace=False), 1] = False
    included[:, 2] = rng.random(n) < 0.8
    included[[np.flatnonzero(positive)[0], np.flatnonzero(~positive)[0]], 2] = True
    included[[np.flatnonzero(positive)[0], np.flatnonzero(~positive)[0]], 1] = True
    penalties = np.array([0.03, 1.0, 30.0]) * (z**2).sum(1).mean()
    coefficients, intercept = fit_logistic_path(z, positive, penalties, included, tolerance=1e-11)
    for k, penalty in enumerate(penalties):
        rows = included[:, k]
        scale = np.sqrt((z**2).sum(1).mean())  # scikit-learn's tolerance is absolute
        model = LogisticRegression(C=scale**2 / penalty, solver="newton-cg", tol=1e-10, max_iter=10_000)
        model.fit(z[rows] / scale, positive[rows])
        found = z @ coefficients[:, k] + intercept[k]
        np.testing.assert_allclose(found, model.decision_function(z / scale), atol=2e-5, rtol=1e-5)


def test_classes_that_a_plane_separates_and_features_that_are_zero():
    positive = np.arange(10) >= 5
    everyone = np.ones((10, 1), dtype=bool)
    apart, _ = fit_logistic_path(np.where(positive, 1e3, -1e3)[:, None], positive, np.array([1e-3]), everyone)
    assert 5 < 1e3 * apart[0, 0] < np.inf
    _, nothing = fit_logistic_path(np.zeros((10, 0)), np.arange(10) >= 8, np.array([1.0]), everyone)
    assert nothing[0] == pytest.approx(np.log(0.2 / 0.8))


def test_one_class_is_refused():
    with pytest.raises(BrioError, match="both classes"):
        fit_logistic_path(np.eye(4), np.ones(4, dtype=bool), np.array([1.0]), np.ones((4, 1), dtype=bool))


@pytest.mark.parametrize(("name", "error"), [("ridge", 1e-9), ("logistic", 2e-6)])
def test_inner_folds_are_those_that_would_be_fitted_one_by_one(graphs, fold, name, error):
    method = make_method(name, {"choose_by": "source-sites"})
    prepared = method.prepare_run(graphs, method.open_scans(graphs), Run(fold, 0))
    y = 2.0 * prepared.source.label - 1.0
    found = method.predict_inner_folds(prepared, y, prepared.penalties)
    expected = base.LinearMethod.predict_inner_folds(method, prepared, y, prepared.penalties)
    np.testing.assert_allclose(found, expected, atol=error)


@pytest.fixture(scope="module")
def many():
    """Sites and classes of unlike sizes."""
    cohort = simulate(Simulation(n_sites=6, per_class=8, n_rois=12, frames=60))
    return Connectomes(cohort.select(np.arange(len(cohort)) % 11 > 1), dtype=torch.float64)


def on_labels(many, labels):
    other = copy.copy(many)
    other.cohort = relabel_cohort(many.cohort, labels)
    return other


@pytest.mark.parametrize("choose_by", ["validation", "source-sites"])
@pytest.mark.parametrize("name", ["ridge", "tangent-ridge", "fc-tangent-ridge", "log-ridge"])
def test_columns_are_the_ordinary_method_on_permuted_labels(many, name, choose_by):
    method = make_method(name, {"choose_by": choose_by})
    assert isinstance(method, KernelRidgeMethod)
    folds = leave_one_site_out(many.cohort, 0, 2 if choose_by == "validation" else 0)
    runs = [Run(folds[k], 0) for k in (2, 4)]
    labels = np.column_stack([many.cohort.labels, permute_labels(many.cohort, 9)])
    columns = method.fit_labels(many, runs, labels)
    penalties = set()
    for b in range(labels.shape[1]):
        for margins, fitted in zip(columns, method.fit(on_labels(many, labels[:, b]), runs), strict=True):
            slope, intercept = 1.0, 0.0
            if name == "log-ridge":  # whose margins of columns are not calibrated
                slope, intercept = np.polyfit(margins[:, b], fitted.test_logit, 1)
                assert slope > 0
            np.testing.assert_allclose(slope * margins[:, b] + intercept, fitted.test_logit, atol=1e-9)
            penalties.add(fitted.details["penalty"])
    assert len(penalties) > 2, "columns chose the same penalty, so the choice was not tested"


def test_neither_labels_of_the_cohort_nor_those_of_test_scans_reach_a_margin(many):
    method, fold = make_method("ridge", {"choose_by": "source-sites"}), leave_one_site_out(many.cohort, 0, 0)[0]
    labels = permute_labels(many.cohort, 3)
    flipped = labels.copy()
    flipped[fold.test] = 1 - flipped[fold.test]
    (margins,) = method.fit_labels(many, [Run(fold, 0)], labels)
    for other, y in ((many, flipped), (on_labels(many, labels[:, 2]), labels)):
        np.testing.assert_array_equal(method.fit_labels(other, [Run(fold, 0)], y)[0], margins)


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 4, 1, 3]])
def test_ties_go_to_the_stronger_penalty_whatever_the_order_of_the_grid(order):
    penalties = np.array([0.1, 1.0, 10.0, 100.0, 1000.0])
    columns = {
        10.0: [0.5, 0.8, 0.8, 0.7, np.nan],
        1000.0: [0.6, 0.6, 0.6, 0.6, 0.6],
        0.1: [0.9, 0.8, 0.8, 0.8, 0.8],
        1.0: [np.nan, 0.5, np.nan, 0.4, 0.5 - 1e-9],
    }
    scores = np.array(list(columns.values())).T
    chosen = base.choose_penalty(scores[order], penalties[order], "validation", "a")
    assert penalties[order][chosen].tolist() == list(columns)
    for k, best in enumerate(columns):
        assert penalties[order][base.choose_penalty(scores[order, k], penalties[order], "validation", "a")] == best


@pytest.mark.parametrize(
    ("choose_by", "words"),
    [
        ("validation", "fold {}: the validation scans have only one class"),
        ("source-sites", "fold {}: a source site has only one"),
    ],
)
def test_penalties_without_a_score_are_refused_with_what_was_asked(many, choose_by, words):
    """The ordinary fit and that of many columns say the same."""
    method, fold = make_method("ridge", {"choose_by": choose_by}), leave_one_site_out(many.cohort, 0, 2)[1]
    labels = many.cohort.labels.copy()
    where = fold.validation if choose_by == "validation" else fold.source[many.cohort.sites[fold.source] == "site04"]
    assert len(where)
    labels[where] = 1
    columns = np.column_stack([many.cohort.labels, labels])
    messages = []
    for attempt in (
        lambda: method.fit(on_labels(many, labels), [Run(fold, 0)]),
        lambda: method.fit_labels(many, [Run(fold, 0)], columns),
    ):
        with pytest.raises(BrioError, match=words.format(fold.name)) as error:
            attempt()
        messages.append(str(error.value))
    assert messages[0] == messages[1]


def test_permutations_keep_the_patients_of_each_site_and_do_not_depend_on_their_number(many):
    cohort = many.cohort
    labels = permute_labels(cohort, 50)
    for site in np.unique(cohort.sites):
        here = cohort.sites == site
        assert (labels[here].sum(axis=0) == cohort.labels[here].sum()).all()
    np.testing.assert_array_equal(permute_labels(cohort, 7), labels[:, :7])
    assert len(np.unique(labels, axis=1).T) == 50
    share = (labels == cohort.labels[:, None]).mean()
    assert 0.45 < share < 0.55
    assert relabel_cohort(cohort, labels[:, 0]).fingerprint != relabel_cohort(cohort, labels[:, 1]).fingerprint
    assert replace(cohort).fingerprint == cohort.fingerprint


SIMULATION = Simulation(n_sites=5, per_class=8, n_rois=20, frames=60, dead_share=0.3, stable=0.6)


@pytest.fixture(scope="module")
def large():
    return Connectomes(simulate(SIMULATION))


@pytest.fixture(scope="module")
def runs(large):
    return [Run(fold, 0) for fold in leave_one_site_out(large.cohort, 0, validation_sites=1)[:2]]


@pytest.fixture
def count_as_large(monkeypatch):
    """Return a function after which this small cohort is fitted as a large one, some scans and edges at a time."""

    def switch():
        monkeypatch.setattr(base, "HELD_BYTES", 0)
        monkeypatch.setattr(base, "PORTION_BYTES", 8 * 190 * 7)
        monkeypatch.setattr(base, "_BLOCK_SCANS", 32)
        monkeypatch.setattr(base, "_BLOCK_EDGES", 48)
        monkeypatch.setattr(KernelRidgeMethod, "most_decomposed", 10)

    return switch


@pytest.mark.parametrize(("choose_by", "fill"), [("source-sites", "source-mean"), ("validation", "zero")])
@pytest.mark.parametrize("name", ["ridge", "log-ridge", "svm", "logistic"])
def test_a_large_cohort_is_fitted_as_a_small_one(large, runs, count_as_large, name, choose_by, fill):
    method = make_method(name, {"choose_by": choose_by, "dead_rois": fill})
    assert isinstance(method.open_scans(large), base.ScanReader)
    small = method.fit(large, runs)
    labels = np.random.default_rng(0).permuted(np.repeat(large.cohort.labels[:, None], 3, axis=1), axis=0)
    many_columns = (name, choose_by) == ("ridge", "validation")
    columns = method.fit_labels(large, runs, labels) if many_columns else None
    count_as_large()
    assert isinstance(method.open_scans(large), base.StoredEdges)
    if many_columns:
        np.testing.assert_allclose(method.fit_labels(large, runs, labels), columns, rtol=0, atol=1e-6)
    for fitted, expected in zip(method.fit(large, runs), small, strict=True):
        scale = np.abs(expected.test_logit).max()
        tolerance = 1e-6 if name != "svm" else 2e-3  # libsvm stops at a tolerance of its own
        np.testing.assert_allclose(fitted.test_logit, expected.test_logit, rtol=0, atol=tolerance * scale)
        assert fitted.details["penalty"] == pytest.approx(expected.details["penalty"], rel=1e-6)
        assert fitted.validation_auc == pytest.approx(expected.validation_auc, abs=1e-9)
        test = method.gather_inputs(large).take(torch.from_numpy(fitted.run.fold.test))
        np.testing.assert_allclose(method.predict(fitted, test).margin, fitted.test_logit, rtol=0, atol=1e-6 * scale)


def test_stored_rows_are_centred_features(large, count_as_large):
    """Against plain algebra on features that are filled by hand."""
    count_as_large()
    stored = base.StoredEdges(large.full.split(9), large.alive)
    u, v = np.triu_indices(large.n_rois, 1)
    fill, source, others = np.linspace(-1, 1, len(u)), np.arange(5, 60), np.array([70, 2, 61])
    live = large.alive.numpy()[:, u] & large.alive.numpy()[:, v]
    assert not live[others].all()  # there is something to fill
    assert not live[source].all()
    x = np.where(live, large.full.numpy()[:, u, v].astype(np.float64), fill)
    centred = x - x[source].mean(0)
    rows, gram = base.StoredRows.prepare(stored, source, fill)
    weights, coefficients = np.cos(source), np.sin(fill)
    np.testing.assert_allclose(rows.centre, x[source].mean(0), atol=1e-12)
    np.testing.assert_allclose(gram, centred[source] @ centred[source].T, atol=1e-5)
    np.testing.assert_allclose(rows.multiply(others), centred[others] @ centred[source].T, atol=1e-5)
    np.testing.assert_allclose(rows.combine(weights), weights @ centred[source], atol=1e-11)
    np.testing.assert_allclose(rows.project(others, coefficients), centred[others] @ coefficients, atol=1e-11)
    assert len(rows.project(others[:0], coefficients)) == 0  # a model of all sites has no test scans
    mean = np.where(live[source], x[source], 0.0).sum(0) / live[source].sum(0).clip(1)
    np.testing.assert_allclose(stored.average_live(source), mean, atol=1e-12)


def test_a_linear_model_whose_gram_matrix_cannot_fit_is_refused(large):
    """A hundred thousand scans: products of all, and the Gram matrix of a run, of 80 GB each."""
    for name in ("ridge", "log-ridge"):
        assert make_method(name).estimate_fit_bytes(100_000, 400) > 2 * 8e10
    with pytest.raises(BrioError, match=r"method 'ridge' .* needs about .* TB of memory"):
        check_memory([make_method("ridge")], MillionScans(large.cohort), resolve_device("cpu"))


class MillionScans:
    """A cohort that says it has a million scans."""

    def __init__(self, cohort):
        self.n_rois = cohort.n_rois

    def __len__(self):
        return 10**6

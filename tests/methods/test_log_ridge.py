"""Ridge regression on log-connectomes against scikit-learn on explicit features, refits, and planted truth."""

import dataclasses
from itertools import combinations

import numpy as np
import pytest
import torch
from contract_cohorts import split
from scipy.linalg import logm
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score

from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.errors import BrioError
from brio.methods import make_method
from brio.methods.linear.ridge import predict_withheld_sites
from brio.training import Run

P = 8


@pytest.fixture(scope="module")
def graphs():
    cohort = simulate(Simulation(n_sites=6, per_class=7, n_rois=P, frames=60, stable=0.5, dead_share=0.3))
    return Connectomes(cohort, dtype=torch.float64)


@pytest.fixture(scope="module")
def fold(graphs):
    return split(graphs.cohort, [1, 2, 3, 4], [5], [6])


def log_edges(graphs, source, s=0.5):
    """Edges of scipy's matrix logarithm; edges without signal hold the mean of the source scans."""
    A, alive = graphs.full.numpy(), graphs.alive.numpy()
    logs = np.stack([logm((1 - s) * (np.tanh(a) + np.eye(P)) + s * np.eye(P)).real for a in A])
    columns = []
    for u, v in combinations(range(P), 2):
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


def test_the_model_is_a_ridge_with_a_free_intercept_for_each_site_calibrated_on_inner_folds(graphs, fold):
    method = make_method("log-ridge")
    (fitted,) = method.fit(graphs, [Run(fold, 0)])
    x = log_edges(graphs, fold.source)
    label, site = graphs.cohort.labels, graphs.cohort.sites
    inside = x[fold.source]
    scale = ((inside - inside.mean(0)) ** 2).sum(1).mean()
    x = x - inside.mean(0)
    y = 2.0 * label - 1
    scores, margins = [], []
    for penalty in method.settings.grid * scale:
        margin = np.zeros(len(y))
        for e in np.unique(site[fold.source]):
            other = [i for i in fold.source if site[i] != e]
            withheld = [i for i in fold.source if site[i] == e]
            margin[withheld] = x[withheld] @ fit_with_dummies(x[other], y[other], site[other], penalty)
        scores.append(
            np.mean(
                [
                    roc_auc_score(label[m], margin[m])
                    for e in np.unique(site[fold.source])
                    if len(m := [i for i in fold.source if site[i] == e])
                ]
            )
        )
        margins.append(margin[fold.source])
    best = max(
        np.flatnonzero(np.isclose(scores, max(scores), rtol=0, atol=1e-12))
    )  # of equal ones the strongest penalty
    assert fitted.details["penalty"] == pytest.approx(method.settings.grid[best] * scale)
    source_site = site[fold.source]
    within = margins[best] - np.array([margins[best][source_site == e].mean() for e in source_site])
    slope = max(0.1, LogisticRegression(C=1e6).fit(within[:, None], label[fold.source]).coef_[0, 0])
    coefficients = fit_with_dummies(x[fold.source], y[fold.source], source_site, method.settings.grid[best] * scale)
    np.testing.assert_allclose(fitted.parameters["coefficients"].numpy(), slope * coefficients, atol=1e-7)
    intercept = float(fitted.parameters["intercept"])
    np.testing.assert_allclose(fitted.test_logit, slope * x[fold.test] @ coefficients + intercept, atol=1e-7)
    probability = 1 / (1 + np.exp(-(slope * margins[best] + intercept)))
    assert probability.mean() == pytest.approx(label[fold.source].mean(), abs=1e-8)
    assert fitted.validation_auc == pytest.approx(
        roc_auc_score(label[fold.validation], x[fold.validation] @ coefficients)
    )
    np.testing.assert_allclose(method.predict_margins(fitted, graphs, fold.test), fitted.test_logit, atol=1e-10)


@pytest.mark.parametrize("columns", [0, 3])
def test_withheld_sites_are_predicted_as_by_fits_without_them(columns):
    rng = np.random.default_rng(1)
    x, site = rng.normal(size=(40, 60)), np.arange(40) % 5
    y = np.sign(rng.normal(size=(40, columns) if columns else 40))
    margins = predict_withheld_sites(x @ x.T, y, site, np.array([0.5, 20.0]), site)
    assert margins.shape == (2, *y.shape)
    for k, penalty in enumerate((0.5, 20.0)):
        for e in range(5):
            inside, out = site != e, site == e
            centred = np.concatenate([x[site == g] - x[site == g].mean(0) for g in range(5) if g != e])
            targets = np.concatenate([y[site == g] - y[site == g].mean(0) for g in range(5) if g != e])
            refit = KernelRidge(alpha=penalty, kernel="linear").fit(centred, targets)
            order = np.concatenate([np.flatnonzero(site == g) for g in range(5) if g != e])
            assert inside[order].all()
            np.testing.assert_allclose(margins[k, out], x[out] @ (x[order].T @ refit.dual_coef_), atol=1e-9)


def test_scans_that_allow_no_inner_folds_are_refused(graphs):
    fold = split(graphs.cohort, [1], [5], [6])
    few = np.concatenate([fold.source[graphs.cohort.labels[fold.source] == c][:n] for c, n in ((0, 4), (1, 6))])
    with pytest.raises(BrioError, match=r"at least 5 participants of each class .* one class has 4"):
        make_method("log-ridge").fit(graphs, [Run(dataclasses.replace(fold, source=np.sort(few)), 0)])
    controls = fold.source[graphs.cohort.labels[fold.source] == 0]
    with pytest.raises(BrioError, match="both classes at every source site"):
        make_method("log-ridge").fit(graphs, [Run(dataclasses.replace(fold, source=controls), 0)])


def test_inner_folds_of_one_site_are_fits_to_the_other_fifths():
    rng = np.random.default_rng(3)
    x, y, fifth = rng.normal(size=(30, 5)), np.where(np.arange(30) % 2, 1.0, -1.0), np.arange(30) // 2 % 5
    penalties = np.array([0.5, 20.0])
    margins = predict_withheld_sites(x @ x.T, y, np.full(30, "one"), penalties, fifth)
    for k, penalty in enumerate(penalties):
        for f in range(5):
            kept, withheld = fifth != f, fifth == f
            expected = Ridge(alpha=penalty).fit(x[kept], y[kept]).predict(x[withheld])
            gap = margins[k, withheld] - expected  # equal up to the intercept
            np.testing.assert_allclose(gap, gap.mean(), atol=1e-10)

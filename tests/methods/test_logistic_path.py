"""Many logistic regressions at once against scikit-learn's, one by one; inner folds against fits of each."""

import numpy as np
import pytest
import torch
from contract_cohorts import split
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.errors import BrioError
from brio.methods import make_method
from brio.methods.linear.base import LinearMethod
from brio.methods.linear.logistic import fit_logistic_path
from brio.training import Run


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
def test_inner_folds_are_those_that_would_be_fitted_one_by_one(name, error):
    graphs = Connectomes(simulate(Simulation(n_sites=5, per_class=5, n_rois=8, frames=60)), dtype=torch.float64)
    fold = split(graphs.cohort, [1, 2, 3, 4], [], [5])
    method = make_method(name, {"choose_by": "source-sites"})
    prepared = method.prepare_run(graphs, method.open_scans(graphs), Run(fold, 0))
    y = 2.0 * prepared.source.label - 1.0
    found = method.predict_inner_folds(prepared, y, prepared.penalties)
    expected = LinearMethod.predict_inner_folds(method, prepared, y, prepared.penalties)
    np.testing.assert_allclose(found, expected, atol=error)

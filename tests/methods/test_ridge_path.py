"""Ridge regressions by conjugate gradients: each is the solution of its own equations."""

import numpy as np
import pytest
from scipy.linalg import block_diag, solve

from brio.errors import BrioError
from brio.methods.linear.ridge import fit_ridge_path


@pytest.fixture
def scans():
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
def test_every_column_and_penalty_solves_its_own_equations(scans, intercepts):
    gram, y, site = scans
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


def test_labels_without_contrast_within_groups_have_no_weights(scans):
    gram, _, site = scans
    y = np.where(site > 2, 1.0, -1.0)
    assert not fit_ridge_path(gram, y, site, np.array([1.0, 2.0]), np.ones((90, 1), dtype=bool)).any()


def test_a_penalty_too_small_to_converge_is_refused(scans, monkeypatch):
    gram, y, site = scans
    monkeypatch.setattr("brio.methods.linear.ridge._STEPS", 3)
    with pytest.raises(BrioError, match="did not converge in 3 steps; use a larger `least_penalty`"):
        fit_ridge_path(gram, y, site, np.array([1e-9]), np.ones((90, 1), dtype=bool))

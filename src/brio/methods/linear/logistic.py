"""Logistic regression on the FC entries."""

from __future__ import annotations

import numpy as np

from ..provenance import TEXTBOOK
from ..registry import method
from .base import DualSolution, LinearMethod
from .logistic_path import LogisticFits, fit_logistic_path
from .prepared import PreparedRun
from .sites import KernelEigen


class LogisticMethod(LinearMethod):
    """Logistic regression (l2) in the principal coordinates of the source scans, which the Gram matrix gives.

    The curvature of the logistic loss is at most a quarter of that of the squared loss. So a quarter of the penalty is
    used, and one grid serves both.
    """

    def solve(self, gram: np.ndarray, y: np.ndarray, penalty: float) -> DualSolution:
        eigen = KernelEigen.of_kernel(gram, np.zeros(len(gram)))
        return self._solve_penalties(eigen, y, np.array([penalty]))[0]

    def solve_grid(self, prepared: PreparedRun, y: np.ndarray) -> list[DualSolution]:
        return self._solve_penalties(prepared.eigen, y, prepared.penalties)

    def predict_inner_folds(self, prepared: PreparedRun, y: np.ndarray, penalties: np.ndarray) -> np.ndarray:
        """Fit all inner folds and penalties at once. An unpenalised intercept makes centring again needless."""
        folds = list(prepared.split_inner_folds())
        included = np.ones((len(y), len(folds)), dtype=bool)
        for k, (_, withheld) in enumerate(folds):
            included[withheld, k] = False
        z, _ = _find_coordinates(prepared.eigen)
        fits = _fit(z, y, np.repeat(penalties, len(folds)), np.tile(included, (1, len(penalties))))
        products = (z @ fits.coefficients).reshape(len(y), len(penalties), len(folds))
        margins = np.empty((len(penalties), len(y)))
        for k, (inside, withheld) in enumerate(folds):
            margins[:, withheld] = (products[withheld, :, k] - products[inside, :, k].mean(0)).T
        return margins

    def _solve_penalties(self, eigen: KernelEigen, y: np.ndarray, penalties: np.ndarray) -> list[DualSolution]:
        z, from_coordinates = _find_coordinates(eigen)
        fits = _fit(z, y, penalties, np.ones((len(y), len(penalties)), dtype=bool))
        weights = from_coordinates @ fits.coefficients
        return [DualSolution(w, float(b)) for w, b in zip(weights.T, fits.intercept, strict=True)]


def _find_coordinates(eigen: KernelEigen) -> tuple[np.ndarray, np.ndarray]:
    """Principal coordinates [n, r], and what turns coefficients of these into weights of scans, both [n, r]."""
    spanned = eigen.size > 1e-10 * max(eigen.size[-1], 1e-300)
    root, axes = np.sqrt(eigen.size[spanned]), eigen.axes[:, spanned]
    return axes * root, axes / root


def _fit(z: np.ndarray, y: np.ndarray, penalties: np.ndarray, included: np.ndarray) -> LogisticFits:
    return fit_logistic_path(z, y > 0, penalties / 4, included)


@method("logistic", family="linear", provenance=TEXTBOOK, reference="Cox 1958, with the penalty of ridge regression")
class Logistic(LogisticMethod):
    """Logistic regression (l2) on the Fisher z entries."""

    version = 4  # probabilities are those of the margins, which are those of version 3
    uses_seed = False
    features_are_edges = True
    margins_are_log_odds = True

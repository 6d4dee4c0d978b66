"""Logistic regression on the FC entries."""

from __future__ import annotations

import numpy as np

from ..registry import TEXTBOOK, method
from .base import DualSolution, LinearMethod

__all__ = ["Logistic", "solve_logistic"]


def solve_logistic(gram: np.ndarray, y: np.ndarray, penalty: float) -> DualSolution:
    """Fit l2-penalised logistic regression by scikit-learn, in the coordinates that the Gram matrix spans.

    The curvature of the logistic loss is at most a quarter of that of the squared loss. So a quarter of the penalty is
    used, and one grid serves both.

    Parameters
    ----------
    gram : ndarray, shape [n, n]
        Products of centred features.
    y : ndarray, shape [n]
        Labels, -1 or 1.
    penalty : float

    Returns
    -------
    DualSolution
    """
    from sklearn.linear_model import LogisticRegression

    size, axes = np.linalg.eigh(gram)
    spanned = size > 1e-10 * max(size[-1], 1e-300)
    root, axes = np.sqrt(size[spanned]), axes[:, spanned]
    if not spanned.any():
        share = float((y > 0).mean())
        return DualSolution(np.zeros(len(y)), float(np.log(share / (1 - share))))
    fitted = LogisticRegression(C=4.0 / penalty, max_iter=1000, tol=1e-6).fit(axes * root, y > 0)
    return DualSolution(axes @ (fitted.coef_[0] / root), float(fitted.intercept_[0]))


@method("logistic", family="linear", provenance=TEXTBOOK, reference="scikit-learn's LogisticRegression")
class Logistic(LinearMethod):
    """Logistic regression (l2) on the Fisher z entries."""

    version = 4  # probabilities are those of the margins, which are those of version 3
    uses_seed = False
    margins_are_log_odds = True

    def solve(self, gram: np.ndarray, y: np.ndarray, penalty: float) -> DualSolution:
        return solve_logistic(gram, y, penalty)

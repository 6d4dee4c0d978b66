"""Logistic regression on the FC entries."""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression

from ..registry import TEXTBOOK, method
from .base import Dual, LinearMethod

__all__ = ["Logistic", "logistic_dual"]


def logistic_dual(gram: np.ndarray, y: np.ndarray, penalty: float) -> Dual:
    """l2-penalised logistic regression, by scikit-learn, in the coordinates that the Gram matrix spans.

    A quarter of the penalty: the curvature of the logistic loss is at most a quarter of that of the squared one, so
    one grid serves both.
    """
    size, axes = np.linalg.eigh(gram)
    spanned = size > 1e-10 * max(size[-1], 1e-300)
    root, axes = np.sqrt(size[spanned]), axes[:, spanned]
    if not spanned.any():
        share = float((y > 0).mean())
        return np.zeros(len(y)), float(np.log(share / (1 - share)))
    fitted = LogisticRegression(C=4.0 / penalty, max_iter=1000, tol=1e-6).fit(axes * root, y > 0)
    return axes @ (fitted.coef_[0] / root), float(fitted.intercept_[0])


@method("logistic", family="linear", provenance=TEXTBOOK, reference="scikit-learn's LogisticRegression")
class Logistic(LinearMethod):
    """Logistic regression (l2) on the Fisher z entries."""

    draws = False

    def solve(self, gram: np.ndarray, y: np.ndarray, penalty: float) -> Dual:
        return logistic_dual(gram, y, penalty)

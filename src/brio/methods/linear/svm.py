"""Linear support vector machine on the FC entries."""

from __future__ import annotations

import numpy as np

from ..provenance import TEXTBOOK
from ..registry import method
from .base import DualSolution, LinearMethod


@method("svm", family="linear", provenance=TEXTBOOK, reference="Cortes & Vapnik 1995; scikit-learn's SVC")
class LinearSVM(LinearMethod):
    """Linear support vector machine on the Fisher z entries."""

    version = 4  # solved until the order of the scans does not show
    uses_seed = False
    features_are_edges = True

    def solve(self, gram: np.ndarray, y: np.ndarray, penalty: float) -> DualSolution:
        from sklearn.svm import SVC

        fitted = SVC(C=1.0 / penalty, kernel="precomputed", tol=1e-9).fit(gram, y)
        weights = np.zeros(len(y))
        weights[fitted.support_] = fitted.dual_coef_[0]
        return DualSolution(weights, float(fitted.intercept_[0]))

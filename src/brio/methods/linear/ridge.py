"""Ridge regression on the FC entries: the model to beat."""

from __future__ import annotations

import numpy as np
from sklearn.kernel_ridge import KernelRidge

from ..registry import TEXTBOOK, method
from .base import DualSolution, LinearMethod, LinearSettings

__all__ = ["Ridge", "RidgeSettings", "solve_ridge"]

RidgeSettings = LinearSettings


def solve_ridge(gram: np.ndarray, y: np.ndarray, penalty: float) -> DualSolution:
    """Fit ridge regression of labels on centred features by scikit-learn's KernelRidge.

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
    fitted = KernelRidge(alpha=penalty, kernel="precomputed").fit(gram, y - y.mean())
    return DualSolution(fitted.dual_coef_, float(y.mean()))


@method("ridge", family="linear", provenance=TEXTBOOK, reference="Hoerl & Kennard 1970; scikit-learn's KernelRidge")
class Ridge(LinearMethod):
    """Ridge regression of the label (-1, 1) on the Fisher z entries, penalty chosen on the validation scans."""

    uses_seed = False

    def solve(self, gram: np.ndarray, y: np.ndarray, penalty: float) -> DualSolution:
        return solve_ridge(gram, y, penalty)

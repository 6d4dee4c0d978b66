"""Ridge regression on the FC entries: the model to beat."""

from __future__ import annotations

import numpy as np
from sklearn.kernel_ridge import KernelRidge

from ..registry import TEXTBOOK, method
from .base import Dual, LinearMethod, LinearSettings

__all__ = ["Ridge", "RidgeSettings", "ridge_dual"]

RidgeSettings = LinearSettings


def ridge_dual(gram: np.ndarray, y: np.ndarray, penalty: float) -> Dual:
    """Ridge regression of labels on centred features, by scikit-learn's KernelRidge."""
    fitted = KernelRidge(alpha=penalty, kernel="precomputed").fit(gram, y - y.mean())
    return fitted.dual_coef_, float(y.mean())


@method("ridge", family="linear", provenance=TEXTBOOK, reference="Hoerl & Kennard 1970; scikit-learn's KernelRidge")
class Ridge(LinearMethod):
    """Ridge regression of the label (-1, 1) on the Fisher z entries, penalty chosen on the validation scans."""

    draws = False

    def solve(self, gram: np.ndarray, y: np.ndarray, penalty: float) -> Dual:
        return ridge_dual(gram, y, penalty)

"""Ridge regression, and on the FC entries the model to beat."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.kernel_ridge import KernelRidge

from ...connectome import Connectomes
from ...training import Run, Scans, SourceScans
from ..registry import TEXTBOOK, method
from .base import DualSolution, LinearMethod, LinearSettings
from .many_labels import factorise_kernel, predict_columns

__all__ = ["KernelRidgeMethod", "Ridge", "RidgeSettings", "solve_ridge"]

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


class KernelRidgeMethod(LinearMethod):
    """Ridge regression on features that do not depend on labels; it fits many columns of labels at once."""

    def solve(self, gram: np.ndarray, y: np.ndarray, penalty: float) -> DualSolution:
        return solve_ridge(gram, y, penalty)

    def fit_labels(self, connectomes: Connectomes, run: Run, labels: np.ndarray) -> np.ndarray:
        """Compute the margins of the test scans for many columns of labels, see :class:`.many_labels.FitsLabels`.

        Parameters
        ----------
        connectomes : Connectomes
            Of the whole cohort, N scans; its own labels are not read.
        run : Run
        labels : ndarray of int, shape [N, B]
            0 or 1. Every source site has both classes in every column.

        Returns
        -------
        ndarray of float64, shape [n_test, B]
            The order of scans is that of the ordinary fit; a method with an intercept for each site adds none here.
        """
        inputs, fold = self.gather_inputs(connectomes), run.fold

        def take(scans: np.ndarray) -> Scans:
            return inputs.take(torch.from_numpy(scans).to(connectomes.device))

        source = SourceScans.of_run(connectomes, run)
        learned, x = self.learn_features(source, take(fold.source))
        centre = x.mean(0)
        x = x - centre
        gram = x @ x.T
        penalties = self.settings.grid * max(np.trace(gram) / len(gram), 1e-9)
        Y = 2.0 * labels[fold.source] - 1.0
        choose: tuple[np.ndarray, np.ndarray] | np.ndarray = source.site
        if self.settings.choose_by == "validation":
            validation = self.extract_features(take(fold.validation), learned) - centre
            choose = validation @ x.T, labels[fold.validation]
        across = (self.extract_features(take(fold.test), learned) - centre) @ x.T
        margins = predict_columns(factorise_kernel(gram, np.ones((len(x), 1))), Y, penalties, across, choose)
        return margins + Y.mean(axis=0)


@method("ridge", family="linear", provenance=TEXTBOOK, reference="Hoerl & Kennard 1970; scikit-learn's KernelRidge")
class Ridge(KernelRidgeMethod):
    """Ridge regression of the label (-1, 1) on the Fisher z entries, penalty chosen on the validation scans."""

    uses_seed = False

"""Ridge regression, and on the FC entries the model to beat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...connectome import Connectomes
from ...progress import Progress, silent
from ...training import Run
from ..registry import TEXTBOOK, method
from .base import DualSolution, LinearMethod
from .many_labels import FitsManyLabels, predict_columns
from .prepared import PreparedRun, ScanReader
from .settings import LinearSettings
from .sites import KernelEigen, predict_withheld_sites

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
    from sklearn.kernel_ridge import KernelRidge

    fitted = KernelRidge(alpha=penalty, kernel="precomputed").fit(gram, y - y.mean())
    return DualSolution(fitted.dual_coef_, float(y.mean()))


class KernelRidgeMethod(LinearMethod, FitsManyLabels):
    """Ridge regression on features that do not depend on labels; it fits many columns of labels at once."""

    def solve(self, gram: np.ndarray, y: np.ndarray, penalty: float) -> DualSolution:
        return solve_ridge(gram, y, penalty)

    def solve_grid(self, prepared: PreparedRun, y: np.ndarray) -> list[DualSolution]:
        """Solve all penalties in the eigenvectors of the Gram matrix, which the inner folds need as well."""
        if self.site_intercepts:
            return super().solve_grid(prepared, y)
        rotated = prepared.eigen.rotate(y)
        return [DualSolution(prepared.eigen.solve(rotated, p), float(y.mean())) for p in prepared.penalties]

    def predict_inner_folds(self, prepared: PreparedRun, y: np.ndarray, penalties: np.ndarray) -> np.ndarray:
        """Compute the margins of all inner folds from the fit to all scans; no inner fold is fitted."""
        site = prepared.source.site
        if self.site_intercepts:
            return predict_withheld_sites(prepared.gram, y, site, penalties, prepared.inner_fold)
        eigen, margins = prepared.eigen, np.empty((len(penalties), len(y)))
        rotated = eigen.rotate(y)
        for p, penalty in enumerate(penalties):
            weights = eigen.solve(rotated, penalty)
            for inside, withheld in prepared.split_inner_folds():
                residuals = eigen.find_residuals(weights, withheld, penalty)
                margins[p, withheld] = y[withheld] - residuals - y[inside].mean()
        return margins

    def fit_labels(
        self, connectomes: Connectomes, runs: Sequence[Run], labels: np.ndarray, progress: Progress = silent
    ) -> list[np.ndarray]:
        """Compute the margins of the ordinary fit; without its calibration where each site has an intercept."""
        take, message = self.read_scans(connectomes), f"{labels.shape[1]:,} columns of labels"
        return self.fit_each(
            connectomes, runs, lambda run: self._fit_run_labels(connectomes, take, run, labels), message, progress
        )

    def _fit_run_labels(self, connectomes: Connectomes, take: ScanReader, run: Run, labels: np.ndarray) -> np.ndarray:
        """Margins of the test scans of one run. Labels [N, B] -> [n_test, B]."""
        fold, prepared = run.fold, self.prepare_run(connectomes, take, run)
        site, Y = prepared.source.site, 2.0 * labels[fold.source] - 1.0
        choose: tuple[np.ndarray, np.ndarray] | np.ndarray = prepared.inner_fold
        if self.settings.choose_by == "validation":
            choose = self.multiply_with_source(prepared, take(fold.validation)), labels[fold.validation]
        across = self.multiply_with_source(prepared, take(fold.test))
        eigen = KernelEigen.of_kernel(prepared.gram, site) if self.site_intercepts else prepared.eigen
        margins = predict_columns(eigen, Y, prepared.penalties, across, choose, fold.name)
        return margins if self.site_intercepts else margins + Y.mean(0)


@method("ridge", family="linear", provenance=TEXTBOOK, reference="Hoerl & Kennard 1970; scikit-learn's KernelRidge")
class Ridge(KernelRidgeMethod):
    """Ridge regression of the label (-1, 1) on the Fisher z entries, penalty chosen on the validation scans."""

    uses_seed = False
    features_are_edges = True

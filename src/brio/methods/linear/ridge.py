"""Ridge regression, and on the FC entries the model to beat."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from sklearn.kernel_ridge import KernelRidge

from ...connectome import Connectomes
from ...progress import Progress, silent
from ...training import Run, Scans, SourceScans
from ..registry import TEXTBOOK, method
from .base import DualSolution, LinearMethod, LinearSettings
from .many_labels import predict_columns
from .sites import KernelEigen

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

    def fit_labels(
        self, connectomes: Connectomes, runs: Sequence[Run], labels: np.ndarray, progress: Progress = silent
    ) -> list[np.ndarray]:
        """Compute the margins of the test scans of runs for many columns of labels.

        See :class:`brio.methods.linear.many_labels.FitsManyLabels`.

        Parameters
        ----------
        connectomes : Connectomes
            Of the whole cohort, N scans; its own labels are not read.
        runs : sequence of Run
        labels : ndarray of int, shape [N, B]
            0 or 1. Every source site has both classes in every column.
        progress : Progress

        Returns
        -------
        list of ndarray of float64, shape [n_test, B]
            One for each run. They are the margins of the ordinary fit; without its calibration where each site has an
            intercept.
        """
        margins: list[np.ndarray] = []
        margins_by_scans: dict[tuple[bytes, ...], np.ndarray] = {}
        take = self.read_scans(connectomes)
        for i, run in enumerate(runs):
            progress(f"{labels.shape[1]:,} columns of labels, fold {run.fold.name}", i / len(runs))
            scans = tuple(part.tobytes() for part in (run.fold.source, run.fold.validation, run.fold.test))
            if self.uses_seed or scans not in margins_by_scans:
                margins_by_scans[scans] = self._fit_run_labels(SourceScans.of_run(connectomes, run), take, run, labels)
            margins.append(margins_by_scans[scans])
        return margins

    def _fit_run_labels(
        self, source: SourceScans, take: Callable[[np.ndarray], Scans], run: Run, labels: np.ndarray
    ) -> np.ndarray:
        """Margins of the test scans of one run. Labels [N, B] -> [n_test, B]."""
        fold = run.fold
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
        if self.site_intercepts:
            return predict_columns(KernelEigen.of_kernel(gram, source.site), Y, penalties, across, choose)
        eigen = KernelEigen.of_kernel(gram, np.zeros(len(x)))
        return predict_columns(eigen, Y, penalties, across, choose) + Y.mean(0)


@method("ridge", family="linear", provenance=TEXTBOOK, reference="Hoerl & Kennard 1970; scikit-learn's KernelRidge")
class Ridge(KernelRidgeMethod):
    """Ridge regression of the label (-1, 1) on the Fisher z entries, penalty chosen on the validation scans."""

    uses_seed = False

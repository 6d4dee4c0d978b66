"""Many columns of labels on one factorisation: what a study that permutes labels asks of a closed-form model.

A kernel ridge regression is linear in its labels. One eigendecomposition of the kernel of the source scans therefore
serves every penalty and every column of labels, and blocks of the inverse give the margins of all inner folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from ...connectome import Connectomes
from ...progress import Progress, silent
from ...protocol.column_auc import score_columns
from ...training import Run

__all__ = ["FitsManyLabels", "KernelEigen", "factorise_kernel", "predict_columns"]


@runtime_checkable
class FitsManyLabels(Protocol):
    """A method that fits many columns of labels at once.

    Its features do not depend on labels. ``fit_labels`` orders the test scans as ``fit`` does on a cohort with the
    labels of that column, the choice of the penalty included.
    """

    def fit_labels(
        self, connectomes: Connectomes, runs: Sequence[Run], labels: np.ndarray, progress: Progress = silent
    ) -> list[np.ndarray]:
        """Compute the margins of the test scans of runs for many columns of labels.

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
            One for each run, up to an intercept and a positive factor for each column, neither of which changes an AUC.
        """


class KernelEigen(NamedTuple):
    """The eigendecomposition of a kernel from which the unpenalised intercepts are projected out.

    Attributes
    ----------
    size : ndarray, shape [n]
        Eigenvalues, 0 in the space of the intercepts.
    axes : ndarray, shape [n, n]
        Eigenvectors, one per column.
    hat : ndarray, shape [n, n]
        Projection on the space of the intercepts.
    """

    size: np.ndarray
    axes: np.ndarray
    hat: np.ndarray

    def invert_block(self, scans: np.ndarray, penalty: float) -> np.ndarray:
        """Block of the inverse of the bordered system at some source scans, for their inner fold. [m] -> [m, m]."""
        axes, hat = self.axes[scans], self.hat[np.ix_(scans, scans)]
        block = (axes / (self.size + penalty)) @ axes.T - hat / penalty
        if np.allclose(hat.sum(axis=1), 1.0):
            # These scans have an intercept of their own, along which the block is zero: fix it, since it is arbitrary.
            block = block + np.trace(block) / len(block) ** 2
        return block


def factorise_kernel(kernel: np.ndarray, intercepts: np.ndarray) -> KernelEigen:
    """Factorise the kernel of a ridge regression with unpenalised intercepts, for every penalty and column of labels.

    Parameters
    ----------
    kernel : ndarray, shape [n, n]
        Between source scans.
    intercepts : ndarray, shape [n, E]
        1 where a scan has an intercept, such as that of its site; a column of ones for a common intercept.

    Returns
    -------
    KernelEigen
    """
    hat = intercepts @ np.linalg.solve(intercepts.T @ intercepts, intercepts.T)
    projected = kernel - hat @ kernel
    projected = projected - projected @ hat
    size, axes = np.linalg.eigh((projected + projected.T) / 2)
    return KernelEigen(size, axes, hat)


def predict_columns(
    factors: KernelEigen,
    Y: np.ndarray,
    penalties: np.ndarray,
    across_test: np.ndarray,
    choose: tuple[np.ndarray, np.ndarray] | np.ndarray,
) -> np.ndarray:
    """Predict test scans for many columns of labels, each under its own best penalty.

    The penalty is chosen on validation scans, or by the mean AUC over inner folds. Withholding the scans w of a source
    site changes their margins to y_w - G^-1 alpha_w, for the block G of the inverse of the bordered system, so that no
    inner fold has to be fitted (An, Liu & Venkatesh, Pattern Recognition 2007).

    Parameters
    ----------
    factors : KernelEigen
        Of the n source scans.
    Y : ndarray, shape [n, B]
        Labels of the source scans, -1 or 1.
    penalties : ndarray, shape [L]
    across_test : ndarray, shape [n_test, n]
        Kernel between test and source scans.
    choose : ndarray, shape [n], or tuple of two ndarrays, shapes [n_validation, n] and [n_validation, B]
        The site of each source scan, to choose by inner folds; or the kernel between validation and source scans, and
        the labels of the validation scans, 0 or 1.

    Returns
    -------
    ndarray, shape [n_test, B]
        Margins without intercepts.
    """
    within = factors.axes.T @ (Y - factors.hat @ Y)
    margins = np.empty((len(penalties), len(across_test), Y.shape[1]))
    scores = np.empty((len(penalties), Y.shape[1]))
    for k, penalty in enumerate(penalties):
        alpha = factors.axes @ (within / (factors.size + penalty)[:, None])
        margins[k] = across_test @ alpha
        if isinstance(choose, tuple):
            across_validation, label = choose
            scores[k] = score_columns(label, across_validation @ alpha)
        else:
            scores[k] = _score_inner_folds(factors, Y, alpha, choose, penalty)
    best = np.argmax(scores, axis=0)  # the first where penalties tie, as the ordinary fit chooses
    return np.take_along_axis(margins, best[None, None, :], axis=0)[0]


def _score_inner_folds(
    factors: KernelEigen, Y: np.ndarray, alpha: np.ndarray, site: np.ndarray, penalty: float
) -> np.ndarray:
    """Mean AUC over inner folds for each column, from weights alpha [n, B] fitted to all source scans. Shape [B]."""
    scores = []
    for e in np.unique(site):
        withheld = np.flatnonzero(site == e)
        margin = Y[withheld] - np.linalg.solve(factors.invert_block(withheld, penalty), alpha[withheld])
        scores.append(score_columns(Y[withheld] > 0, margin))
    return np.mean(scores, axis=0)

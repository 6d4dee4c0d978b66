"""Many columns of labels on one factorisation: what a study that permutes labels asks of a closed-form model.

A kernel ridge regression is linear in its labels. One eigendecomposition of the kernel of the source scans therefore
serves every penalty and every column of labels, and blocks of the inverse give the margins of all inner folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from ...connectome import Connectomes
from ...progress import Progress, silent
from ...protocol.column_auc import score_columns
from ...training import Run
from .penalty_choice import ChosenOn, choose_penalty
from .sites import KernelEigen


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

        Shapes: labels [N, B]; returns [n_test, B].
        """


def predict_columns(
    eigen: KernelEigen,
    Y: np.ndarray,
    penalties: np.ndarray,
    across_test: np.ndarray,
    choose: tuple[np.ndarray, np.ndarray] | np.ndarray,
    fold_name: str,
) -> np.ndarray:
    """Predict test scans for many columns of labels, each under its own best penalty.

    The penalty is chosen on validation scans, or by the mean AUC over inner folds, none of which has to be fitted: the
    margins of a withheld site are its labels less their residuals, up to its intercept.

    Shapes: Y [n, B], penalties [L], across_test [n_test, n], choose [n]; returns [n_test, B].
    """
    rotated = eigen.rotate(Y)
    margins = np.empty((len(penalties), len(across_test), Y.shape[1]))
    scores = np.empty((len(penalties), Y.shape[1]))
    for k, penalty in enumerate(penalties):
        alpha = eigen.solve(rotated, penalty)
        margins[k] = across_test @ alpha
        if isinstance(choose, tuple):
            across_validation, label = choose
            scores[k] = score_columns(label, across_validation @ alpha)
        else:
            scores[k] = _score_inner_folds(eigen, Y, alpha, choose, penalty)
    chosen_on: ChosenOn = "validation" if isinstance(choose, tuple) else "source-sites"
    best = choose_penalty(scores, penalties, chosen_on, fold_name)
    return np.take_along_axis(margins, best[None, None, :], axis=0)[0]


def _score_inner_folds(
    eigen: KernelEigen, Y: np.ndarray, alpha: np.ndarray, inner_fold: np.ndarray, penalty: float
) -> np.ndarray:
    """Mean AUC over inner folds for each column, from weights alpha [n, B] fitted to all source scans. Shape [B]."""
    scores = []
    for k in np.unique(inner_fold):
        withheld = np.flatnonzero(inner_fold == k)
        margin = Y[withheld] - eigen.find_residuals(alpha, withheld, penalty)
        scores.append(score_columns(Y[withheld] > 0, margin, scale=1.0))
    return np.mean(scores, axis=0)

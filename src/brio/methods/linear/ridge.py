"""Ridge regression for all penalties and all inner folds at once, by eigenvectors or, for many scans, by products.

The cost of eigenvectors grows with the third power of the number of scans; that of a product of the Gram matrix with a
vector grows with the second. For thousands of scans, conjugate gradients need a few dozen such products. Regressions on
different scans are columns of one product; regressions that differ only in the penalty share it.
"""

from collections.abc import Sequence

import numpy as np

from ...connectome import Connectomes
from ...console import Progress, silent
from ...errors import BrioError
from ...machine import require_memory
from ...protocol.metrics import score_columns
from ...training import Run
from ..registry import TEXTBOOK, method
from .base import DualSolution, KernelEigen, LinearMethod, PreparedRun, choose_penalty

_STEPS = 2000


def fit_ridge_path(
    gram: np.ndarray,
    y: np.ndarray,
    group: np.ndarray,
    penalties: np.ndarray,
    included: np.ndarray,
    tolerance: float = 1e-10,
) -> np.ndarray:
    """Fit ridge regressions that differ in penalty and in the scans they see.

    With the Gram matrix K and labels y, both restricted to the scans of a column and centred within groups of these,
    the weights solve ``(K + penalty I) w = y``. The residuals of all penalties stay multiples of those of the smallest
    one, so that one sequence of products serves them all (B. Jegerlehner, arXiv:hep-lat/9612014).

    Shapes: gram [n, n], y [n], group [n], penalties [k], included [n, c]; returns [k, n, c].
    """
    seen, groups = included.astype(np.float64), [np.flatnonzero(group == name) for name in np.unique(group)]
    counts = [np.maximum(seen[members].sum(0), 1.0) for members in groups]

    def centre(values: np.ndarray) -> np.ndarray:
        """Centre columns within groups of the scans that a column sees; scans that it does not see become 0."""
        centred = values * seen
        for members, count in zip(groups, counts, strict=True):
            centred[members] -= centred[members].sum(0) / count * seen[members]
        return centred

    order = np.argsort(penalties)
    smallest, shift = penalties[order[0]], (penalties[order] - penalties[order[0]])[:, None]
    residual = centre(np.repeat(y[:, None].astype(np.float64), included.shape[1], axis=1))
    square = (residual**2).sum(0)
    enough = tolerance**2 * square
    weights = np.zeros((len(penalties), *residual.shape))
    direction, directions = residual, np.repeat(residual[None], len(penalties), axis=0)
    # alpha and beta of conjugate gradients for the smallest penalty; zeta: residuals of a penalty over those of it
    alpha_before, beta = np.ones(residual.shape[1]), np.zeros(residual.shape[1])
    zeta_before = zeta = np.ones((len(penalties), residual.shape[1]))
    moving = np.ones(zeta.shape, dtype=bool)  # a penalty that has converged is never moved again: its zeta is old
    for _ in range(_STEPS):
        active = square > enough
        if not active.any():
            weights[order] = weights.copy()
            return weights
        product = centre(gram @ direction) + smallest * direction
        curvature = (direction * product).sum(0)
        alpha = np.where(active, square / np.where(active, curvature, 1.0), 0.0)
        moving = moving & active & (zeta**2 * square > enough)
        divisor = alpha * beta * (zeta_before - zeta) + zeta_before * alpha_before * (1 + shift * alpha)
        zeta_next = np.where(moving, zeta * zeta_before * alpha_before / np.where(moving, divisor, 1.0), zeta)
        share = np.where(moving, zeta_next / zeta, 0.0)
        weights += (alpha * share)[:, None, :] * directions
        residual = residual - alpha * product
        square_next = (residual**2).sum(0)
        beta = np.where(active, square_next / np.where(active, square, 1.0), 0.0)
        direction = residual + beta * direction
        directions = zeta_next[:, None, :] * residual + (beta * share**2)[:, None, :] * directions
        zeta_before, zeta, alpha_before, square = zeta, zeta_next, np.where(active, alpha, 1.0), square_next
    raise BrioError(f"ridge regression did not converge in {_STEPS} steps; use a larger least_penalty")


def predict_columns(
    eigen: KernelEigen,
    Y: np.ndarray,
    penalties: np.ndarray,
    across_test: np.ndarray,
    choose: tuple[np.ndarray, np.ndarray] | np.ndarray,
    fold_name: str,
) -> np.ndarray:
    """Predict test scans for many columns of labels, each with its own best penalty.

    The penalty is chosen on validation scans or by the mean AUC over inner folds. No inner fold has to be fitted,
    because the margins of a withheld site are its labels minus their residuals, up to its intercept.

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
            inner_aucs = []
            for withheld in (np.flatnonzero(choose == name) for name in np.unique(choose)):
                margin = Y[withheld] - eigen.find_residuals(alpha, withheld, penalty)
                inner_aucs.append(score_columns(Y[withheld] > 0, margin, scale=1.0))
            scores[k] = np.mean(inner_aucs, axis=0)
    chosen_on = "validation" if isinstance(choose, tuple) else "source-sites"
    best = choose_penalty(scores, penalties, chosen_on, fold_name)
    return np.take_along_axis(margins, best[None, None, :], axis=0)[0]


DECOMPOSED_SCANS = 3000
"""Largest number of source scans for which a run is solved by eigenvectors, which then take about ten seconds on one
core. Their time grows with the third power, that of conjugate gradients with the second. Fits to many columns of labels
always use eigenvectors."""
_TOLERANCE = 1e-8
"""Tolerance of conjugate gradients: margins differ from those of eigenvectors by about this share of the labels."""


class KernelRidgeMethod(LinearMethod):
    """Ridge regression on features that do not depend on labels; it fits many columns of labels at once."""

    most_decomposed = DECOMPOSED_SCANS

    def solve(self, gram: np.ndarray, y: np.ndarray, penalty: float) -> DualSolution:
        from sklearn.kernel_ridge import KernelRidge

        fitted = KernelRidge(alpha=penalty, kernel="precomputed").fit(gram, y - y.mean())
        return DualSolution(fitted.dual_coef_, float(y.mean()))

    def solve_run(
        self, prepared: PreparedRun, y: np.ndarray, with_inner_folds: bool
    ) -> tuple[list[DualSolution], np.ndarray | None]:
        """Solve all penalties and inner folds together if there are too many scans for a decomposition."""
        if len(y) <= self.most_decomposed:
            return super().solve_run(prepared, y, with_inner_folds)
        whole, margins = self._follow_path(prepared, y, prepared.penalties, with_inner_folds)
        intercept = 0.0 if self.site_intercepts else float(y.mean())
        return [DualSolution(weights, intercept) for weights in whole], margins if with_inner_folds else None

    def solve_grid(self, prepared: PreparedRun, y: np.ndarray) -> list[DualSolution]:
        """Solve all penalties in the eigenvectors of the Gram matrix if all scans share one intercept."""
        if self.site_intercepts:
            return super().solve_grid(prepared, y)
        rotated = prepared.eigen.rotate(y)
        return [DualSolution(prepared.eigen.solve(rotated, p), float(y.mean())) for p in prepared.penalties]

    def predict_inner_folds(self, prepared: PreparedRun, y: np.ndarray, penalties: np.ndarray) -> np.ndarray:
        """Compute the margins of all inner folds from the fit to all scans; no inner fold is fitted."""
        if len(y) > self.most_decomposed:
            return self._follow_path(prepared, y, penalties, with_inner_folds=True)[1]
        eigen, margins = prepared.eigen, np.empty((len(penalties), len(y)))
        rotated = eigen.rotate(y)
        for p, penalty in enumerate(penalties):
            weights = eigen.solve(rotated, penalty)
            for inside, withheld in prepared.split_inner_folds():
                residuals = eigen.find_residuals(weights, withheld, penalty)
                if self.site_intercepts:
                    without = weights - eigen.solve(eigen.rotate_part(residuals, withheld), penalty)
                    without[withheld] = 0.0
                    margins[p, withheld] = prepared.gram[withheld] @ without
                else:
                    margins[p, withheld] = y[withheld] - residuals - y[inside].mean()
        return margins

    def _follow_path(
        self, prepared: PreparedRun, y: np.ndarray, penalties: np.ndarray, with_inner_folds: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Weights [penalties, n] of fits to all source scans, and margins [penalties, n] of inner folds."""
        folds = list(prepared.split_inner_folds()) if with_inner_folds else []
        included = np.ones((len(y), 1 + len(folds)), dtype=bool)
        for column, (_, withheld) in enumerate(folds, start=1):
            included[withheld, column] = False
        weights = fit_ridge_path(prepared.gram, y, prepared.group, penalties, included, _TOLERANCE)
        margins, total = np.empty((len(penalties), len(y))), prepared.gram.sum(0)
        for column, (inside, withheld) in enumerate(folds, start=1):
            across, own = prepared.gram[withheld], weights[..., column]
            margins[:, withheld] = own @ across.T
            if not self.site_intercepts:  # features are centred on the scans of the inner fold
                margins[:, withheld] -= (own @ (total - across.sum(0)))[:, None] / len(inside)
        return weights[..., 0], margins

    def fit_labels(
        self, connectomes: Connectomes, runs: Sequence[Run], labels: np.ndarray, progress: Progress = silent
    ) -> list[np.ndarray]:
        """Compute the margins of the test scans of runs for many columns of labels.

        They equal those of the ordinary fit to each column, including the choice of the penalty, but without
        calibration if each site has an intercept.

        Shapes: labels [N, B]; returns [n_test, B].
        """
        opened = self.open_scans(connectomes, runs)
        needed = self.estimate_run_bytes(len(connectomes), connectomes.n_rois, decomposed=True)
        require_memory(needed, f"a refit of '{self.name}' needs", "use a machine with more memory")

        def fit_run(run: Run) -> np.ndarray:
            fold, prepared = run.fold, self.prepare_run(connectomes, opened, run)
            Y = 2.0 * labels[fold.source] - 1.0
            choose: tuple[np.ndarray, np.ndarray] | np.ndarray = prepared.inner_fold
            if self.settings.choose_by == "validation":
                choose = prepared.rows.multiply(fold.validation), labels[fold.validation]
            across = prepared.rows.multiply(fold.test)
            margins = predict_columns(prepared.eigen, Y, prepared.penalties, across, choose, fold.name)
            return margins if self.site_intercepts else margins + Y.mean(0)

        return self.fit_distinct(fit_run, runs, needed, f"{labels.shape[1]:,} columns of labels", progress)


@method("ridge", family="linear", provenance=TEXTBOOK, reference="Hoerl & Kennard 1970; scikit-learn's KernelRidge")
class Ridge(KernelRidgeMethod):
    """Ridge regression of the label (-1, 1) on the Fisher z entries; validation scans choose the penalty."""

    uses_seed = False
    features_are_edges = True

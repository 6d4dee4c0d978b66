"""Logistic regression and linear SVM, with one path over penalties for all runs."""

import numpy as np

from ...errors import BrioError
from ..registry import TEXTBOOK, method
from .base import DualSolution, KernelEigen, LinearMethod, PreparedRun

_NEWTON_STEPS = 100
_CG_STEPS = 200


def fit_logistic_path(
    z: np.ndarray, positive: np.ndarray, penalties: np.ndarray, included: np.ndarray, tolerance: float = 1e-8
) -> tuple[np.ndarray, np.ndarray]:
    """Fit logistic regressions, log-odds = z @ coefficients + intercept, that differ in their penalty and their scans.

    Column k minimises, over the scans i that it includes, ``sum_i log(1 + exp(-y_i f_i)) + penalty_k / 2 |w_k|^2`` with
    ``f_i = z_i w_k + b_k``. It uses Newton's method, with conjugate gradients to solve its equations. The
    preconditioner is diagonal, so features with orthogonal columns (the principal coordinates of all scans) converge
    fastest.

    Shapes: z [n, r], positive [n], penalties [c], included [n, c]; returns coefficients [r, c], intercept [c].
    """
    columns = _Columns(z, positive.astype(np.float64)[:, None], penalties, included.astype(np.float64))
    share = (columns.included * columns.target).sum(0) / columns.included.sum(0)
    if not ((share > 0) & (share < 1)).all():
        raise BrioError("a logistic regression needs scans of both classes; add scans of the missing class")
    point = np.vstack([np.zeros((z.shape[1], len(penalties))), np.log(share / (1 - share))])
    enough = tolerance * len(z)
    for _ in range(_NEWTON_STEPS):
        logit = columns.predict(point)
        gradient = columns.find_gradient(point, logit)
        size = np.linalg.norm(gradient, axis=0)
        if (size <= enough).all():
            return point[:-1], point[-1]
        step = columns.solve_newton(logit, gradient, np.minimum(0.1, np.sqrt(size / len(z))) * size)
        point = columns.descend(point, logit, np.where(size > enough, step, 0.0), gradient)
    raise BrioError(f"logistic regression did not converge in {_NEWTON_STEPS} steps; use a larger least_penalty")


class _Columns:
    """Regressions as columns. The last row of a point [r + 1, c] holds the intercepts, which are not penalised."""

    def __init__(self, z: np.ndarray, target: np.ndarray, penalties: np.ndarray, included: np.ndarray) -> None:
        self.z, self.target, self.included = z, target, included
        self.penalty = np.vstack([np.repeat(penalties[None], z.shape[1], 0), np.zeros((1, len(penalties)))])
        self.square = z**2
        self.rounded = z.astype(np.float32)  # for the steps, which twice the speed serves better than their last digits

    def predict(self, point: np.ndarray) -> np.ndarray:
        """Log-odds of all scans. Shape [n, c]."""
        return self.z @ point[:-1] + point[-1]

    def find_loss(self, point: np.ndarray, logit: np.ndarray) -> np.ndarray:
        """Penalised loss of each column. Shape [c]."""
        loss = np.logaddexp(0.0, logit) - self.target * logit
        return (self.included * loss).sum(0) + (self.penalty * point**2).sum(0) / 2

    def find_gradient(self, point: np.ndarray, logit: np.ndarray) -> np.ndarray:
        """Gradient of the penalised loss. Shape [r + 1, c]."""
        values = self.included * (_sigmoid(logit) - self.target)
        return np.vstack([self.z.T @ values, values.sum(0)]) + self.penalty * point

    def solve_newton(self, logit: np.ndarray, gradient: np.ndarray, enough: np.ndarray) -> np.ndarray:
        """Newton's step, by conjugate gradients until the residual of each column is small enough. Shape [r + 1, c]."""
        chance = _sigmoid(logit)
        curvature = self.included * chance * (1 - chance)
        rounded = curvature.astype(np.float32)
        total = curvature.sum(0)
        scale = np.vstack([self.square.sum(0)[:, None] * (total / len(self.z)), total]) + self.penalty
        step, residual = np.zeros_like(gradient), -gradient
        preconditioned = residual / scale
        direction, product = preconditioned, (residual * preconditioned).sum(0)
        for _ in range(_CG_STEPS):
            active = np.linalg.norm(residual, axis=0) > enough
            if not active.any():
                break
            single = direction.astype(np.float32)
            values = rounded * (self.rounded @ single[:-1] + single[-1])
            bent = np.vstack([self.rounded.T @ values, values.sum(0)]) + self.penalty * direction
            along = (direction * bent).sum(0)
            length = np.where(active, product / np.where(along > 0, along, 1.0), 0.0)
            step, residual = step + length * direction, residual - length * bent
            preconditioned = residual / scale
            following = (residual * preconditioned).sum(0)
            share = np.where(product > 0, following / np.where(product > 0, product, 1.0), 0.0)
            direction, product = preconditioned + share * direction, following
        return step

    def descend(self, point: np.ndarray, logit: np.ndarray, step: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Follow the step of each column, halved until its loss falls."""
        loss, slope, moved = self.find_loss(point, logit), (gradient * step).sum(0), self.predict(step)
        length = np.ones(step.shape[1])
        for _ in range(30):
            then = self.find_loss(point + length * step, logit + length * moved)
            too_long = then > loss + 1e-4 * length * slope + 1e-12 * np.abs(loss)
            if not too_long.any():
                break
            length = np.where(too_long, length / 2, length)
        return point + length * step


def _sigmoid(logit: np.ndarray) -> np.ndarray:
    return 0.5 * (1.0 + np.tanh(0.5 * logit))


class LogisticMethod(LinearMethod):
    """Logistic regression (l2) in the principal coordinates of the source scans, which the Gram matrix gives.

    The curvature of the logistic loss is at most a quarter of that of the squared loss. A quarter of the penalty is
    therefore used, so that one grid suits both.
    """

    def solve(self, gram: np.ndarray, y: np.ndarray, penalty: float) -> DualSolution:
        eigen = KernelEigen.of_kernel(gram, np.zeros(len(gram)))
        return self._solve_penalties(eigen, y, np.array([penalty]))[0]

    def solve_grid(self, prepared: PreparedRun, y: np.ndarray) -> list[DualSolution]:
        return self._solve_penalties(prepared.eigen, y, prepared.penalties)

    def predict_inner_folds(self, prepared: PreparedRun, y: np.ndarray, penalties: np.ndarray) -> np.ndarray:
        """Fit all inner folds and penalties at once. An unpenalised intercept makes further centring unnecessary."""
        folds = list(prepared.split_inner_folds())
        included = np.ones((len(y), len(folds)), dtype=bool)
        for k, (_, withheld) in enumerate(folds):
            included[withheld, k] = False
        z, _ = _find_coordinates(prepared.eigen)
        every = np.repeat(penalties / 4, len(folds)), np.tile(included, (1, len(penalties)))
        products = (z @ fit_logistic_path(z, y > 0, *every)[0]).reshape(len(y), len(penalties), len(folds))
        margins = np.empty((len(penalties), len(y)))
        for k, (inside, withheld) in enumerate(folds):
            margins[:, withheld] = (products[withheld, :, k] - products[inside, :, k].mean(0)).T
        return margins

    def _solve_penalties(self, eigen: KernelEigen, y: np.ndarray, penalties: np.ndarray) -> list[DualSolution]:
        z, from_coordinates = _find_coordinates(eigen)
        everyone = np.ones((len(y), len(penalties)), dtype=bool)
        coefficients, intercept = fit_logistic_path(z, y > 0, penalties / 4, everyone)
        weights = from_coordinates @ coefficients
        return [DualSolution(w, float(b)) for w, b in zip(weights.T, intercept, strict=True)]


def _find_coordinates(eigen: KernelEigen) -> tuple[np.ndarray, np.ndarray]:
    """Principal coordinates [n, r], and what turns coefficients of these into weights of scans, both [n, r]."""
    spanned = eigen.size > 1e-10 * max(eigen.size[-1], 1e-300)
    root, axes = np.sqrt(eigen.size[spanned]), eigen.axes[:, spanned]
    return axes * root, axes / root


@method("logistic", family="linear", provenance=TEXTBOOK, reference="Cox 1958, with the penalty of ridge regression")
class Logistic(LogisticMethod):
    """Logistic regression (l2) on the Fisher z entries."""

    version = 4  # probabilities are those of the margins, which are those of version 3
    uses_seed = False
    features_are_edges = True
    margins_are_log_odds = True


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

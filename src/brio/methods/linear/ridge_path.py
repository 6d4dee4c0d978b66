"""Many ridge regressions on the same scans at once: all penalties and all inner folds, without a decomposition.

Eigenvectors cost the third power of the number of scans, a product of the Gram matrix with a vector the second. Where
there are thousands of scans, conjugate gradients need some tens of such products. Regressions that differ in the scans
they see are columns of one product; those that differ in the penalty alone share it.
"""

from __future__ import annotations

import numpy as np

from ...errors import BrioError

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
    centre = _Centring(group, included)
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
    raise BrioError(f"ridge regression did not converge in {_STEPS} steps; use a larger `least_penalty`")


class _Centring:
    """Centres columns within groups of the scans that a column sees; scans that it does not see become 0."""

    def __init__(self, group: np.ndarray, included: np.ndarray) -> None:
        self.members = [np.flatnonzero(group == name) for name in np.unique(group)]
        self.included = included.astype(np.float64)
        self.counts = [np.maximum(self.included[members].sum(0), 1.0) for members in self.members]

    def __call__(self, values: np.ndarray) -> np.ndarray:
        centred = values * self.included
        for members, count in zip(self.members, self.counts, strict=True):
            centred[members] -= centred[members].sum(0) / count * self.included[members]
        return centred

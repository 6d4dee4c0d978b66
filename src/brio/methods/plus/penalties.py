"""Penalties on linear functionals of a factor, as a change of its kernel.

A functional maps a contribution a_j to a number that should be small: the change of a_j between a scan and its
re-estimate, or the difference of its means at two sites. For rows T of such functionals, minimising |a|_K^2 + |T a|^2
instead of |a|_K^2 is the same model with the kernel K - K T' (I + T K T')^-1 T K. So both penalties have a closed
solution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .factors import FactorSpace

__all__ = ["Functionals", "KernelWeights", "PenalisedKernels", "penalise_kernels"]


class Functionals(NamedTuple):
    """Rows of functionals: combinations of centred scans (linear path) and of points (the factors' own kernels)."""

    edges: Tensor  # [rows, edges]
    points: Tensor  # [rows, m]

    def append(self, other: Functionals) -> Functionals:
        """Append the rows of others."""
        return Functionals(torch.cat([self.edges, other.edges]), torch.cat([self.points, other.points]))


class KernelWeights(NamedTuple):
    """How the two parts of a factor's kernel are put together."""

    linear: float  # weight of the linear kernel
    own: float  # weight of the factor's own kernel
    gamma: float  # inverse width of the latter


class PenalisedKernels(NamedTuple):
    """Kernels of the factors between source scans under the penalty."""

    K: Tensor  # [J, n, n]
    removed: Tensor  # [J, rows, n] how much of each functional the penalty removes from a source scan's kernel function


def penalise_kernels(
    K: Tensor,
    T: Sequence[Functionals] | None,
    x: Tensor,
    factors: FactorSpace,
    points: Tensor,
    weights: KernelWeights,
) -> PenalisedKernels:
    """Penalise functionals of each factor.

    Parameters
    ----------
    K : Tensor, shape [J, n, n]
        Kernels of the factors between source scans.
    T : sequence of Functionals, length J, or None
        Those of each factor, equally many; None penalises nothing.
    x : Tensor, shape [n, edges]
        Centred log-connectomes of the source scans.
    factors : FactorSpace
    points : Tensor, shape [J, m, d_t]
        Coordinates of the points; the last n are the source scans.
    weights : KernelWeights
        Those that K was computed with.

    Returns
    -------
    PenalisedKernels
    """
    if T is None:
        return PenalisedKernels(K, K.new_zeros(len(K), 0, K.shape[-1]))
    n, kernels, removed = len(x), [], []
    eye = torch.eye(len(T[0].edges), dtype=K.dtype, device=K.device)
    for j, (rows, share) in enumerate(zip(T, factors.shares, strict=True)):
        weighted = rows.edges * (weights.linear * share / factors.scale)
        across, inner = weighted @ x.T, weighted @ rows.edges.T  # T K [rows, n], T K T' [rows, rows]
        if weights.own:
            between = weights.own * factors.kernel(points[j : j + 1], points[j : j + 1], weights.gamma, j)[0]
            of_points = rows.points @ between
            across, inner = across + of_points[:, -n:], inner + of_points @ rows.points.T
        removed.append(torch.linalg.solve(eye + inner, across))
        kernels.append(K[j] - across.T @ removed[-1])
    return PenalisedKernels(torch.stack(kernels), torch.stack(removed))

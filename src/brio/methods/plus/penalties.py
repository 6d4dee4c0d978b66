"""The penalty on changes under re-estimation, as a change of the factors' kernels.

A row T of changes maps a contribution a_j to a number that should be small: how much a_j differs between a scan and
its re-estimate, or a combination of such differences. Minimising |a|_K^2 + |T a|^2 instead of |a|_K^2 is the same model
with the kernel K - K T' (I + T K T')^-1 T K. So the penalty has a closed solution.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...threads import map_on_cores
from .factors import FactorSpace

__all__ = ["Changes", "PenalisedKernels", "penalise_kernels"]


class Changes(NamedTuple):
    """Rows of changes: combinations of centred edges (linear path) and of points (the factors' own kernels)."""

    edges: Tensor  # [rows, edges]
    points: Tensor  # [rows, m]


class PenalisedKernels(NamedTuple):
    """Kernels of the factors between source scans under the penalty."""

    K: Tensor  # [J, n, n]
    removed: Tensor  # [J, rows, n] how much of each change the penalty removes from a source scan's kernel function


def penalise_kernels(
    K: Tensor,
    changes: Changes,
    x: Tensor,
    factors: FactorSpace,
    points: Tensor,
    own_weight: float,
    precision: torch.dtype = torch.float64,
) -> PenalisedKernels:
    """Penalise the same changes of every factor's contribution.

    Parameters
    ----------
    K : Tensor, shape [J, n, n]
        Kernels of the factors between source scans: the linear one plus ``own_weight`` times their own.
    changes : Changes
    x : Tensor, shape [n, edges]
        Centred edges of the source scans.
    factors : FactorSpace
    points : Tensor, shape [J, m, d_t]
        Coordinates of the points; the last n are the source scans.
    own_weight : float
    precision : torch.dtype
        Of the products over edges and points.

    Returns
    -------
    PenalisedKernels
    """
    edges, of_scans, combine = (t.to(precision) for t in (changes.edges, x, changes.points))
    eye = torch.eye(len(edges), dtype=K.dtype, device=K.device)

    def penalise(j: int) -> tuple[Tensor, Tensor]:
        weighted = edges * (factors.shares[j] / factors.scale).to(precision)
        across, inner = weighted @ of_scans.T, weighted @ edges.T  # T K [rows, n], T K T' [rows, rows]
        if own_weight:
            r = points[j : j + 1].to(precision)
            of_points = own_weight * (combine @ factors.kernel(r, r, j)[0])
            across, inner = across + of_points[:, -len(x) :], inner + of_points @ combine.T
        across = across.to(K)
        removed = torch.linalg.solve(eye + inner.to(K), across)
        return K[j] - across.T @ removed, removed

    penalised = map_on_cores(penalise, range(len(K)), x.device)
    return PenalisedKernels(*(torch.stack(same) for same in zip(*penalised, strict=True)))

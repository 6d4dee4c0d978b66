"""What must not matter, as linear functionals of a factor; penalising them is a change of its kernel.

A functional takes a contribution a_j to a number: the change of a_j between a scan and its re-estimate, or the
difference of its means at two sites. For rows T of such functionals, minimising |a|_K^2 + |T a|^2 in place of |a|_K^2
is the same model with the kernel K - K T' (I + T K T')^-1 T K. So both penalties are solved for, not descended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .factors import Factors

__all__ = ["Functionals", "Penalised"]


class Functionals(NamedTuple):
    """Rows of functionals: combinations of viewed scans for the linear path, of points for the factors' own kernels."""

    edges: Tensor  # [rows, edges]
    points: Tensor  # [rows, m]

    def joined(self, other: Functionals) -> Functionals:
        return Functionals(torch.cat([self.edges, other.edges]), torch.cat([self.points, other.points]))


class Penalised(NamedTuple):
    """Kernels of the factors between source scans after the penalty, and how much of each functional they take away."""

    K: Tensor  # [J, n, n]
    taken: Tensor  # [J, rows, n]

    @staticmethod
    def of(
        K: Tensor,
        T: Sequence[Functionals] | None,
        x: Tensor,
        factors: Factors,
        points: Tensor,
        linear: float,
        own: float,
        gamma: float,
    ) -> Penalised:
        """Penalise functionals of each factor.

        Parameters
        ----------
        K : Tensor, shape [J, n, n]
            Kernels of the factors between source scans: ``linear`` times that of the edges, ``own`` times their own.
        T : sequence of Functionals or None
            Those of each factor, equally many.
        x : Tensor, shape [n, edges]
            Source scans, which are also the last n of the points.
        points : Tensor, shape [J, m, d_t]
        """
        if T is None:
            return Penalised(K, K.new_zeros(len(K), 0, K.shape[-1]))
        n, after, taken = len(x), [], []
        eye = torch.eye(len(T[0].edges), dtype=K.dtype, device=K.device)
        for j, (rows, share) in enumerate(zip(T, factors.shares, strict=True)):
            weighted = rows.edges * (linear * share / factors.scale)
            across, inner = weighted @ x.T, weighted @ rows.edges.T
            if own:
                between = own * factors.kernel(points[j : j + 1], points[j : j + 1], gamma, j)[0]
                seen = rows.points @ between
                across, inner = across + seen[:, -n:], inner + seen @ rows.points.T
            taken.append(torch.linalg.solve(eye + inner, across))
            after.append(K[j] - across.T @ taken[-1])
        return Penalised(torch.stack(after), torch.stack(taken))

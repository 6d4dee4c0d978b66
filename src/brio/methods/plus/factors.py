"""The factors of BRIO plus: which share of each edge a factor has, and what it sees of a scan."""

from __future__ import annotations

from typing import NamedTuple

import torch
from sklearn.cluster import KMeans
from torch import Tensor

from ...errors import BrioError
from ..brio.assignment import balanced

__all__ = ["Factors", "assign", "edge_shares"]

_NO_DIRECTION = 1e-9
"""Share of the largest variance below which a principal direction is rounding alone."""


def assign(mean: Tensor, J: int, temperature: float, iterations: int, seed: int) -> Tensor:
    """Balanced assignment Pi of ROIs to factors, Eq. (7), from the mean connectome of the source sites.

    ROIs whose mean connectivity is alike go together: queries are the centres of a k-means of its rows, similarities
    are negative squared distances in units of their mean.

    Parameters
    ----------
    mean : Tensor, shape [P, P]

    Returns
    -------
    Tensor, shape [J, P]
        Columns sum to 1 / P exactly, rows to 1 / J about.
    """
    if len(mean) < J:
        raise BrioError(f"setting 'J'={J}: there are {len(mean)} ROIs, and a factor needs one at least")
    rows = mean.double().cpu()
    centres = KMeans(J, n_init=10, random_state=seed % 2**32).fit(rows.numpy()).cluster_centers_
    distance = torch.cdist(torch.from_numpy(centres), rows).square()
    return balanced(-distance / (distance.mean().clamp_min(1e-12) * temperature), iterations).to(mean.device)


def edge_shares(Pi: Tensor) -> Tensor:
    """Share of every factor in every edge, P (Pi_ju + Pi_jv) / 2; those of an edge sum to one. [J, P] -> [J, edges].

    Examples
    --------
    >>> edge_shares(torch.tensor([[1 / 3, 1 / 3, 0.0], [0.0, 0.0, 1 / 3]]))
    tensor([[1.0000, 0.5000, 0.5000],
            [0.0000, 0.5000, 0.5000]])
    """
    P = Pi.shape[-1]
    u, v = torch.triu_indices(P, P, 1, device=Pi.device)
    return P * (Pi[:, u] + Pi[:, v]) / 2


class Factors(NamedTuple):
    """What J factors see of centred log-connectomes x [n, edges], learned from source scans.

    The linear kernel of factor j is the sum over edges of share x x'; over all factors that is the linear kernel of the
    whole connectome. Its own kernel reads the first principal coordinates of the same weighted edges.
    """

    Pi: Tensor  # [J, P] assignment of ROIs
    scale: Tensor  # mean squared norm of a source scan
    axes: Tensor  # [J, edges, d_t] principal directions
    width: Tensor  # [J] mean squared distance of source scans in the coordinates

    @staticmethod
    def learn(x: Tensor, Pi: Tensor, d_t: int) -> tuple[Factors, Tensor, Tensor]:
        """Factors of source scans, their linear kernels [J, n, n] and coordinates [J, n, d_t]."""
        scale = x.square().sum(1).mean()
        linear, coordinates, axes = [], [], []
        for share in edge_shares(Pi):
            own = x * share.sqrt()
            gram = own @ own.T
            size, vectors = torch.linalg.eigh(gram)
            size, vectors = size[-d_t:], vectors[:, -d_t:]
            there = (
                size > _NO_DIRECTION * size[-1]
            )  # few scans, or an empty factor, span fewer directions than asked for
            length = torch.where(there, size, torch.ones_like(size)).sqrt()
            linear.append(gram / scale)
            coordinates.append(vectors * (length * there))
            axes.append(own.T @ (vectors * (there / length)))
        r = torch.stack(coordinates)
        width = (2 * r.var(1, correction=0).sum(-1)).clamp_min(torch.finfo(x.dtype).tiny)
        return Factors(Pi, scale, torch.stack(axes), width), torch.stack(linear), r

    @property
    def shares(self) -> Tensor:
        """Share of every factor in every edge. Shape [J, edges]."""
        return edge_shares(self.Pi)

    def coordinates(self, x: Tensor) -> Tensor:
        """Principal coordinates of scans. Shape [J, n, d_t]."""
        return torch.stack([(x * share.sqrt()) @ axes for share, axes in zip(self.shares, self.axes, strict=True)])

    def kernel(self, r: Tensor, other: Tensor, gamma: float, j: int | slice = slice(None)) -> Tensor:
        """exp(-gamma |r - r'|^2 / width), of all factors or of one. [J, n, d_t], [J, m, d_t] -> [J, n, m]."""
        width = self.width[j].reshape(-1, 1, 1)
        return torch.exp(-gamma * torch.cdist(r, other).square() / width)

"""The factors of BRIO plus: the share of each edge that belongs to a factor, and the kernel of a factor."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackError, eigsh
from torch import Tensor

from ...errors import BrioError
from ...threads import map_on_cores
from ..brio.assignment import balanced

__all__ = ["FactorSpace", "assign_rois", "edge_shares"]

_LEAST_SCALE = 1e-9  # mean squared norm of scans that do not differ
_LANCZOS_FROM = 8  # times as many scans as eigenvectors: from here on Lanczos' method is faster than a decomposition
_LEAST_VARIANCE = 1e-9
"""Share of the largest variance below which a principal direction is rounding error."""


def assign_rois(mean: Tensor, J: int, temperature: float, iterations: int, seed: int) -> Tensor:
    """Compute the balanced assignment Pi of ROIs to factors, Eq. (7), from the mean connectome of the source sites.

    ROIs with similar mean connectivity share a factor: queries are the centres of a k-means of its rows, similarities
    are negative squared distances in units of their mean.

    Parameters
    ----------
    mean : Tensor, shape [P, P]
    J : int
        Number of factors.
    temperature : float
        Of the similarities; low values give each ROI to one factor.
    iterations : int
        Of the balancing, in the log domain.
    seed : int
        Of the k-means.

    Returns
    -------
    Tensor, shape [J, P]
        Columns sum to 1 / P exactly, rows to 1 / J approximately.

    Raises
    ------
    BrioError
        If there are more factors than ROIs.
    """
    from sklearn.cluster import KMeans

    if len(mean) < J:
        raise BrioError(f"setting 'J'={J}: there are {len(mean)} ROIs, and each factor needs at least one; lower J")
    rows = mean.double().cpu()
    centres = KMeans(J, n_init=10, random_state=seed % 2**32).fit(rows.numpy()).cluster_centers_
    distance = torch.cdist(torch.from_numpy(centres), rows).square()
    return balanced(-distance / (distance.mean().clamp_min(1e-12) * temperature), iterations).to(mean.device)


def edge_shares(Pi: Tensor) -> Tensor:
    """Compute the share of every factor in every edge, P (Pi_ju + Pi_jv) / 2; the shares of an edge sum to one.

    Parameters
    ----------
    Pi : Tensor, shape [J, P]

    Returns
    -------
    Tensor, shape [J, edges]

    Examples
    --------
    >>> edge_shares(torch.tensor([[1 / 3, 1 / 3, 0.0], [0.0, 0.0, 1 / 3]]))
    tensor([[1.0000, 0.5000, 0.5000],
            [0.0000, 0.5000, 0.5000]])
    """
    P = Pi.shape[-1]
    u, v = torch.triu_indices(P, P, 1, device=Pi.device)
    return P * (Pi[:, u] + Pi[:, v]) / 2


def _multiply_with_itself(x: Tensor) -> Tensor:
    """x x'. Shape [n, d] -> [n, n]. On the CPU by numpy, which computes one half of it and mirrors the other."""
    return x @ x.T if x.is_cuda else torch.from_numpy(x.numpy() @ x.numpy().T)


def _largest_eigenvectors(gram: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` largest eigenvalues, in ascending order, and their eigenvectors [n, count]."""
    if gram.is_cuda:
        size, vectors = torch.linalg.eigh(gram)
        return size[-count:], vectors[:, -count:]
    n = len(gram)
    if n > _LANCZOS_FROM * count:
        start = np.cos(np.arange(n))  # any fixed vector but a constant one, which centred scans are orthogonal to
        with suppress(ArpackError):  # a matrix of low rank, such as that of an empty factor
            size, vectors = eigsh(gram.numpy(), count, v0=start)
            order = np.argsort(size)
            return torch.from_numpy(size[order]), torch.from_numpy(vectors[:, order])
    size, vectors = eigh(gram.numpy(), subset_by_index=[max(0, n - count), n - 1])
    return torch.from_numpy(size), torch.from_numpy(vectors)


def _learn_factor(x: Tensor, share: Tensor, d_t: int, precision: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Products of source scans [n, n], their principal coordinates [n, d_t], and directions [edges, d_t]."""
    weighted = (x * share.sqrt()).to(precision)
    gram = _multiply_with_itself(weighted).to(x)
    size, vectors = _largest_eigenvectors(gram, d_t)
    spanned = size > _LEAST_VARIANCE * size[-1]  # few scans, or an empty factor, span fewer than d_t directions
    length = torch.where(spanned, size, torch.ones_like(size)).sqrt()
    axes = weighted.T @ (vectors * (spanned / length)).to(precision)
    return gram, vectors * (length * spanned), axes.to(x)


class FactorSpace(NamedTuple):
    """What J factors read from centred edges x [n, edges], learned from source scans.

    The linear kernel of factor j is the sum over edges of share * x * x'; over all factors these add up to the linear
    kernel of the whole connectome. The factor's own kernel reads the first principal coordinates of the same weighted
    edges.
    """

    Pi: Tensor  # [J, P] assignment of ROIs
    scale: Tensor  # scalar, mean squared norm of a source scan
    axes: Tensor  # [J, edges, d_t] principal directions
    width: Tensor  # [J] mean squared distance between source scans in the coordinates

    @staticmethod
    def learn(
        x: Tensor, Pi: Tensor, d_t: int, precision: torch.dtype = torch.float64
    ) -> tuple[FactorSpace, Tensor, Tensor]:
        """Learn the factors from source scans.

        Parameters
        ----------
        x : Tensor, shape [n, edges]
            Centred edges of the source scans.
        Pi : Tensor, shape [J, P]
        d_t : int
            Principal coordinates of each factor.
        precision : torch.dtype
            Of the products over edges. Float32 halves their time, and suffices for edges that were estimated in it.

        Returns
        -------
        space : FactorSpace
        linear : Tensor, shape [J, n, n]
            Linear kernels between the source scans.
        r : Tensor, shape [J, n, d_t]
            Coordinates of the source scans.
        """
        scale = x.square().sum(1).mean().clamp_min(_LEAST_SCALE)
        learned = map_on_cores(lambda share: _learn_factor(x, share, d_t, precision), list(edge_shares(Pi)), x.device)
        linear, r, axes = (torch.stack(same) for same in zip(*learned, strict=True))
        linear /= scale
        width = (2 * r.var(1, correction=0).sum(-1)).clamp_min(torch.finfo(x.dtype).tiny)
        return FactorSpace(Pi, scale, axes, width), linear, r

    @property
    def shares(self) -> Tensor:
        """Share of every factor in every edge. Shape [J, edges]."""
        return edge_shares(self.Pi)

    def project(self, x: Tensor) -> Tensor:
        """Compute the principal coordinates of scans. Shape [n, edges] -> [J, n, d_t]."""
        axes = self.shares.sqrt().unsqueeze(-1) * self.axes  # [J, edges, d_t]
        coordinates = x @ axes.transpose(0, 1).flatten(1)  # of all factors in one product
        return coordinates.unflatten(1, (len(axes), -1)).transpose(0, 1).contiguous()

    def kernel(self, r: Tensor, other: Tensor, j: int | slice = slice(None)) -> Tensor:
        """Compute the factors' own kernels, exp(-|r - r'|^2 / width).

        Parameters
        ----------
        r : Tensor, shape [J, n, d_t]
        other : Tensor, shape [J, m, d_t]
        j : int, optional
            Factor of the coordinates, whose first axis then has length 1; by default all factors.

        Returns
        -------
        Tensor, shape [J, n, m]
        """
        scale = self.width[j].reshape(-1, 1, 1).sqrt().to(r).clamp_min(torch.finfo(r.dtype).tiny)  # of an empty factor
        r, other = r / scale, other / scale
        squares = r.square().sum(-1).unsqueeze(-1) + other.square().sum(-1).unsqueeze(-2)
        return torch.baddbmm(squares, r, other.mT, alpha=-2).clamp_min_(0.0).neg_().exp_()

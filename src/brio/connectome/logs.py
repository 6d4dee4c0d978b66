"""The log-connectome: correlations seen on the scale on which positive definite matrices add up."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["log_connectome"]

_REMAINDER = 1e-10
"""Share of the first term of a series that the first left out may have."""

_NEGATIVE = 1e-3
"""An eigenvalue this far below zero, times the shrinkage, is rounding, where a scan has fewer frames than ROIs."""


def log_connectome(A: Tensor, shrinkage: float) -> Tensor:
    """log((1 - s) R + s I) of the correlation matrices R behind Fisher z graphs, in the precision of the graphs.

    A fixed share s for every scan: one that is estimated from the number of frames would write the scanner's protocol
    into the matrix. ROIs without signal keep zero rows. Each scan's logarithm depends on that scan alone (the
    log-Euclidean view of Arsigny et al. 2006), so there is no reference to learn.

    Parameters
    ----------
    A : Tensor, shape [..., P, P]
        Fisher z, zero diagonal.
    shrinkage : float
        s, above 0 and below 1.

    Returns
    -------
    Tensor, shape [..., P, P]

    Examples
    --------
    >>> log_connectome(torch.zeros(2, 2), 0.5)
    tensor([[0., 0.],
            [0., 0.]])
    """
    R = A.double().tanh() + torch.eye(A.shape[-1], dtype=torch.float64, device=A.device)
    return (by_series if R.is_cuda else by_axes)(R, shrinkage).to(A.dtype)


def by_axes(R: Tensor, shrinkage: float) -> Tensor:
    """log((1 - s) R + s I) by eigenvectors. What made R no correlation matrix, its negative part, is left out."""
    size, axes = torch.linalg.eigh(R)
    size = torch.log1p((1.0 - shrinkage) * (size.clamp_min(0.0) - 1.0))
    return (axes * size.unsqueeze(-2)) @ axes.mT


def by_series(R: Tensor, shrinkage: float) -> Tensor:
    """The same, up to rounding, by products of matrices alone, which a GPU does many times faster than eigenvectors.

    Eigenvalues of a correlation matrix lie in [0, P], so those of M = (1 - s) R + s I in [s, s + (1 - s) P]. Of that
    interval log is a Chebyshev series with coefficients in closed form: with T the interval's points in [-1, 1] and
    q = (sqrt(b) - sqrt(a)) / (sqrt(b) + sqrt(a)) for its ends a and b,

        log M = log((b - a) / 4q) I + 2 sum_n (-1)^(n+1) q^n / n  cheb_n(T),

    summed here from its last term (Clenshaw). Matrices with a negative part are left to :func:`by_axes`.
    """
    P = R.shape[-1]
    eye = torch.eye(P, dtype=R.dtype, device=R.device)
    graphs = R.reshape(-1, P, P)
    low, high = shrinkage, shrinkage + (1.0 - shrinkage) * P
    q = (high**0.5 - low**0.5) / (high**0.5 + low**0.5)
    T = ((1.0 - shrinkage) * graphs + (shrinkage - (low + high) / 2) * eye) * (2 / (high - low))
    last = math.ceil(math.log(_REMAINDER) / math.log(q))
    found, after = torch.zeros_like(T), torch.zeros_like(T)
    for n in range(last, 0, -1):
        found, after = torch.baddbmm(after, T, found, beta=-1, alpha=2), found
        found.diagonal(dim1=-2, dim2=-1).add_(2 * (-1) ** (n + 1) * q**n / n)
    found = torch.baddbmm(after, T, found, beta=-1) + math.log((high - low) / (4 * q)) * eye
    bent = torch.linalg.cholesky_ex(graphs + _NEGATIVE * shrinkage * eye).info != 0
    if bent.any():
        found[bent] = by_axes(graphs[bent], shrinkage)
    return found.view(R.shape)

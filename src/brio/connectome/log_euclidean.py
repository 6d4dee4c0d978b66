"""Log-connectomes: correlation matrices on the logarithmic scale, on which positive definite matrices form a space."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..machine import map_on_cores
from .fc import invert_fisher_z

_REMAINDER = 1e-10
"""The series is cut where its terms fall below this share of the first."""

_MATRICES_AT_ONCE = 64

_NEGATIVE = 1e-3
"""Eigenvalues down to minus this share of the shrinkage are rounding errors of a scan with fewer frames than ROIs."""


def log_connectome(A: Tensor, shrinkage: float) -> Tensor:
    """Compute log((1 - s) R + s I) of the correlation matrices R whose Fisher z are given.

    The shrinkage s is the same for every scan: one estimated from the number of frames would write the scanner's
    protocol into the matrix. ROIs without signal keep zero rows. The logarithm of a scan depends on that scan alone
    (the log-Euclidean view of Arsigny et al. 2006), so there is no reference to learn.

    Shapes: A [..., P, P]; returns [..., P, P].
    """
    if A.is_cuda:
        return log_by_chebyshev(invert_fisher_z(A), shrinkage).to(A.dtype)

    def take_logarithms(part: Tensor) -> Tensor:
        return log_by_eigenvectors(invert_fisher_z(part), shrinkage).to(A.dtype)

    return torch.cat(map_on_cores(take_logarithms, A.reshape(-1, *A.shape[-2:]).split(_MATRICES_AT_ONCE))).view(A.shape)


def log_by_eigenvectors(R: Tensor, shrinkage: float) -> Tensor:
    """Compute log((1 - s) R + s I) by eigenvectors; negative eigenvalues of R are set to zero.

    Shapes: R [..., P, P]; returns [..., P, P].
    """
    size, axes = torch.linalg.eigh(R)
    size = torch.log1p((1.0 - shrinkage) * (size.clamp_min(0.0) - 1.0))
    return (axes * size.unsqueeze(-2)) @ axes.mT


def log_by_chebyshev(R: Tensor, shrinkage: float) -> Tensor:
    """Compute log((1 - s) R + s I) by matrix products alone, which is many times faster on a GPU.

    It equals :func:`log_by_eigenvectors` up to rounding. Eigenvalues of a correlation matrix lie in [0, P], those of
    M = (1 - s) R + s I therefore in [a, b] = [s, s + (1 - s) P]. On this interval, log is a Chebyshev series with
    coefficients in closed form. With T = M mapped from [a, b] to [-1, 1] and
    q = (sqrt(b) - sqrt(a)) / (sqrt(b) + sqrt(a)),

        log M = log((b - a) / 4q) I + 2 sum_n (-1)^(n+1) q^n / n  cheb_n(T),

    summed from the last term to the first (Clenshaw). Matrices with negative eigenvalues are left to
    :func:`log_by_eigenvectors`.

    Shapes: R [..., P, P]; returns [..., P, P].
    """
    P = R.shape[-1]
    eye = torch.eye(P, dtype=R.dtype, device=R.device)
    graphs = R.reshape(-1, P, P)
    low, high = shrinkage, shrinkage + (1.0 - shrinkage) * P
    q = (high**0.5 - low**0.5) / (high**0.5 + low**0.5)
    T = ((1.0 - shrinkage) * graphs + (shrinkage - (low + high) / 2) * eye) * (2 / (high - low))
    last = math.ceil(math.log(_REMAINDER) / math.log(q))
    total, after = torch.zeros_like(T), torch.zeros_like(T)
    for n in range(last, 0, -1):
        total, after = torch.baddbmm(after, T, total, beta=-1, alpha=2), total
        total.diagonal(dim1=-2, dim2=-1).add_(2 * (-1) ** (n + 1) * q**n / n)
    total = torch.baddbmm(after, T, total, beta=-1) + math.log((high - low) / (4 * q)) * eye
    negative = torch.linalg.cholesky_ex(graphs + _NEGATIVE * shrinkage * eye).info != 0
    if negative.any():
        total[negative] = log_by_eigenvectors(graphs[negative], shrinkage)
    return total.view(R.shape)

"""The FC estimator Psi (Pearson correlation, Fisher z) on a GPU and on the cores of a CPU, and log-connectomes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ..device import full_precision
from ..machine import map_on_cores

LARGEST_CORRELATION = 1.0 - 1e-6
"""Correlations are clipped to this magnitude so that Fisher z stays finite (at most 7.25)."""

FLAT = 1e-6
"""Variance of standardised frames at or below which an ROI has no signal."""


def standardise(x: Tensor) -> Tensor:
    """Compute z-scores of each ROI over the frames of its scan; flat ROIs become zero.

    Shapes: x [..., T, P]; returns [..., T, P].
    """
    n = x.new_tensor(x.shape[-2])
    centred = x - x.sum(-2, keepdim=True) / n
    scale = centred.square().sum(-2, keepdim=True).div(n).sqrt()
    return torch.where(scale > 0, centred / scale.clamp_min(torch.finfo(x.dtype).tiny), torch.zeros_like(x))


def fisher_z(r: Tensor) -> Tensor:
    """Compute Fisher z of correlations, with a zero diagonal.

    Shapes: r [..., P, P]; returns [..., P, P].
    """
    z = r.clamp(-LARGEST_CORRELATION, LARGEST_CORRELATION).atanh()
    return z - torch.diag_embed(z.diagonal(dim1=-2, dim2=-1))


def invert_fisher_z(A: Tensor) -> Tensor:
    """Compute correlations from their Fisher z, in float64 and with a unit diagonal.

    Shapes: A [..., P, P]; returns [..., P, P].
    """
    # numpy's tanh takes half the time of torch's where torch has no vector instructions for it
    r = A.double().tanh() if A.is_cuda else torch.from_numpy(np.tanh(A.detach().double().numpy()))
    r.diagonal(dim1=-2, dim2=-1).fill_(1.0)
    return r


def psi(x: Tensor, n: Tensor) -> Tensor:
    """Estimate the FC of zero-padded scans by Psi: Pearson correlation, Fisher z, zero diagonal.

    ROIs without variance have no correlation and get zero rows. How they enter a model is decided inside a fold, see
    :func:`fill_dead`.

    Shapes: x [..., T, P], n [...]; returns [..., P, P].
    """
    n = n[..., None, None].to(x.dtype)
    mean = x.sum(-2, keepdim=True) / n
    with full_precision():
        covariance = x.transpose(-1, -2) @ x / n - mean.transpose(-1, -2) * mean
    variance = covariance.diagonal(dim1=-2, dim2=-1).clamp_min(0)
    inverse = torch.where(variance > FLAT, variance.clamp_min(FLAT).rsqrt(), torch.zeros_like(variance))
    return fisher_z(covariance * inverse.unsqueeze(-1) * inverse.unsqueeze(-2))


def fill_dead(A: Tensor, alive: Tensor, mean: Tensor) -> Tensor:
    """Replace the edges of ROIs without signal by those of the source mean connectome.

    Zeros would reveal the site, since the scanner's field of view decides which ROIs lack signal. With a ``mean`` of
    zeros this is plain zero filling.

    Shapes: A [..., P, P], alive [..., P], mean [P, P]; returns [..., P, P].
    """
    live = alive > 0
    return torch.where(live.unsqueeze(-1) & live.unsqueeze(-2), A, mean)


def read_edges(A: Tensor) -> Tensor:
    """Read the edges of symmetric matrices.

    Shapes: A [..., P, P]; returns [..., P (P - 1) / 2].
    """
    n_rois = A.shape[-1]
    u, v = torch.triu_indices(n_rois, n_rois, 1, device=A.device)
    return A.flatten(-2).index_select(-1, u * n_rois + v)


def unfold_edges(edges: Tensor, n_rois: int) -> Tensor:
    """Make symmetric matrices from their edges, with a zero diagonal.

    Shapes: edges [..., P (P - 1) / 2]; returns [..., P, P].
    """
    u, v = torch.triu_indices(n_rois, n_rois, 1, device=edges.device)
    matrices = edges.new_zeros(*edges.shape[:-1], n_rois, n_rois)
    matrices[..., u, v] = edges
    return matrices + matrices.mT


def find_live_edges(alive: Tensor) -> Tensor:
    """Find the edges whose two ends have signal.

    Shapes: alive [..., P]; returns [..., P (P - 1) / 2].
    """
    u, v = torch.triu_indices(alive.shape[-1], alive.shape[-1], 1, device=alive.device)
    live = alive > 0
    return live[..., u] & live[..., v]


_PART = 4  # scans or re-estimates that a core takes at a time: few enough for its cache


def map_parts(function: Callable[[slice], None], count: int) -> None:
    """Call a function for parts of ``count`` scans or re-estimates, on all cores."""
    map_on_cores(function, [slice(start, min(start + _PART, count)) for start in range(0, count, _PART)])


def standardise_frames(frames: np.ndarray, out: np.ndarray) -> None:
    """Compute z-scores of each ROI over the frames of one scan, in float64; flat ROIs become zero.

    Gives the same result as :func:`brio.connectome.fc.standardise` for one scan without padding.

    Shapes: frames [T, P], out [T, P].
    """
    x = frames.astype(np.float64)
    x -= x.sum(axis=0) / len(x)
    scale = np.sqrt(np.einsum("tp,tp->p", x, x) / len(x))
    flat = scale == 0
    inverse = np.where(flat, 0.0, 1.0 / np.where(flat, 1.0, scale))
    np.multiply(x, inverse, out=out, casting="same_kind")


def convert_products(A: np.ndarray, n_frames: np.ndarray) -> None:
    """Convert products of centred frames to FC, in place: Pearson correlation, Fisher z, zero diagonal.

    Meant for one core, as :func:`map_parts` gives it.

    Shapes: A [n, P, P], n_frames [n].
    """
    upper, edge = _index_triangle(A.shape[-1])
    square_sum = np.diagonal(A, axis1=1, axis2=2)
    live = square_sum > FLAT * n_frames[:, None]
    inverse = np.where(live, 1.0 / np.sqrt(np.where(live, square_sum, 1.0)), 0.0).astype(A.dtype)
    A *= inverse[:, :, None]
    A *= inverse[:, None, :]
    entries = A.reshape(len(A), -1)
    z = entries.take(upper, axis=1, mode="clip")
    z[:, -1] = 0.0
    np.clip(z, -LARGEST_CORRELATION, LARGEST_CORRELATION, out=z)
    for row in torch.from_numpy(z):  # each alone: the last entries of a call are rounded in another way
        row.atanh_()  # a third of numpy's time
    z.take(edge, axis=1, out=entries, mode="clip")


def average_fc(sessions: Sequence[np.ndarray], n_sessions: Sequence[int]) -> np.ndarray:
    """Estimate the FC of n scans: means over sessions, as :func:`brio.connectome.resampling.average_psi`.

    Shapes: sessions [T_s, P]; returns [n, P, P].
    """
    A = np.stack([x.T @ x for x in sessions])
    convert_products(A, np.array([len(x) for x in sessions]))
    if len(A) == len(n_sessions):
        return A
    return np.stack([own.mean(axis=0) for own in np.split(A, np.cumsum(n_sessions)[:-1])])


def reestimate_fc(frames: np.ndarray, index: np.ndarray, n_frames: np.ndarray) -> np.ndarray:
    """Estimate the FC of resamples of scans.

    Shapes: frames [F, P], index [n, K, T], n_frames [n]; returns [n, K, P, P].
    """
    n, K, width = index.shape
    resamples, size = index.reshape(n * K, width), np.repeat(n_frames, K)
    A = np.empty((n * K, frames.shape[1], frames.shape[1]), dtype=frames.dtype)

    def estimate(part: slice) -> None:
        for i in range(part.start, part.stop):
            x = frames.take(resamples[i, : size[i]], axis=0)
            x -= x.mean(axis=0)
            np.matmul(x.T, x, out=A[i])
        convert_products(A[part], size[part])

    map_parts(estimate, n * K)
    return A.reshape(n, K, *A.shape[1:])


@lru_cache(maxsize=4)
def _index_triangle(n_rois: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the upper triangle in a flattened matrix and one of the diagonal; the number of each entry there."""
    u, v = np.triu_indices(n_rois, 1)
    edge = np.full((n_rois, n_rois), len(u))
    edge[u, v] = edge[v, u] = np.arange(len(u))
    return np.append(u * n_rois + v, 0), edge.reshape(-1)


_REMAINDER = 1e-10
"""The series is truncated when its terms fall below this share of the first."""

_MATRICES_AT_ONCE = 64

_NEGATIVE = 1e-3
"""Negative eigenvalues down to minus this share of the shrinkage count as rounding errors of short scans."""


def log_connectome(A: Tensor, shrinkage: float) -> Tensor:
    """Compute log((1 - s) R + s I) of the correlation matrices R whose Fisher z are given.

    The shrinkage s is the same for every scan, because shrinkage estimated from the number of frames would write the
    scanner's protocol into the matrix. ROIs without signal keep zero rows. The logarithm of a scan depends on that scan
    alone (the log-Euclidean view of Arsigny et al. 2006), so there is no reference to learn.

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


def differentiate_log(A: np.ndarray, change: np.ndarray, shrinkage: float) -> np.ndarray:
    """Compute the change of :func:`log_connectome` for small changes of Fisher z (Daleckii & Krein 1965).

    Shapes: A [P, P], change [n, P, P]; returns [n, P, P].
    """
    R = np.tanh(A.astype(np.float64))
    np.fill_diagonal(R, 1.0)
    size, axes = np.linalg.eigh(R)
    size = 1.0 + (1.0 - shrinkage) * (size.clip(0.0) - 1.0)
    gap = size[:, None] - size
    close = np.abs(gap) < 1e-8 * size
    slope = np.where(close, 1.0 / size, np.log1p(gap / size) / np.where(close, 1.0, gap))
    slope, axes, scale = (x.astype(change.dtype) for x in (slope, axes, (1.0 - shrinkage) * (1.0 - R**2)))
    return np.asarray(axes @ (axes.T @ (change * scale) @ axes * slope) @ axes.T)


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

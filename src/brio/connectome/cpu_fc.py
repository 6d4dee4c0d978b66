"""FC of many scans on a CPU: the estimator Psi with half of its arithmetic, and scans shared between cores.

The plain version is :func:`brio.connectome.psi`, which a GPU also uses. Here numpy multiplies a matrix by its own
transpose with a symmetric rank-k product, half of a general one, and Fisher z, which costs about as much, is computed
of one triangle. One matrix of this size is too small to share between cores, so each product has one core and the
cores take scans, a few at a time, since Python runs one thread between two calls of numpy. A connectome depends neither
on other scans nor on the number of cores, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import torch

from ..threads import map_on_cores
from .fc import FLAT, LARGEST_CORRELATION

_PART = 4  # scans or re-estimates that a core takes at a time: few enough for its cache


def map_parts(function: Callable[[slice], None], count: int) -> None:
    """Call a function for parts of ``count`` scans or re-estimates, on all cores."""
    map_on_cores(function, [slice(start, min(start + _PART, count)) for start in range(0, count, _PART)])


def standardise_frames(frames: np.ndarray, out: np.ndarray) -> None:
    """Compute z-scores of each ROI over the frames of one scan, in float64; flat ROIs become zero.

    The same as :func:`brio.connectome.fc.standardise` of one scan without padding.

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
    """Estimate the FC of n scans: means over sessions, as :func:`brio.connectome.averaging.average_psi`.

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

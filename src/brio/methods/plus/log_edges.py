"""Log-connectomes of scans and of their re-estimates, as rows of edges."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ...connectome import BlockRule, Connectomes, ReestimateRequest, clip_block_length, log_connectome

__all__ = ["ReestimatedLogEdges", "extract_log_edges", "find_live_edges"]

_CACHE_BYTES = {"cpu": 4 << 30, "cuda": 16 << 30}
_SCANS_AT_ONCE = 2048


def extract_log_edges(A: Tensor, shrinkage: float) -> Tensor:
    """Compute log-connectomes and read their upper triangles.

    Parameters
    ----------
    A : Tensor, shape [n, P, P]
        Connectomes (Fisher z).
    shrinkage : float
        Share of the identity in each correlation matrix.

    Returns
    -------
    Tensor, shape [n, edges]
        In the precision of A.
    """
    P = A.shape[-1]
    u, v = torch.triu_indices(P, P, 1, device=A.device)
    parts = [log_connectome(part, shrinkage)[:, u, v] for part in A.split(_SCANS_AT_ONCE)]
    return torch.cat(parts)


def find_live_edges(alive: Tensor) -> Tensor:
    """Find the edges whose two ends have signal.

    Parameters
    ----------
    alive : Tensor, shape [n, P]
        Above 0 where an ROI has signal.

    Returns
    -------
    Tensor of bool, shape [n, edges]
    """
    P = alive.shape[-1]
    u, v = torch.triu_indices(P, P, 1, device=alive.device)
    alive = alive > 0
    return alive[:, u] & alive[:, v]


class ReestimatedLogEdges:
    """Log-connectomes of K re-estimates of some scans. Runs of one seed and block length share them.

    They are cached where memory allows, else computed at each iteration, from the same draws.

    Parameters
    ----------
    connectomes : Connectomes
    scans : ndarray of int64, shape [n]
        Positions in the cohort.
    block_length : int
        Before it is clipped for each scan.
    rule : BlockRule
        Holds the bounds of the block length.
    seed : int
    K : int
        Re-estimates of each scan.
    shrinkage : float
        Share of the identity in each correlation matrix.
    """

    def __init__(
        self,
        connectomes: Connectomes,
        scans: np.ndarray,
        block_length: int,
        rule: BlockRule,
        seed: int,
        K: int,
        shrinkage: float,
    ) -> None:
        self._connectomes, self._scans, self._seed, self._K = connectomes, scans, seed, K
        self._block_length = clip_block_length(block_length, connectomes.n_frames[scans], rule)
        self._shrinkage = shrinkage
        P, size = connectomes.n_rois, torch.empty(0, dtype=connectomes.dtype).element_size()
        fits = len(scans) * K * P * (P - 1) // 2 * size <= _CACHE_BYTES[connectomes.device.type]
        self._cache = list(self._compute()) if fits else None

    def __iter__(self) -> Iterator[tuple[np.ndarray, Tensor]]:
        """Yield positions in the cohort [n], and log-connectomes [n, K, edges], part by part."""
        return iter(self._cache) if self._cache is not None else self._compute()

    def _compute(self) -> Iterator[tuple[np.ndarray, Tensor]]:
        resamples = ReestimateRequest(self._scans, self._block_length, self._seed, 0, self._K)
        for part, A in self._connectomes.iterate_reestimates(resamples):
            log = extract_log_edges(A.flatten(0, 1), self._shrinkage)
            yield self._scans[part], log.unflatten(0, (len(part), self._K))

"""Log-connectomes of a cohort as rows of edges, and those of their re-estimates."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ...connectome import BlockRule, Connectomes, Resamples, clip_block_length, log_connectome

__all__ = ["Reestimates", "edges", "live_edges"]

_HELD_BYTES = {"cpu": 4 << 30, "cuda": 16 << 30}
_AT_ONCE = 2048


def edges(A: Tensor, shrinkage: float) -> Tensor:
    """Upper triangle of log-connectomes. Shape [n, P, P] -> [n, edges], in the precision of the graphs."""
    P = A.shape[-1]
    u, v = torch.triu_indices(P, P, 1, device=A.device)
    parts = [log_connectome(part, shrinkage)[:, u, v] for part in A.split(_AT_ONCE)]
    return torch.cat(parts)


def live_edges(alive: Tensor) -> Tensor:
    """Whether both ends of an edge have signal. Shape [n, P] -> [n, edges], bool."""
    P = alive.shape[-1]
    u, v = torch.triu_indices(P, P, 1, device=alive.device)
    alive = alive > 0
    return alive[:, u] & alive[:, v]


class Reestimates:
    """Log-connectomes of K re-estimates of some scans: those of one seed and block length serve all folds.

    They are kept in memory where there is room and made again, from the same draws, where there is none.
    """

    def __init__(
        self,
        connectomes: Connectomes,
        scans: np.ndarray,
        length: int,
        rule: BlockRule,
        seed: int,
        K: int,
        shrinkage: float,
    ) -> None:
        self._connectomes, self._scans, self._seed, self._K = connectomes, scans, seed, K
        self._block = clip_block_length(length, connectomes.n_frames[scans], rule)
        self._shrinkage = shrinkage
        P, size = connectomes.n_rois, torch.empty(0, dtype=connectomes.dtype).element_size()
        small = len(scans) * K * P * (P - 1) // 2 * size <= _HELD_BYTES[connectomes.device.type]
        self._held = list(self._make()) if small else None

    def __iter__(self) -> Iterator[tuple[np.ndarray, Tensor]]:
        """Positions in the cohort, and log-connectomes [n, K, edges]."""
        return iter(self._held) if self._held is not None else self._make()

    def _make(self) -> Iterator[tuple[np.ndarray, Tensor]]:
        asked = Resamples(self._scans, self._block, self._seed, 0, self._K)
        for chunk, A in self._connectomes.reestimates(asked):
            yield self._scans[chunk], edges(A.flatten(0, 1), self._shrinkage).unflatten(0, (len(chunk), self._K))

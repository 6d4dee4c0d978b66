"""Views of a connectome: its correlations, or their logarithm after some shrinkage, as rows of edges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from ...connectome import BlockRule, Connectomes, ReestimateRequest, clip_block_length, log_connectomes, read_edges
from ...threads import map_on_cores

__all__ = ["VIEWS", "ReestimatedEdges", "read_view", "read_views"]

VIEWS: dict[str, float | None] = {"fc": None, "log-0.8": 0.8, "log-0.5": 0.5, "log-0.2": 0.2}
"""Names of the views, and the share of the identity before the logarithm; None for Fisher z as it is.

The more identity, the closer the logarithm is to the matrix itself: the views lead from plain correlations to a strong
logarithm in even steps.
"""

_CACHE_BYTES = {"cpu": 4 << 30, "cuda": 16 << 30}
_SCANS_AT_ONCE = 256
_REESTIMATED_AT_ONCE, _REESTIMATED_ON_A_CORE = 1024, 64


def read_view(A: Tensor, view: str) -> Tensor:
    """Read the edges of connectomes under a view.

    Parameters
    ----------
    A : Tensor, shape [n, P, P]
        Connectomes (Fisher z).
    view : str
        A key of :data:`VIEWS`.

    Returns
    -------
    Tensor, shape [n, edges]
        In the precision of A. Each row depends on its own scan alone.
    """
    return read_views(A, [view])[view]


def read_views(A: Tensor, views: Sequence[str]) -> dict[str, Tensor]:
    """Read the edges of connectomes under several views, which share the costly part; see :func:`read_view`."""
    shrinkages = {view: s for view in views if (s := VIEWS[view]) is not None}
    parts: dict[str, list[Tensor]] = {view: [] for view in shrinkages}
    for part in A.split(_SCANS_AT_ONCE) if shrinkages else ():
        for view, log in zip(shrinkages, log_connectomes(part, list(shrinkages.values())), strict=True):
            parts[view].append(read_edges(log))
    return {view: torch.cat(parts[view]) if view in parts else read_edges(A) for view in views}


class ReestimatedEdges:
    """Edges of K re-estimates of some scans under a view. Runs of one seed, block length and view share them.

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
    view : str
    """

    def __init__(
        self,
        connectomes: Connectomes,
        scans: np.ndarray,
        block_length: int,
        rule: BlockRule,
        seed: int,
        K: int,
        view: str,
    ) -> None:
        self._connectomes, self._scans, self._seed, self._K, self._view = connectomes, scans, seed, K, view
        self._block_length = clip_block_length(block_length, connectomes.n_frames[scans], rule)
        P, size = connectomes.n_rois, torch.empty(0, dtype=connectomes.dtype).element_size()
        fits = len(scans) * K * P * (P - 1) // 2 * size <= _CACHE_BYTES[connectomes.device.type]
        self._cache = list(self._compute()) if fits else None

    def __iter__(self) -> Iterator[tuple[np.ndarray, Tensor]]:
        """Yield positions in the cohort [n], and edges [n, K, edges], part by part."""
        return iter(self._cache) if self._cache is not None else self._compute()

    def _compute(self) -> Iterator[tuple[np.ndarray, Tensor]]:
        if self._connectomes.device.type != "cpu":
            yield from self._compute_part(np.arange(len(self._scans)))
            return
        for first in range(0, len(self._scans), _REESTIMATED_AT_ONCE):
            positions = np.arange(first, min(first + _REESTIMATED_AT_ONCE, len(self._scans)))
            parts = np.array_split(positions, -(-len(positions) // _REESTIMATED_ON_A_CORE))
            computed = map_on_cores(lambda part: list(self._compute_part(part)), parts)
            scans, edges = zip(*(pair for part in computed for pair in part), strict=True)
            yield np.concatenate(scans), torch.cat(edges)

    def _compute_part(self, positions: np.ndarray) -> Iterator[tuple[np.ndarray, Tensor]]:
        scans = self._scans[positions]
        resamples = ReestimateRequest(scans, self._block_length[positions], self._seed, 0, self._K)
        for part, A in self._connectomes.iterate_reestimates(resamples):
            edges = read_view(A.flatten(0, 1), self._view)
            yield scans[part], edges.unflatten(0, (len(part), self._K))

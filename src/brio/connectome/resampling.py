"""Joint circular moving-block resampling of a scan, Eq. (2)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..draws import draw_uniform_tensor
from .fc import psi

__all__ = ["Resamples", "block_indices", "block_starts", "reestimate"]


class Resamples(NamedTuple):
    """Which re-estimates are asked for; the draws depend on seed, refresh and participant only."""

    scans: np.ndarray  # [n] positions in the cohort
    block_length: np.ndarray  # [n] frames
    seed: int
    refresh: int
    K: int

    def of(self, chunk: np.ndarray) -> Resamples:
        """Those of some of the scans."""
        return self._replace(scans=self.scans[chunk], block_length=self.block_length[chunk])


def block_starts(keys: Tensor, n_frames: Tensor, n_resamples: int, n_blocks: int) -> Tensor:
    """Uniform first frames of the blocks, one draw for each (scan, resample, block).

    Parameters
    ----------
    keys : Tensor of int64, shape [n]
        One address for each scan (seed, refresh, participant).
    n_frames : Tensor of int64, shape [n]

    Returns
    -------
    Tensor of int64, shape [n, K, n_blocks]
    """
    k = torch.arange(n_resamples, device=keys.device)[None, :, None]
    b = torch.arange(n_blocks, device=keys.device)[None, None, :]
    u = draw_uniform_tensor(keys[:, None, None], k, b)
    return (u * n_frames[:, None, None]).long()


def block_indices(starts: Tensor, block_length: Tensor, n_frames: Tensor, width: int) -> Tensor:
    """Frames of circular moving-block resamples: blocks laid end to end, cut to the scan's length.

    Parameters
    ----------
    starts : Tensor of int64, shape [n, K, n_blocks]
    block_length, n_frames : Tensor of int64, shape [n]
    width : int
        Padded length; indices beyond a scan's own length are meaningless and must be masked.

    Returns
    -------
    Tensor of int64, shape [n, K, width]
    """
    t = torch.arange(width, device=starts.device)
    length = block_length[:, None, None]
    block = (t // length).clamp_max(starts.shape[-1] - 1).expand(*starts.shape[:2], width)
    return (starts.gather(-1, block) + t % length) % n_frames[:, None, None]


def reestimate(
    frames: Tensor,
    first: np.ndarray,
    n_frames: np.ndarray,
    block_length: np.ndarray,
    keys: np.ndarray,
    n_resamples: int,
) -> Tensor:
    """FC re-estimates A^(k) = Psi(R_k(X)) of scans, Eq. (2).

    All ROIs of a resample share its frames, so their temporal correspondence is kept.

    Parameters
    ----------
    frames : Tensor, shape [F, P]
        Standardised frames of scans, one scan after the other.
    first, n_frames, block_length, keys : ndarray of int64, shape [n]
        Where a scan begins, its length, that of its blocks, and the address of its draws.
    n_resamples : int
        K.

    Returns
    -------
    Tensor, shape [n, K, P, P]
    """
    width = int(n_frames.max())
    n_blocks = -(-width // max(1, int(block_length.min())))
    start, size, block, key = torch.from_numpy(np.stack([first, n_frames, block_length, keys])).to(frames.device)
    index = block_indices(block_starts(key, size, n_resamples, n_blocks), block, size, width)  # [n, K, T]
    x = frames.index_select(0, (index + start[:, None, None]).flatten()).view(*index.shape, -1)
    if n_frames.min() < width:
        x *= (torch.arange(width, device=x.device) < size[:, None])[:, None, :, None]
    return psi(x, size[:, None].expand(-1, n_resamples))

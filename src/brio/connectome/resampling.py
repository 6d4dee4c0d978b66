"""Joint circular moving-block resampling of a scan, Eq. (2)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..draws import draw_uniform_tensor
from .cpu_fc import reestimate_fc
from .fc import psi

__all__ = ["ReestimateRequest", "block_indices", "draw_block_starts", "reestimate"]


class ReestimateRequest(NamedTuple):
    """Which re-estimates to draw: K of each scan. Draws depend on seed, refresh and participant alone.

    Attributes
    ----------
    scans : ndarray of int64, shape [n]
        Positions in the cohort.
    block_length : ndarray of int64, shape [n]
        Frames, see :func:`brio.connectome.clip_block_length`.
    seed : int
    refresh : int
        Number of the refresh; another number gives other draws.
    K : int
        Number of re-estimates of each scan.
    """

    scans: np.ndarray
    block_length: np.ndarray
    seed: int
    refresh: int
    K: int

    def select(self, chunk: np.ndarray) -> ReestimateRequest:
        """Return the same request for some of the scans, by position in ``scans``."""
        return self._replace(scans=self.scans[chunk], block_length=self.block_length[chunk])


def draw_block_starts(keys: Tensor, n_frames: Tensor, n_reestimates: int, n_blocks: int) -> Tensor:
    """Draw the first frame of every block uniformly, one draw for each scan, resample and block.

    Parameters
    ----------
    keys : Tensor of int64, shape [n]
        One key for each scan, made of seed, refresh and participant (:func:`brio.draws.key`).
    n_frames : Tensor of int64, shape [n]
    n_reestimates : int
        K.
    n_blocks : int
        Blocks of each resample.

    Returns
    -------
    Tensor of int64, shape [n, K, n_blocks]
    """
    k = torch.arange(n_reestimates, device=keys.device)[None, :, None]
    b = torch.arange(n_blocks, device=keys.device)[None, None, :]
    u = draw_uniform_tensor(keys[:, None, None], k, b)
    return (u * n_frames[:, None, None]).long()


def block_indices(starts: Tensor, block_length: Tensor, n_frames: Tensor, width: int) -> Tensor:
    """Compute the frames of circular moving-block resamples: blocks end to end, cut to the length of the scan.

    Parameters
    ----------
    starts : Tensor of int64, shape [n, K, n_blocks]
    block_length, n_frames : Tensor of int64, shape [n]
    width : int
        Padded length. Indices beyond a scan's own length are meaningless and must be masked.

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
    n_reestimates: int,
) -> Tensor:
    """Re-estimate the FC of scans from resampled frames: A^(k) = Psi(R_k(X)), Eq. (2).

    All ROIs of a resample share its frames, so they keep their temporal correspondence.

    Parameters
    ----------
    frames : Tensor, shape [F, P]
        Standardised frames of scans, one scan after the other.
    first, n_frames, block_length : ndarray of int64, shape [n]
        First frame of each scan in ``frames``, its number of frames, and its block length.
    keys : ndarray of int64, shape [n]
        Keys of the draws of each scan, see :func:`draw_block_starts`.
    n_reestimates : int
        K.

    Returns
    -------
    Tensor, shape [n, K, P, P]
    """
    width = int(n_frames.max())
    n_blocks = -(-width // max(1, int(block_length.min())))
    start, size, block, key = torch.from_numpy(np.stack([first, n_frames, block_length, keys])).to(frames.device)
    index = block_indices(draw_block_starts(key, size, n_reestimates, n_blocks), block, size, width)  # [n, K, T]
    index += start[:, None, None]
    if frames.device.type == "cpu":
        return torch.from_numpy(reestimate_fc(frames.numpy(), index.numpy(), n_frames))
    x = frames.index_select(0, index.flatten()).view(*index.shape, -1)
    if n_frames.min() < width:
        x *= (torch.arange(width, device=x.device) < size[:, None])[:, None, :, None]
    return psi(x, size[:, None].expand(-1, n_reestimates))

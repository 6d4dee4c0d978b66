"""Joint circular moving-block resampling of a scan, Eq. (2), and re-estimates by a design instead of by draws.

Drawn re-estimates have an error of their own: the standard deviation of 32 of them is off by an eighth. A balanced
design has none. With q a prime of remainder 3 when divided by 4, the squares modulo q and their shifts form q sets of
(q - 1) / 2 numbers in which every pair of numbers occurs equally often (Paley 1933). Re-estimate k takes the blocks of
set k out of q evenly spaced ones. The variance over the q re-estimates of anything that is linear in the frames is then
that of the evenly spaced blocks, without cross terms: what infinitely many draws would give, up to a known factor
(:func:`find_design_scale`). It needs no random numbers, and depends on the scan alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..draws import draw_uniform_tensor
from .cpu_fc import reestimate_fc
from .fc import psi


class ReestimateRequest(NamedTuple):
    """Which re-estimates to make: K of each scan. Draws depend on seed, refresh and participant alone.

    Shapes: scans [n], block_length [n].
    """

    scans: np.ndarray  # positions in the cohort
    block_length: np.ndarray  # frames, see brio.connectome.clip_block_length
    seed: int
    refresh: int  # number of the refresh; another number gives other draws
    K: int  # number of re-estimates of each scan
    balanced: bool = False

    def select(self, chunk: np.ndarray) -> ReestimateRequest:
        """Return the same request for some of the scans, by position in ``scans``."""
        return self._replace(scans=self.scans[chunk], block_length=self.block_length[chunk])


def draw_block_starts(keys: Tensor, n_frames: Tensor, n_reestimates: int, n_blocks: int) -> Tensor:
    """Draw the first frame of every block uniformly, one draw for each scan, resample and block.

    Shapes: keys [n], n_frames [n]; returns [n, K, n_blocks].
    """
    k = torch.arange(n_reestimates, device=keys.device)[None, :, None]
    b = torch.arange(n_blocks, device=keys.device)[None, None, :]
    u = draw_uniform_tensor(keys[:, None, None], k, b)
    return (u * n_frames[:, None, None]).long()


def block_indices(starts: Tensor, block_length: Tensor, n_frames: Tensor, width: int) -> Tensor:
    """Compute the frames of circular moving-block resamples: blocks end to end, cut to the length of the scan.

    Shapes: starts [n, K, n_blocks], block_length, n_frames [n]; returns [n, K, width].
    """
    t = torch.arange(width, device=starts.device)
    length = block_length[:, None, None]
    block = (t // length).clamp_max(starts.shape[-1] - 1).expand(*starts.shape[:2], width)
    return (starts.gather(-1, block) + t % length) % n_frames[:, None, None]


def find_design_size(least: int) -> int:
    """Find the size of the smallest balanced design with at least so many re-estimates."""
    size = max(3, least)
    while size % 4 != 3 or any(size % divisor == 0 for divisor in range(3, int(size**0.5) + 1, 2)):
        size += 1
    return size


def find_design_blocks(block_length: np.ndarray, n_frames: np.ndarray, size: int) -> np.ndarray:
    """Find the lengths of the blocks of a balanced design: at least as long as they lie apart.

    Shapes: block_length, n_frames [n].
    """
    return np.maximum(block_length, -(-n_frames // size))


def find_design_scale(block_length: np.ndarray, n_frames: np.ndarray, size: int) -> np.ndarray:
    """Find by how much the variance of drawn re-estimates exceeds the sample variance over a balanced design.

    A resample of T frames has T / l drawn blocks. One of the design has (q - 1) / 2 of them, out of q, each pair of
    which is in equally many.

    Shapes: block_length, n_frames [n]; returns [n].
    """
    length = find_design_blocks(block_length, n_frames, size)
    return (size - 1) ** 3 * length / (size * (size + 1) * n_frames)


def _balance_block_starts(n_frames: Tensor, size: int, stride: Tensor) -> Tensor:
    """First frames of the blocks of a balanced design; re-estimate k has set k * stride. Shape [n, q, q // 2]."""
    squares = torch.arange(1, size // 2 + 1, device=n_frames.device).square() % size
    shift = torch.arange(size, device=n_frames.device) * stride[:, None]  # [n, q]
    block = (squares.sort().values + shift[..., None]) % size
    return block * n_frames[:, None, None] // size


def index_resamples(
    n_frames: np.ndarray,
    block_length: np.ndarray,
    keys: np.ndarray,
    n_reestimates: int,
    balanced: bool = False,
    device: torch.device | str = "cpu",
) -> tuple[Tensor, np.ndarray]:
    """Find the frames of the resamples of scans.

    Shapes: n_frames, block_length [n], keys [n]; returns index [n, K, width], size [n].
    """
    if balanced:
        block_length = find_design_blocks(block_length, n_frames, n_reestimates)
    size = block_length * (n_reestimates // 2) if balanced else n_frames
    width = int(size.max())
    n_blocks = -(-width // max(1, int(block_length.min())))
    length, block, key = torch.from_numpy(np.stack([n_frames, block_length, keys])).to(device)
    if balanced:
        starts = _balance_block_starts(length, n_reestimates, key)
    else:
        starts = draw_block_starts(key, length, n_reestimates, n_blocks)
    return block_indices(starts, block, length, width), size


def reestimate(
    frames: Tensor,
    first: np.ndarray,
    n_frames: np.ndarray,
    block_length: np.ndarray,
    keys: np.ndarray,
    n_reestimates: int,
    balanced: bool = False,
) -> Tensor:
    """Re-estimate the FC of scans from resampled frames: A^(k) = Psi(R_k(X)), Eq. (2).

    All ROIs of a resample share its frames, so they keep their temporal correspondence.

    Shapes: frames [F, P], first [n]; returns [n, K, P, P].
    """
    index, size = index_resamples(n_frames, block_length, keys, n_reestimates, balanced, frames.device)
    index += torch.from_numpy(first).to(frames.device)[:, None, None]
    if frames.device.type == "cpu":
        return torch.from_numpy(reestimate_fc(frames.numpy(), index.numpy(), size))
    n, width = torch.from_numpy(size).to(frames.device), index.shape[-1]
    x = frames.index_select(0, index.flatten()).view(*index.shape, -1)
    if size.min() < width:
        x *= (torch.arange(width, device=x.device) < n[:, None])[:, None, :, None]
    return psi(x, n[:, None].expand(-1, n_reestimates))

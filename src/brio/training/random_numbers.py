"""Counter-based random numbers: a 32-bit mixing function of the position in a tensor, keyed twice."""

import math
from collections.abc import Sequence
from types import ModuleType

import torch
from torch import Tensor

from ..kernels import kernels_run_on


def uniform_from_keys(keys: Tensor, shape: Sequence[int], like: Tensor) -> Tensor:
    """Compute uniform numbers in (0, 1) from two keys. Shapes: keys [2]."""
    twin = _gpu_twin(like)
    if twin is not None:
        return twin.uniform_from_keys(keys, shape)
    n = math.prod(shape)
    h = torch.arange(n, dtype=torch.int32, device=keys.device) * -1640531527 + keys[0]
    h = (h ^ _shift_right(h, 16)) * 2146121005
    h = (h ^ _shift_right(h, 15) ^ keys[1]) * -2073254261
    h = h ^ _shift_right(h, 16)
    # 23 bits and a half, which float32 holds exactly: neither 0 nor 1 ever comes out
    return ((h >> 9).to(like.dtype) * 2.0**-23 + (0.5 + 2.0**-24)).reshape(tuple(shape))


def drop_out(x: Tensor, keys: Tensor, p: float) -> Tensor:
    """Return x / (1 - p) where the uniform number at its position is p or more, else 0. Shapes: keys [2]."""
    twin = _gpu_twin(x)
    if twin is not None:
        return twin.drop_out(x, keys, p)
    mask = (uniform_from_keys(keys, x.shape, x) >= p).to(x.dtype) / (1 - p)  # runs of one seed share it
    return x * mask


def _gpu_twin(like: Tensor) -> ModuleType | None:
    """Return the module :mod:`.gpu.random_numbers` if its kernels support such a tensor, otherwise None."""
    if not like.is_cuda or like.dtype != torch.float32 or not kernels_run_on(like.device):
        return None
    from .gpu import random_numbers

    return random_numbers


def _shift_right(h: Tensor, bits: int) -> Tensor:
    """Logical right shift of int32 (torch shifts arithmetically)."""
    return (h >> bits) & ((1 << (32 - bits)) - 1)

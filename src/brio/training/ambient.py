"""What a layer may ask about the step it is part of: random numbers, and which graphs only fill the stack up.

A layer deep inside a network needs random numbers (dropout, edge sampling) that are the same whether its run trains
alone or in a stack, on any device. They are addressed like all others (:mod:`brio.draws`): by seed, epoch and step of
the run (the key), by the how-manieth draw of the step it is, and by position in the tensor. The first axis is the
graph; graphs that pad a stack come last, so they move nobody else's numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..draws import uniform_tensor
from .launch import kernels_run_on

__all__ = [
    "draw_kernels",
    "draw_keys",
    "during_step",
    "keep_statistics",
    "permutation",
    "real_graphs",
    "statistics_move",
    "uniform",
]


class _Step:
    def __init__(self, key: Tensor, real: Tensor) -> None:
        self.key, self.real, self.drawn, self.moving = key, real, 0, True


_now: list[_Step] = []


@contextmanager
def during_step(key: Tensor, real: Tensor) -> Iterator[None]:
    """One training step of one run. ``key``: int64 scalar; ``real``: [B], 1 for graphs, 0 for padding."""
    _now.append(_Step(key, real))
    try:
        yield
    finally:
        _now.pop()


@contextmanager
def keep_statistics() -> Iterator[None]:
    """Passes in here leave running statistics as they are (a look ahead inside a step)."""
    step = _step()
    step.moving, before = False, step.moving
    try:
        yield
    finally:
        step.moving = before


def statistics_move() -> bool:
    """Whether running statistics follow the present pass."""
    return _step().moving


def _step() -> _Step:
    if not _now:
        raise RuntimeError("random numbers and batch statistics exist during a training step only")
    return _now[-1]


def real_graphs() -> Tensor:
    """1 for graphs of the batch, 0 for those that pad the stack. Shape [B]."""
    return _step().real


def draw_keys() -> Tensor:
    """Two keys for the next draw of the step, other ones at each call. Shape [2], int32."""
    step = _step()
    step.drawn += 1
    words = [uniform_tensor(step.key, 2 * step.drawn + i) * 2.0**32 - 2.0**31 for i in (0, 1)]
    return torch.stack(words).to(torch.int32)


def draw_kernels(like: Tensor) -> Any:
    """The module :mod:`.fused_draws` where its kernels draw for a tensor such as this one, else None."""
    if not like.is_cuda or like.dtype != torch.float32 or not kernels_run_on(like.device):
        return None
    from . import fused_draws

    return fused_draws


def uniform(shape: Sequence[int], like: Tensor) -> Tensor:
    """Uniform numbers in (0, 1) for this step of this run, other ones at each call.

    Counter-based: a 32-bit mixing function of the position, keyed twice by the address of the draw.
    """
    keys, kernels = draw_keys(), draw_kernels(like)
    if kernels is not None:
        return kernels.uniform(keys, shape)
    n = math.prod(shape)
    h = torch.arange(n, dtype=torch.int32, device=keys.device) * -1640531527 + keys[0]
    h = (h ^ _shift(h, 16)) * 2146121005
    h = (h ^ _shift(h, 15) ^ keys[1]) * -2073254261
    h = h ^ _shift(h, 16)
    # 23 bits and a half, which float32 holds exactly: neither 0 nor 1 ever comes out
    return ((h >> 9).to(like.dtype) * 2.0**-23 + (0.5 + 2.0**-24)).reshape(tuple(shape))


def _shift(h: Tensor, bits: int) -> Tensor:
    """Logical right shift of int32 (torch shifts arithmetically)."""
    return (h >> bits) & ((1 << (32 - bits)) - 1)


def permutation() -> Tensor:
    """A random order of the graphs of the batch; padding stays at the end. Shape [B], int64."""
    real = real_graphs()
    return torch.argsort(uniform(real.shape, real) + 2.0 * (1.0 - real), stable=True)

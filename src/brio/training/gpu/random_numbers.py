"""Random numbers and dropout on a GPU: one kernel each, which writes its result and nothing else.

With tensor operations, :func:`brio.training.random_numbers.uniform_from_keys` makes some fifteen passes over the
numbers that are drawn. Here a number is mixed in registers, and dropout draws its mask again in the backward pass
instead of storing it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from ...kernels import OverRuns, launch
from . import random_numbers_kernels as kernels

BLOCK = 1024  # numbers of a program


def uniform_from_keys(keys: Tensor, shape: Sequence[int]) -> Tensor:
    """The numbers of :func:`brio.training.random_numbers.uniform_from_keys` for these keys [2], float32."""
    return _Uniform.apply(keys.unsqueeze(0), math.prod(shape)).reshape(tuple(shape))


def drop_out(x: Tensor, keys: Tensor, p: float) -> Tensor:
    """x / (1 - p) where the uniform number at its place is p or more, else 0. Shapes: keys [2]."""
    return _Dropout.apply(x.unsqueeze(0), keys.unsqueeze(0), p).squeeze(0)


class _Uniform(OverRuns):
    @staticmethod
    def forward(keys: Tensor, n: int) -> Tensor:
        out = torch.empty(len(keys), n, dtype=torch.float32, device=keys.device)
        launch(kernels.uniform, len(keys) * triton.cdiv(n, BLOCK), keys.contiguous(), out, n, BLOCK=BLOCK)
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[None, None]:
        return None, None


class _Dropout(OverRuns):
    @staticmethod
    def forward(x: Tensor, keys: Tensor, p: float) -> Tensor:
        x, n = x.contiguous(), x[0].numel()
        out = torch.empty_like(x)
        args = (x, keys.contiguous(), out, n, p, 1 / (1 - p))
        launch(kernels.dropout, len(x) * triton.cdiv(n, BLOCK), *args, BLOCK=BLOCK)
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, keys, ctx.p = inputs
        ctx.save_for_backward(keys)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _Dropout.apply(grad, *ctx.saved_tensors, ctx.p), None, None  # with a gradient of its own

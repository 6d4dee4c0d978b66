# mypy: disallow-untyped-defs=False
"""Entropic transport between clouds of up to 32 points on a GPU: every iteration of a problem in registers.

:func:`brio.transport.sinkhorn.entropic_cost` has the equations and is the reference; this is for float32.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language import constexpr

from ..kernels import OverRuns, launch


def entropic_cost(C: Tensor, log_eta: Tensor, log_zeta: Tensor, epsilon: float, iterations: int) -> Tensor:
    """Compute the same as :func:`brio.transport.entropic_cost`.

    Shapes: C [..., n, n'], log_eta, log_zeta [..., n] and [..., n'].
    """
    cost, _ = _EntropicCost.apply(*(t.unsqueeze(0) for t in (C, log_eta, log_zeta)), epsilon, iterations)
    return cost.squeeze(0)


class _EntropicCost(OverRuns):
    @staticmethod
    def forward(C: Tensor, eta: Tensor, zeta: Tensor, epsilon: float, iterations: int) -> tuple[Tensor, Tensor]:
        n, m = C.shape[-2:]
        cost, gamma, count = C.new_empty(C.shape[:-2]), torch.empty_like(C).contiguous(), C[..., 0, 0].numel()
        N, M = (max(4, triton.next_power_of_2(k)) for k in (n, m))
        problems = max(1, 256 // (N * M))  # of a program
        sizes = {"n": n, "m": m, "N": N, "M": M, "PROBLEMS": problems, "num_warps": max(1, N * M // 256)}
        args = (C.contiguous(), eta.contiguous(), zeta.contiguous(), cost, gamma, epsilon, count, iterations)
        launch(solve, triton.cdiv(count, problems), *args, **sizes)
        return cost, gamma

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(output[1])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        (gamma,) = ctx.saved_tensors
        return grad[..., None, None] * gamma, None, None, None, None


# fmt: off


@triton.jit
def _log_sum(x, axis: constexpr):
    """Logarithm of the sum of exp(x) along an axis, which stays with length 1."""
    top = tl.max(x, axis, keep_dims=True)
    return top + tl.log(tl.sum(tl.exp(x - top), axis, keep_dims=True))


@triton.jit(do_not_specialize=["count", "iterations"])
def solve(C, eta, zeta, cost, gamma, epsilon, count, iterations, n: constexpr, m: constexpr, N: constexpr,
          M: constexpr, PROBLEMS: constexpr):
    """Cost and coupling of PROBLEMS problems; points that pad a block have a log weight of -1e4."""
    p = tl.program_id(0).to(tl.int64) * PROBLEMS + tl.arange(0, PROBLEMS)[:, None, None]
    i, h = tl.arange(0, N)[None, :, None], tl.arange(0, M)[None, None, :]
    at, inside = p * n * m + i * m + h, (p < count) & (i < n) & (h < m)
    c = tl.load(C + at, mask=inside, other=0.0)
    eta = tl.maximum(tl.load(eta + p * n + i, mask=(p < count) & (i < n), other=-1e4), -1e4)
    zeta = tl.maximum(tl.load(zeta + p * m + h, mask=(p < count) & (h < m), other=-1e4), -1e4)
    log_gamma = eta + zeta - c / epsilon
    for _ in range(iterations):
        log_gamma = log_gamma - _log_sum(log_gamma, 2) + eta
        log_gamma = log_gamma - _log_sum(log_gamma, 1) + zeta
    coupled = tl.where(inside, tl.exp(log_gamma), 0.0)
    sums = epsilon * (log_gamma - eta - zeta) + c  # phi_i + psi_h
    dual = tl.exp(eta + zeta) * sums - epsilon * coupled
    total = tl.sum(tl.sum(dual, 2, keep_dims=True), 1, keep_dims=True) + epsilon
    tl.store(cost + p, total, mask=p < count)
    tl.store(gamma + at, coupled, mask=inside)

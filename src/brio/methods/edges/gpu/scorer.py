"""The layers of the MLP that scores edges as a few GPU kernels, without tensors of edges times the first layer's width.

A layer is dropout, ReLU and a linear map of numbers whose norm is known by then as a scale and a shift. The first one
gathers them from the ends of an edge, and in the backward pass does so again; :func:`add_ends` only gathers.
:mod:`brio.methods.edges.scorer` has the formulas and is the reference; this is for float32 on a GPU. Functions
and kernels work on all runs of a stack at once, [R, B, ...]; :func:`torch.vmap` hands the runs over. There are first
derivatives only, by ``backward()`` outside of vmap.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from ....training.gpu.launch import OverRuns, exact, launch
from ..edge_list import Edges
from . import scorer_kernels as kernels

__all__ = ["add_ends", "first_layer", "later_layer", "moments"]

# Edges of a block, blocks of a program (at most), and the warps that share it. Fixed, since nothing can be tried out
# while a step is being recorded as a CUDA graph. Backward, sums over edges on tensor cores would let few warps take all
# registers of a processor; half as many will do.
BLOCK = {"EDGES": 64, "BLOCKS": 16, "num_warps": 4, "num_stages": 1}
BACKWARD = {"num_warps": 8, "maxnreg": 128}
NUMBERS = 4096  # of a program that sums up; of its sums for ROIs, too


def add_ends(r: Tensor, s: Tensor, edges: Edges) -> Tensor:
    """r_u + s_v for every edge, v to u. Shape [B, P, h] twice -> [B, 2 M, h]."""
    return _Ends.apply(*(t.unsqueeze(0) for t in (r, s, edges.to, edges.of))).squeeze(0)


def first_layer(
    r: Tensor, s: Tensor, edges: Edges, W: Tensor, bias: Tensor, keys: Tensor | None = None, p: float = 0.0
) -> Tensor:
    """W dropout(relu(r_u + s_v)) + bias for every edge, v to u. Shape [B, 2 M, d].

    Parameters
    ----------
    r, s : Tensor, shape [B, P, h]
    edges : Edges
    W : Tensor, shape [d, h]
    bias : Tensor, shape [d]
    keys : Tensor of int32, shape [2], optional
        Draw what dropout with probability p leaves out; without them nothing is.
    """
    tensors = (r, s, edges.to, edges.of, W, bias)
    return _First.apply(*(t.unsqueeze(0) for t in tensors), _one_run(keys), p).squeeze(0)


def later_layer(
    x: Tensor, k: Tensor, c: Tensor, W: Tensor, bias: Tensor, keys: Tensor | None = None, p: float = 0.0
) -> Tensor:
    """W dropout(relu(k x + c)) + bias for every edge. Shape [B, 2 M, d].

    Parameters
    ----------
    x : Tensor, shape [B, 2 M, h]
    k, c : Tensor, shape [B, h]
    W, bias, keys, p
        As :func:`first_layer` takes them.
    """
    return _Later.apply(*(t.unsqueeze(0) for t in (x, k, c, W, bias)), _one_run(keys), p).squeeze(0)


def moments(x: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance over the real edges of each graph. Shapes [B, 2 M, h], [B, 2 M] -> [B, h] twice."""
    mean, variance = _Moments.apply(x.unsqueeze(0), real.unsqueeze(0))
    return mean.squeeze(0), variance.squeeze(0)


class _Ends(OverRuns):
    @staticmethod
    def forward(r: Tensor, s: Tensor, to: Tensor, of: Tensor) -> Tensor:
        u, v = (end.unsqueeze(-1).expand(-1, -1, -1, r.shape[-1]) for end in (to, of))
        return r.gather(2, u) + s.gather(2, v)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.P = inputs[0].shape[2]
        ctx.save_for_backward(*inputs[2:])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        to, of = ctx.saved_tensors
        (R, B, n, h), P = grad.shape, ctx.P
        ends = _room_for_ends(grad, P, h)
        size = {"h": h, "H": _power(h), "EXACT": exact()} | _of_rois(P, h) | _blocks(n)
        args = (*_solid(grad), *_lists(to, of), *ends, B, P, n)
        launch(kernels.ends_backward, (R * B * _chunks(n), triton.cdiv(P, size["RS"])), *args, **size)
        return *ends.sum(3), None, None


class _Layer(OverRuns):
    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.p = inputs
        ctx.save_for_backward(*tensors)


class _First(_Layer):
    @staticmethod
    def forward(r: Tensor, s: Tensor, *rest: Any) -> Tensor:
        to, of, W, bias, keys, p = rest
        (R, B, P, _), n = r.shape, to.shape[-1]
        out = r.new_empty(R, B, n, W.shape[1])
        args = (*_solid(r, s), *_lists(to, of), *_solid(W, bias), _any(keys, out), out, B, P, n, p, 1 / (1 - p))
        launch(kernels.first, R * B * _chunks(n), *args, **_sizes(W, keys, n))
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        r, s, to, of, W, _, keys = ctx.saved_tensors
        (R, B, P, _), n, p = r.shape, to.shape[-1], ctx.p
        r, s, grad, W = _solid(r, s, grad, W)
        ends, sums = _room_for_ends(grad, P, W.shape[-1]), _room_for_sums(W, B, n)
        size = _backward_sizes(W, keys, n) | _of_rois(P, W.shape[-1])
        args = (grad, r, s, *_lists(to, of), W, _any(keys, grad), *ends, sums, B, P, n, p, 1 / (1 - p))
        launch(kernels.first_backward, (R * B * _chunks(n), triton.cdiv(P, size["RS"])), *args, **size)
        return *ends.sum(3), None, None, *_of_weights(sums), None, None


class _Later(_Layer):
    @staticmethod
    def forward(x: Tensor, k: Tensor, c: Tensor, *rest: Any) -> Tensor:
        W, bias, keys, p = rest
        R, B, n, _ = x.shape
        out = x.new_empty(R, B, n, W.shape[1])
        args = (*_solid(x, k, c, W, bias), _any(keys, out), out, B, n, p, 1 / (1 - p))
        launch(kernels.later, R * B * _chunks(n), *args, **_sizes(W, keys, n))
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, k, c, W, _, keys = ctx.saved_tensors
        (R, B, n, h), p = x.shape, ctx.p
        grad, x, k, c, W = _solid(grad, x, k, c, W)
        dx, dkc, sums = torch.empty_like(x), x.new_empty(R, B, _chunks(n), 2, h), _room_for_sums(W, B, n)
        args = (grad, x, k, c, W, _any(keys, grad), dx, dkc, sums, B, n, p, 1 / (1 - p))
        launch(kernels.later_backward, R * B * _chunks(n), *args, **_backward_sizes(W, keys, n))
        dk, dc = dkc.sum(2).unbind(2)
        return dx, dk, dc, *_of_weights(sums), None, None


class _Moments(OverRuns):
    @staticmethod
    def forward(x: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        R, B, n, h = x.shape
        x, real = _solid(x, real)
        size = _block_of_sums(h)
        blocks = triton.cdiv(n, size["EDGES"])
        sums = x.new_empty(R, B, blocks, 2, h)
        launch(kernels.moments, R * B * blocks, x, real, sums, n, **size)
        total, square = sums.unbind(3)  # square: around the mean of a block
        edges = torch.nn.functional.pad(real, (0, blocks * size["EDGES"] - n)).unflatten(-1, (blocks, -1)).sum(-1, True)
        count = edges.sum(2).clamp_min(1)
        mean = total.sum(2) / count
        off = total / edges.clamp_min(1) - mean.unsqueeze(2)
        return mean, (square + edges * off.square()).sum(2) / count

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs, output[0])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dmean: Tensor, dvariance: Tensor) -> tuple[Tensor, None]:
        x, real, mean = ctx.saved_tensors
        R, B, n, h = x.shape
        x, real = _solid(x, real)
        count, size = real.sum(-1, keepdim=True).clamp_min(1), _block_of_sums(h)
        k = 2 * dvariance / count
        c, dx = dmean / count - k * mean, torch.empty_like(x)
        args = (x, real, *_solid(k, c), dx, n)
        launch(kernels.moments_backward, R * B * triton.cdiv(n, size["EDGES"]), *args, **size)
        return dx, None


def _one_run(keys: Tensor | None) -> Tensor | None:
    return None if keys is None else keys.unsqueeze(0)


def _any(keys: Tensor | None, other: Tensor) -> Tensor:
    """What a kernel takes for keys, even where it does not look at them."""
    return other if keys is None else keys.contiguous()


def _solid(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(t.contiguous() for t in tensors)


def _lists(to: Tensor, of: Tensor) -> tuple[Any, ...]:
    """Ends of edges as kernels take them, with the steps from run to run: 0 where all runs see one copy."""
    to, of = (t if t[0].is_contiguous() else t.contiguous() for t in (to, of))
    return to, of, to.stride(0), of.stride(0)


def _chunks(n: int) -> int:
    """Programs of a graph with n edges."""
    return triton.cdiv(n, BLOCK["EDGES"] * BLOCK["BLOCKS"])


def _blocks(n: int) -> dict[str, int]:
    """Blocks of a program, the last ones of a graph with n edges perhaps empty."""
    return BLOCK | {"BLOCKS": triton.cdiv(n, BLOCK["EDGES"] * _chunks(n))}


def _power(width: int) -> int:
    return max(16, triton.next_power_of_2(width))


def _of_rois(P: int, h: int) -> dict[str, int]:
    """ROIs for which a program sums up."""
    return {"RS": min(_power(P), max(16, NUMBERS // _power(h)))}


def _block_of_sums(h: int) -> dict[str, int]:
    H = triton.next_power_of_2(h)
    return {"h": h, "H": H, "EDGES": max(16, NUMBERS // H)}


def _sizes(W: Tensor, keys: Tensor | None, n: int) -> dict[str, Any]:
    """Widths before and after the linear map, also as the powers of two that blocks need, and the blocks."""
    _, d, h = W.shape
    return {"h": h, "H": _power(h), "d": d, "D": _power(d), "DROP": keys is not None, "EXACT": exact()} | _blocks(n)


def _backward_sizes(W: Tensor, keys: Tensor | None, n: int) -> dict[str, Any]:
    sizes = _sizes(W, keys, n) | BACKWARD
    if sizes["H"] > 32:  # too many numbers for that
        del sizes["maxnreg"]
    return sizes


def _room_for_ends(grad: Tensor, P: int, h: int) -> Tensor:
    """For each program's part in the gradients of what both ends of edges hold. Shape [2, R, B, programs, P, h].

    A quarter of a tensor of edges times h with 116 ROIs, as much as one with 512. A gradient that is no finite number
    spreads to all ROIs of its graph.
    """
    R, B, n, _ = grad.shape
    return grad.new_empty(2, R, B, _chunks(n), P, h)


def _room_for_sums(W: Tensor, B: int, n: int) -> Tensor:
    """For each program's part in the gradients of W and of the bias."""
    R, d, h = W.shape
    return W.new_empty(R, B * _chunks(n), d, h + 1)


def _of_weights(sums: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of W and of the bias."""
    total = sums.sum(1)
    return total[..., :-1], total[..., -1]

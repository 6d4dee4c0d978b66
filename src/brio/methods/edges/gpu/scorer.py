"""The layers of the MLP that scores edges as a few GPU kernels, without tensors of edges times the first layer's width.

A layer is a scale and a shift (its norm), ReLU, dropout and a linear map. The first layer gathers its input from the
ends of each edge, and gathers it again in the backward pass. :func:`add_ends` only gathers.

:mod:`brio.methods.edges.scorer` has the formulas and is the reference; this is for float32 on a GPU. Functions and
kernels work on all runs of a stack at once, [R, B, ...]; :func:`torch.vmap` hands the runs over
(:class:`brio.kernels.OverRuns`). There are first derivatives only, by ``backward()`` outside of vmap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import triton
from torch import Tensor

from ....kernels import OverRuns, exact, launch
from . import scorer_kernels as kernels

if TYPE_CHECKING:
    from ..scorer import Edges

# Edges of a block, most blocks of a program, and the warps that share it. Fixed, since nothing can be tried out while
# a step is being recorded as a CUDA graph. In the backward pass, sums over edges on tensor cores would let a few warps
# take all registers of a processor; half as many registers suffice.
BLOCK = {"EDGES": 64, "BLOCKS": 16, "num_warps": 4, "num_stages": 1}
BACKWARD = {"num_warps": 8, "maxnreg": 128}
NUMBERS = 4096  # of a program that adds up; also of its sums for ROIs


def add_ends(r: Tensor, s: Tensor, edges: Edges) -> Tensor:
    """Add the terms of both ends, r_u + s_v, for every edge from v to u.

    Shapes: r, s [B, P, h]; returns [B, 2 M, h].
    """
    return _AddEnds.apply(*(t.unsqueeze(0) for t in (r, s, edges.receiver, edges.sender))).squeeze(0)


def apply_first_layer(
    r: Tensor, s: Tensor, edges: Edges, W: Tensor, bias: Tensor, keys: Tensor | None = None, p: float = 0.0
) -> Tensor:
    """Compute W dropout(relu(r_u + s_v)) + bias for every edge from v to u.

    Shapes: r, s [B, P, h], W [d, h], bias [d], keys [2]; returns [B, 2 M, d].
    """
    tensors = (r, s, edges.receiver, edges.sender, W, bias)
    return _FirstLayer.apply(*(t.unsqueeze(0) for t in tensors), _one_run(keys), p).squeeze(0)


def apply_later_layer(
    x: Tensor, k: Tensor, c: Tensor, W: Tensor, bias: Tensor, keys: Tensor | None = None, p: float = 0.0
) -> Tensor:
    """Compute W dropout(relu(k x + c)) + bias for every edge.

    Shapes: x [B, 2 M, h], k, c [B, h]; returns [B, 2 M, d].
    """
    return _LaterLayer.apply(*(t.unsqueeze(0) for t in (x, k, c, W, bias)), _one_run(keys), p).squeeze(0)


def compute_edge_moments(x: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Compute mean and variance over the real edges of each graph.

    Shapes: x [B, 2 M, h], real [B, 2 M]; returns [B, h].
    """
    mean, variance = _EdgeMoments.apply(x.unsqueeze(0), real.unsqueeze(0))
    return mean.squeeze(0), variance.squeeze(0)


class _AddEnds(OverRuns):
    @staticmethod
    def forward(r: Tensor, s: Tensor, receiver: Tensor, sender: Tensor) -> Tensor:
        u, v = (end.unsqueeze(-1).expand(-1, -1, -1, r.shape[-1]) for end in (receiver, sender))
        return r.gather(2, u) + s.gather(2, v)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.P = inputs[0].shape[2]
        ctx.save_for_backward(*inputs[2:])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        receiver, sender = ctx.saved_tensors
        (R, B, n, h), P = grad.shape, ctx.P
        ends = _allocate_end_gradients(grad, P, h)
        size = {"h": h, "H": _power(h), "EXACT": exact()} | _roi_sizes(P, h) | _block_sizes(n)
        args = (*_contiguous(grad), *_edge_arguments(receiver, sender), *ends, B, P, n)
        launch(kernels.add_ends_backward, (R * B * _n_programs(n), triton.cdiv(P, size["RS"])), *args, **size)
        return *ends.sum(3), None, None


class _Layer(OverRuns):
    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.p = inputs
        ctx.save_for_backward(*tensors)


class _FirstLayer(_Layer):
    @staticmethod
    def forward(r: Tensor, s: Tensor, *rest: Any) -> Tensor:
        receiver, sender, W, bias, keys, p = rest
        (R, B, P, _), n = r.shape, receiver.shape[-1]
        out = r.new_empty(R, B, n, W.shape[1])
        lists = _edge_arguments(receiver, sender)
        tensors = (*_contiguous(r, s), *lists, *_contiguous(W, bias), _keys_argument(keys, out), out)
        launch(kernels.first_layer, R * B * _n_programs(n), *tensors, B, P, n, p, 1 / (1 - p), **_sizes(W, keys, n))
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        r, s, receiver, sender, W, _, keys = ctx.saved_tensors
        (R, B, P, _), n, p = r.shape, receiver.shape[-1], ctx.p
        r, s, grad, W = _contiguous(r, s, grad, W)
        ends, sums = _allocate_end_gradients(grad, P, W.shape[-1]), _allocate_weight_gradients(W, B, n)
        size = _backward_sizes(W, keys, n) | _roi_sizes(P, W.shape[-1])
        lists = _edge_arguments(receiver, sender)
        args = (grad, r, s, *lists, W, _keys_argument(keys, grad), *ends, sums, B, P, n, p, 1 / (1 - p))
        launch(kernels.first_layer_backward, (R * B * _n_programs(n), triton.cdiv(P, size["RS"])), *args, **size)
        return *ends.sum(3), None, None, *_weight_gradients(sums), None, None


class _LaterLayer(_Layer):
    @staticmethod
    def forward(x: Tensor, k: Tensor, c: Tensor, *rest: Any) -> Tensor:
        W, bias, keys, p = rest
        R, B, n, _ = x.shape
        out = x.new_empty(R, B, n, W.shape[1])
        args = (*_contiguous(x, k, c, W, bias), _keys_argument(keys, out), out, B, n, p, 1 / (1 - p))
        launch(kernels.later_layer, R * B * _n_programs(n), *args, **_sizes(W, keys, n))
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, k, c, W, _, keys = ctx.saved_tensors
        (R, B, n, h), p = x.shape, ctx.p
        grad, x, k, c, W = _contiguous(grad, x, k, c, W)
        dx, sums = torch.empty_like(x), _allocate_weight_gradients(W, B, n)
        dkc = x.new_empty(R, B, _n_programs(n), 2, h)  # of k and of c, each program's part
        args = (grad, x, k, c, W, _keys_argument(keys, grad), dx, dkc, sums, B, n, p, 1 / (1 - p))
        launch(kernels.later_layer_backward, R * B * _n_programs(n), *args, **_backward_sizes(W, keys, n))
        dk, dc = dkc.sum(2).unbind(2)
        return dx, dk, dc, *_weight_gradients(sums), None, None


class _EdgeMoments(OverRuns):
    @staticmethod
    def forward(x: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        R, B, n, h = x.shape
        x, real = _contiguous(x, real)
        size = _moment_sizes(h)
        blocks = triton.cdiv(n, size["EDGES"])
        sums = x.new_empty(R, B, blocks, 2, h)
        launch(kernels.edge_moments, R * B * blocks, x, real, sums, n, **size)
        total, square = sums.unbind(3)  # square: around the mean of a block
        filled = torch.nn.functional.pad(real, (0, blocks * size["EDGES"] - n))
        n_edges = filled.unflatten(-1, (blocks, -1)).sum(-1, True)  # of each block
        count = n_edges.sum(2).clamp_min(1)
        mean = total.sum(2) / count
        difference = total / n_edges.clamp_min(1) - mean.unsqueeze(2)
        return mean, (square + n_edges * difference.square()).sum(2) / count

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs, output[0])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dmean: Tensor, dvariance: Tensor) -> tuple[Tensor, None]:
        x, real, mean = ctx.saved_tensors
        R, B, n, h = x.shape
        x, real = _contiguous(x, real)
        count, size = real.sum(-1, keepdim=True).clamp_min(1), _moment_sizes(h)
        k = 2 * dvariance / count
        c, dx = dmean / count - k * mean, torch.empty_like(x)
        args = (x, real, *_contiguous(k, c), dx, n)
        launch(kernels.edge_moments_backward, R * B * triton.cdiv(n, size["EDGES"]), *args, **size)
        return dx, None


def _one_run(keys: Tensor | None) -> Tensor | None:
    return None if keys is None else keys.unsqueeze(0)


def _keys_argument(keys: Tensor | None, other: Tensor) -> Tensor:
    """Keys, or any other tensor where a kernel does not read them, since it takes no None."""
    return other if keys is None else keys.contiguous()


def _contiguous(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(t.contiguous() for t in tensors)


def _edge_arguments(receiver: Tensor, sender: Tensor) -> tuple[Any, ...]:
    """Ends of edges as kernels take them, with the strides from run to run: 0 where all runs share one copy."""
    receiver, sender = (t if t[0].is_contiguous() else t.contiguous() for t in (receiver, sender))
    return receiver, sender, receiver.stride(0), sender.stride(0)


def _n_programs(n: int) -> int:
    """Number of programs for a graph with n edges."""
    return triton.cdiv(n, BLOCK["EDGES"] * BLOCK["BLOCKS"])


def _block_sizes(n: int) -> dict[str, int]:
    """Blocks of a program; the last ones of a graph with n edges may be empty."""
    return BLOCK | {"BLOCKS": triton.cdiv(n, BLOCK["EDGES"] * _n_programs(n))}


def _power(width: int) -> int:
    return max(16, triton.next_power_of_2(width))


def _roi_sizes(P: int, h: int) -> dict[str, int]:
    """ROIs for which one program adds up gradients."""
    return {"RS": min(_power(P), max(16, NUMBERS // _power(h)))}


def _moment_sizes(h: int) -> dict[str, int]:
    H = triton.next_power_of_2(h)
    return {"h": h, "H": H, "EDGES": max(16, NUMBERS // H)}


def _sizes(W: Tensor, keys: Tensor | None, n: int) -> dict[str, Any]:
    """Widths before and after the linear map, also as the powers of two that blocks need, and the blocks."""
    _, d, h = W.shape
    widths = {"h": h, "H": _power(h), "d": d, "D": _power(d)}
    return widths | {"DROP": keys is not None, "EXACT": exact()} | _block_sizes(n)


def _backward_sizes(W: Tensor, keys: Tensor | None, n: int) -> dict[str, Any]:
    sizes = _sizes(W, keys, n) | BACKWARD
    if sizes["H"] > 32:  # a program then needs more registers
        del sizes["maxnreg"]
    return sizes


def _allocate_end_gradients(grad: Tensor, P: int, h: int) -> Tensor:
    """Allocate each program's part in the gradients of r and of s. Shape [2, R, B, programs, P, h].

    With 116 ROIs this is a quarter of a tensor of edges times h, with 512 ROIs as much as one. A gradient that is not
    finite spreads to all ROIs of its graph.
    """
    R, B, n, _ = grad.shape
    return grad.new_empty(2, R, B, _n_programs(n), P, h)


def _allocate_weight_gradients(W: Tensor, B: int, n: int) -> Tensor:
    """Allocate each program's part in the gradients of W and of the bias. Shape [R, B * programs, d, h + 1]."""
    R, d, h = W.shape
    return W.new_empty(R, B * _n_programs(n), d, h + 1)


def _weight_gradients(sums: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of W and of the bias."""
    total = sums.sum(1)
    return total[..., :-1], total[..., -1]

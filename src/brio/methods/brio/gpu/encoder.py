"""The signed encoder's layers as a few GPU kernels, Eqs. (4)-(6).

Written with tensor operations, a layer stores and reads back a dozen arrays of the size of H, and that takes most of
its time. Here one kernel reads H and the connectomes and writes the next H. The graphs G+ and G- exist in registers
only, formed from A, S, the mean connectome and the flags of live ROIs whenever a block of them is needed; so runs that
see the same scans read one copy of A.

:mod:`brio.methods.brio.encoder` has the equations and is the reference; this is for float32 on a GPU. Functions and
kernels work on all runs of a stack at once, [R, B, ...]; :func:`torch.vmap` hands the runs over
(:class:`brio.kernels.OverRuns`).
Gradients are those of parameters, by ``backward()`` outside of vmap; :func:`torch.func.grad` and second derivatives
need the plain encoder.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from ....kernels import OverRuns, exact, launch
from . import encoder_kernels as kernels

# Rows and columns of a block of G, and the warps that share it. Fixed, since nothing can be tried out while a step is
# being recorded as a CUDA graph.
BLOCK = {"ROWS": 64, "COLUMNS": 32, "num_warps": 4, "num_stages": 1}
NORM_ROWS = 32  # rows of a block where the layer norm goes backward


def embed(E: Tensor, V: Tensor, standard: tuple[Tensor, Tensor], graphs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """H = E + c V^T with the standardised descriptor c of each ROI, Eq. (5), and D^(-1/2) of both graphs.

    Shapes: E [P, d], V [d, 3], standard [P, 3]; returns [B, P, d].
    """
    H, root, _ = _Embed.apply(*(t.unsqueeze(0) for t in (E, V, *standard, *graphs)))
    return H.squeeze(0), root.squeeze(0)


def signed_layer(H: Tensor, W: Tensor, norm: tuple[Tensor, Tensor, float], graphs: tuple[Tensor, ...]) -> Tensor:
    """LayerNorm(H + gelu(Y)) with Y = H W_o^T + D+^(-1/2) G+ D+^(-1/2) H W_+^T + the same of G- and W_-, Eq. (6).

    Shapes: H [B, P, d], W [3, d, d], norm [d].
    """
    weight, bias, epsilon = norm
    one_run = (t.unsqueeze(0) for t in (H, W, weight, bias, *graphs))
    out, _ = _SignedLayer.apply(*one_run, epsilon, torch.is_grad_enabled())
    return out.squeeze(0)


class _Embed(OverRuns):
    @staticmethod
    def forward(E: Tensor, V: Tensor, c_mean: Tensor, c_sd: Tensor, *graphs: Any) -> tuple[Tensor, Tensor, Tensor]:
        (R, B, P), d = graphs[1].shape, E.shape[-1]
        H, root, c = E.new_empty(R, B, P, d), E.new_empty(R, B, 2, P), E.new_empty(R, B, P, 3)
        graphs += (root,)
        args = (*_graphs(*graphs), *(t.contiguous() for t in (E, V, c_mean, c_sd)), H, c)
        launch(kernels.embed, _programs(root), *args, **_sizes(H))
        return H, root, c

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        ctx.save_for_backward(output[2])
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dH: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        _refuse(ctx.needs_input_grad[2:])
        return dH.sum(1), _products(dH.contiguous(), *ctx.saved_tensors), *[None] * 6


class _SignedLayer(OverRuns):
    @staticmethod
    def forward(H: Tensor, W: Tensor, weight: Tensor, bias: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        *graphs, eps, keep = rest
        H, W, weight, bias = (t.contiguous() for t in (H, W, weight, bias))
        out, Y = torch.empty_like(H), torch.empty_like(H if keep else H[:, :0])  # only the gradient asks for Y
        args = (*_graphs(*graphs), H, W, weight, bias, out, Y if keep else out, eps)
        launch(kernels.layer, _programs(graphs[-1]), *args, KEEP=keep, EXACT=exact(), **_sizes(H))
        return out, Y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        *tensors, ctx.eps, _ = inputs
        ctx.save_for_backward(*tensors, output[1])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        H, W, weight, _, *graphs, Y = (t.contiguous() if i < 3 else t for i, t in enumerate(ctx.saved_tensors))
        _refuse(ctx.needs_input_grad[4:])
        R, B, P, d = H.shape
        n = triton.cdiv(B * P, NORM_ROWS)
        # dX: gradients of H W_o^T (that is dY), H W_+^T and H W_-^T, for the maps may as well come before the messages
        dH, dX, sums = torch.empty_like(H), H.new_empty(R, B, P, 3 * d), H.new_empty(R, n, 2, d)
        args = (grad.contiguous(), H, Y, weight, dH, dX, sums, ctx.eps, B * P, n)
        launch(kernels.norm_backward, R * n, *args, d=d, D=triton.next_power_of_2(d), ROWS=NORM_ROWS)
        args = (*_graphs(*graphs), W, dH, dX)
        launch(kernels.layer_backward, _programs(graphs[-1]), *args, EXACT=exact(), **_sizes(H))
        dweight, dbias = sums.sum(1).unbind(1)
        return dH, _products(dX, H).view(W.shape), dweight, dbias, *[None] * 7


def _refuse(asked: tuple[bool, ...]) -> None:
    if any(asked):  # inside torch.vmap a tensor does not show it earlier
        raise NotImplementedError("the GPU kernels of the signed encoder compute no gradients with respect to graphs")


def _products(x: Tensor, y: Tensor) -> Tensor:
    """x^T y of every run, over all ROIs of all graphs: in groups of graphs, so that more of the GPU has work."""
    R, B = x.shape[:2]
    groups = R * max(k for k in range(1, 17) if B % k == 0)
    x, y = (t.reshape(groups, -1, t.shape[-1]) for t in (x, y))
    return torch.bmm(x.transpose(1, 2), y).unflatten(0, (R, -1)).sum(1)


def _sizes(H: Tensor) -> dict[str, int]:
    """ROIs and width, the latter also as the power of two that blocks need, and the blocks."""
    P, d = H.shape[-2:]
    return {"P": P, "d": d, "D": triton.next_power_of_2(d)} | BLOCK


def _programs(root: Tensor) -> int:
    """One for each block of rows of each graph of each run."""
    R, B, _, P = root.shape
    return R * B * triton.cdiv(P, BLOCK["ROWS"])


def _graphs(A: Tensor, live: Tensor, mean: Tensor, S: Tensor, root: Tensor) -> tuple[Any, ...]:
    """Graphs as kernels take them, with the steps from run to run in A and live: 0 where all runs see one copy."""
    A, live = (t if t[0].is_contiguous() else t.contiguous() for t in (A, live))
    return A, live, mean.contiguous(), S.contiguous(), root.contiguous(), A.stride(0), live.stride(0), len(root)

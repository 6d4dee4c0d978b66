"""Layers that several networks share.

A layer that draws random numbers or keeps batch statistics is handed the :class:`~brio.training.StepContext` of the
training step; at inference it is handed None.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..training import StepContext
from ..training.random_numbers import drop_out

__all__ = [
    "BatchNorm",
    "Chain",
    "Dropout",
    "GATLayer",
    "GCNLayer",
    "GINLayer",
    "Identity",
    "LayerNorm",
    "Linear",
    "StepLayer",
    "build_mlp",
    "linear",
]


class StepLayer(nn.Module):
    """A layer that is handed the training step: ``forward(x, step)``, None at inference."""


class Identity(StepLayer):
    """Nothing, where another network has a layer that is handed the step."""

    def forward(self, x: Tensor, step: StepContext | None = None) -> Tensor:
        return x


class Chain(nn.Sequential):
    """Layers one after another; those that are a :class:`StepLayer` are handed the step."""

    def forward(self, x: Tensor, step: StepContext | None = None) -> Tensor:
        for layer in self:
            x = layer(x, step) if isinstance(layer, StepLayer) else layer(x)
        return x


class Dropout(StepLayer):
    """Dropout whose draws are the same for a run alone and in a stack."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor, step: StepContext | None = None) -> Tensor:
        """Drop a share p of the entries of x, of any shape, and scale the others; x itself at inference."""
        return x if step is None or self.p == 0 else drop_out(x, step.draw_keys(), self.p)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b for x [B, ..., d], the graph first.

    The gradient of a small weight is a sum over all ROIs (or edges) of all graphs of the batch; on a GPU one such sum
    keeps few of its processors busy. There the graphs go in several groups, whose sums are added at the end.
    """
    groups = max(k for k in range(1, 17) if len(x) % k == 0)
    if x.device.type == "cpu" or x.dim() == 2 or groups == 1 or not torch.is_grad_enabled():
        return F.linear(x, weight, bias)
    flat = x.reshape(groups, -1, x.shape[-1])
    y = torch.bmm(flat, weight.T.expand(groups, *weight.T.shape)).reshape(*x.shape[:-1], len(weight))
    return y if bias is None else y + bias


class Linear(nn.Linear):
    """A linear layer on [B, ..., d], the graph first; see :func:`linear`."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


class LayerNorm(nn.LayerNorm):
    """Layer normalisation of the last axis.

    The GPU's own kernel gives each row a block of threads, most of which have nothing to do when a row is an ROI's few
    dozen numbers. Where no gradient is asked for (a refresh, scoring), plain reductions do the same much sooner.
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.device.type == "cpu" or torch.is_grad_enabled():
            return super().forward(input)
        return self.by_reductions(input)

    def by_reductions(self, x: Tensor) -> Tensor:
        variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
        return torch.addcmul(self.bias, (x - mean) * (variance + self.eps).rsqrt(), self.weight)


class BatchNorm(StepLayer):
    """Batch normalisation of the last axis over all others; graphs that pad the stack do not count.

    As ``torch.nn.BatchNorm1d`` (biased variance in the batch, unbiased in the running average).
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def forward(self, x: Tensor, step: StepContext | None = None) -> Tensor:
        """Normalise x of shape [B, ..., width], the graph first."""
        if step is None:
            return self.scale(x - self.running_mean, self.running_var)
        middle = tuple(range(1, x.dim() - 1))
        real = step.real.repeat(len(x) // len(step.real))  # several passes of the batch may lie end to end
        share = (real / real.sum()).unsqueeze(-1)
        mean = (share * (x.mean(middle) if middle else x)).sum(0)
        centred = x - mean
        square = centred.square()
        variance = (share * (square.mean(middle) if middle else square)).sum(0)
        self.update_statistics(mean, variance, real.sum() * (x[0, ..., 0].numel() if middle else 1), step)
        return self.scale(centred, variance)

    def update_statistics(self, mean: Tensor, variance: Tensor, count: Tensor, step: StepContext) -> None:
        """Move the running averages towards the mean and variance of ``count`` values. Shapes [width], scalar."""
        if step.update_statistics:
            unbiased = variance.detach() * count / (count - 1).clamp_min(1)
            self.running_mean.mul_(1 - self.momentum).add_(self.momentum * mean.detach())
            self.running_var.mul_(1 - self.momentum).add_(self.momentum * unbiased)

    def scale(self, centred: Tensor, variance: Tensor) -> Tensor:
        """Divide centred values by the root of a variance, then apply weight and bias."""
        return centred * ((variance + self.eps).rsqrt() * self.weight) + self.bias


class GCNLayer(nn.Module):
    """A_hat H W + b (Kipf & Welling 2017); A_hat: :func:`brio.methods.graphs.normalised`."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(n_out, n_in)))
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, H: Tensor, A_hat: Tensor) -> Tensor:
        """H: [B, P, n_in]; A_hat: [B, P, P]."""
        return A_hat @ linear(H, self.weight) + self.bias


class GINLayer(nn.Module):
    """MLP((1 + eps) h_u + sum_v a_uv h_v) (Xu et al. 2019), MLP = linear, batch norm, ReLU, linear; eps is learned."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(()))
        self.update = Chain(Linear(n_in, n_out), BatchNorm(n_out), nn.ReLU(), Linear(n_out, n_out))

    def forward(self, H: Tensor, A: Tensor, step: StepContext | None = None) -> Tensor:
        """H: [B, P, n_in]; A: [B, P, P], A[u, v] weighs the message of v to u."""
        return self.update((1 + self.eps) * H + A @ H, step)


class GATLayer(nn.Module):
    """Masked attention over neighbours and self (Velickovic et al. 2018), heads concatenated or averaged."""

    def __init__(self, n_in: int, n_out: int, heads: int, concat: bool, dropout: float) -> None:
        super().__init__()
        self.heads, self.concat = heads, concat
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads * n_out, n_in)))
        self.receive = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, n_out)))
        self.send = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, n_out)))
        self.bias = nn.Parameter(torch.zeros(heads * n_out if concat else n_out))
        self.dropout = Dropout(dropout)

    def forward(self, H: Tensor, mask: Tensor, step: StepContext | None = None) -> Tensor:
        """H: [B, P, n_in]; mask: [B, P, P], nonzero where u receives from v. Self-loops are added."""
        x = linear(H, self.weight).unflatten(-1, (self.heads, -1))  # [B, P, heads, d]
        to, of = (x * self.receive).sum(-1), (x * self.send).sum(-1)  # [B, P, heads]
        score = F.leaky_relu(to.transpose(-1, -2).unsqueeze(-1) + of.transpose(-1, -2).unsqueeze(-2), 0.2)
        linked = (mask + torch.eye(mask.shape[-1], device=mask.device, dtype=mask.dtype)).unsqueeze(-3) != 0
        attention = self.dropout(torch.where(linked, score, torch.full_like(score, -1e9)).softmax(-1), step)
        out = (attention @ x.transpose(-2, -3)).transpose(-2, -3)  # [B, P, heads, d]
        return (out.flatten(-2) if self.concat else out.mean(-2)) + self.bias


def build_mlp(*widths: int, dropout: float = 0.0, norm: bool = False) -> Chain:
    """Build linear layers with (batch norm,) ReLU and dropout between them.

    Parameters
    ----------
    *widths : int
        Of the input, of each hidden layer and of the output.
    dropout : float
    norm : bool
        Batch norm after every hidden layer.
    """
    layers: list[nn.Module] = []
    for n_in, n_out in itertools.pairwise(widths[:-1]):
        layers += [Linear(n_in, n_out), *([BatchNorm(n_out)] if norm else []), nn.ReLU(), Dropout(dropout)]
    return Chain(*layers, Linear(widths[-2], widths[-1]))

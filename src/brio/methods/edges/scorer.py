"""The MLP that scores edges from the states of their ends, and the norms inside it.

A norm is a scale and a shift once mean and variance over the edges are known. Those of the first layer follow from the
states of ROIs and the graph, so that scale and shift go to ROIs, and nothing of the first layer's width is ever
normalised edge by edge.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...training import StepContext
from ...training.gpu.launch import kernels_run_on
from ..layers import BatchNorm, Dropout, Linear
from .edge_list import Edges, scatter_edges

__all__ = ["EdgeBatchNorm", "EdgeInstanceNorm", "EdgeMLP", "add_ends", "edge_moments", "end_moments", "find_gpu_twin"]

Moments = tuple[Tensor, Tensor]


def edge_moments(x: Tensor, real: Tensor) -> Moments:
    """Mean and variance over the real edges of each graph. Shapes [B, 2 M, h], [B, 2 M] -> [B, h] twice."""
    share = (real / real.sum(1, keepdim=True).clamp_min(1)).unsqueeze(1)  # weighted sums as products: fewer passes
    mean = share @ x
    return mean.squeeze(1), (share @ (x - mean).square()).squeeze(1)


def end_moments(r: Tensor, s: Tensor, edges: Edges) -> Moments:
    """Mean and variance of r_u + s_v over the real edges of each graph. Shapes [B, P, h] -> [B, h] twice.

    With N the adjacency matrix of n real edges, d its row sums (and column sums: edges go both ways) and both terms
    centred, the variance is (sum_u d_u (r_u^2 + s_u^2) + 2 sum_u r_u (N s)_u) / n.
    """
    N = scatter_edges(torch.ones_like(edges.real), edges, r.shape[1])
    degree = N.sum(-1)
    share = (degree / degree.sum(1, keepdim=True).clamp_min(1)).unsqueeze(1)
    of_r, of_s = share @ r, share @ s
    r, s = r - of_r, s - of_s
    both = (r * (N @ s)).sum(1) / degree.sum(1, keepdim=True).clamp_min(1)
    variance = (share @ (r.square() + s.square())).squeeze(1) + 2 * both
    return (of_r + of_s).squeeze(1), variance.clamp_min(0)


class EdgeInstanceNorm(nn.Module):
    """Normalises each channel over the edges of one graph, in training and after it alike; nothing is learned."""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps

    def affine(
        self, moments: Callable[[], Moments], real: Tensor, step: StepContext | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute k and c such that the norm is k x + c.

        Parameters
        ----------
        moments : function
            Returns mean and variance over the edges of each graph, [B, h] each; called only where they are needed.
        real : Tensor, shape [B, 2 M]
        step : StepContext or None

        Returns
        -------
        k, c : Tensor, shape [B, 1, h]
        """
        mean, variance = moments()
        k = (variance + self.eps).rsqrt()
        return k.unsqueeze(1), (-mean * k).unsqueeze(1)

    def forward(self, x: Tensor, real: Tensor, step: StepContext | None = None) -> Tensor:
        """x: [B, 2 M, h]; real: [B, 2 M]."""
        k, c = self.affine(partial(edge_moments, x, real), real, step)
        return torch.addcmul(c, x, k)


class EdgeBatchNorm(BatchNorm):
    """Batch normalisation over all edges of the batch; empty places of a list do not count."""

    def affine(
        self, moments: Callable[[], Moments], real: Tensor, step: StepContext | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute k and c such that the norm is k x + c.

        Parameters
        ----------
        moments : function
            Returns mean and variance over the edges of each graph, [B, h] each; called only where they are needed.
        real : Tensor, shape [B, 2 M]
        step : StepContext or None

        Returns
        -------
        k, c : Tensor, shape [B, 1, h]
        """
        mean, variance = self.running_mean, self.running_var
        if step is not None:
            mean, variance = self.batch_moments(moments, real, step)
        k = (variance + self.eps).rsqrt() * self.weight
        return k.expand(len(real), 1, -1), (self.bias - mean * k).expand(len(real), 1, -1)

    def batch_moments(self, moments: Callable[[], Moments], real: Tensor, step: StepContext) -> Moments:
        """Mean and variance [h] over the edges of all graphs; the running averages are updated with them."""
        each, inside = moments()
        edges = real.sum(1) * step.real
        count = edges.sum().clamp_min(1)
        share = (edges / count).unsqueeze(-1)
        mean = (share * each).sum(0)
        variance = (share * (inside + (each - mean).square())).sum(0)
        self.update_statistics(mean, variance, count, step)
        return mean, variance

    def forward(self, x: Tensor, real: Tensor, step: StepContext | None = None) -> Tensor:  # type: ignore[override]
        """x: [B, 2 M, h]; real: [B, 2 M]."""
        k, c = self.affine(partial(edge_moments, x, real), real, step)
        return torch.addcmul(c, x, k)


def find_gpu_twin(H: Tensor, widths: Sequence[int]) -> Any:
    """Find the module :mod:`.gpu.scorer` where its kernels can score edges with hidden layers of these widths, or None.

    They can in float32 on a GPU that runs Triton kernels (:func:`brio.training.gpu.launch.kernels_run_on`), up to a
    width of 64. Everywhere else tensor operations do the same, in more time and memory.
    """
    if not H.is_cuda or H.dtype != torch.float32 or max(widths) > 64 or not kernels_run_on(H.device):
        return None
    from .gpu import scorer

    return scorer


def add_ends(r: Tensor, s: Tensor, edges: Edges) -> Tensor:
    """Add r_u + s_v for every edge, v to u. Shapes [B, P, h] -> [B, 2 M, h].

    The gradient of what an end holds is a sum over edges; kernels fix its order, torch on a GPU does not.
    """
    twin = find_gpu_twin(r, r.shape[-1:])
    return edges.at(r, edges.to) + edges.at(s, edges.of) if twin is None else twin.add_ends(r, s, edges)


class EdgeMLP(nn.Module):
    """A number for each edge from the states of its ends, MLP(h_u || h_v): linear, norm, ReLU, dropout, ..., linear.

    The first layer is one matrix for each end, so it is applied to ROIs and not to edges. What stands in empty places
    of a list means nothing.
    """

    def __init__(
        self,
        n_in: int,
        widths: Sequence[int],
        dropout: float = 0.0,
        norm: type[EdgeInstanceNorm] | type[EdgeBatchNorm] = EdgeInstanceNorm,
    ) -> None:
        super().__init__()
        self.widths = tuple(widths)
        self.receiver = Linear(n_in, widths[0])
        self.sender = Linear(n_in, widths[0], bias=False)
        self.norms = nn.ModuleList(norm(w) for w in widths)
        self.linears = nn.ModuleList(Linear(a, b) for a, b in itertools.pairwise([*widths, 1]))
        self.dropout = Dropout(dropout)

    def forward(self, H: Tensor, edges: Edges, step: StepContext | None = None) -> Tensor:
        """H: [B, P, n_in] -> [B, 2 M]."""
        r, s = self.receiver(H), self.sender(H)
        first: Any = self.norms[0]
        k, c = first.affine(partial(end_moments, r, s, edges), edges.real, step)
        r, s = torch.addcmul(c, r, k), s * k
        twin = find_gpu_twin(H, self.widths)
        if twin is not None:
            return self._score_on_gpu(twin, r, s, edges, step)
        x = self.linears[0](self.dropout(add_ends(r, s, edges).relu(), step))
        for norm, linear in zip(self.norms[1:], self.linears[1:], strict=True):
            x = linear(self.dropout(norm(x, edges.real, step).relu(), step))
        return x.squeeze(-1)

    def _score_on_gpu(self, twin: Any, r: Tensor, s: Tensor, edges: Edges, step: StepContext | None) -> Tensor:
        """The same by :mod:`.gpu.scorer`, from the first layer's normalised terms."""
        x = twin.first_layer(r, s, edges, *self._linear(0, step))
        later: Any = self.norms[1:]
        for number, norm in enumerate(later, 1):
            k, c = norm.affine(partial(twin.moments, x, edges.real), edges.real, step)
            x = twin.later_layer(x, k.squeeze(1), c.squeeze(1), *self._linear(number, step))
        return x.squeeze(-1)

    def _linear(self, number: int, step: StepContext | None) -> tuple[Tensor, Tensor, Tensor | None, float]:
        """Weight and bias of a linear map, and the keys and probability of the dropout before it."""
        linear: Any = self.linears[number]
        p = self.dropout.p
        if step is None or p == 0:
            return linear.weight, linear.bias, None, 0.0
        return linear.weight, linear.bias, step.draw_keys(), p

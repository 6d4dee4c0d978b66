"""What methods that pick edges share: the edges of a graph as a list, scores of edges, random masks, encoders.

A graph holds a fifth of all pairs of ROIs, so scores are computed on lists of edges, [B, 2 M, h], and scattered into
P x P weights once they are single numbers: a fifth of the memory of an MLP over all pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...settings import require, setting
from ...spaces import choice
from ...training import Stage
from ...training.ambient import uniform
from ..graphs import GraphSettings
from ..layers import BatchNorm, Dropout, GINLayer, Linear

__all__ = [
    "EdgeSettings",
    "Edges",
    "GINEncoder",
    "bernoulli_kl",
    "concrete",
    "decay_stages",
    "dense",
    "edge_mean",
    "keep_rate",
    "list_edges",
    "straight_through",
    "symmetric",
]


@dataclass(frozen=True)
class EdgeSettings(GraphSettings):
    """Settings of methods that score edges from the states of their ends.

    Attributes
    ----------
    edge_width : int
        The MLP that scores edges has hidden layers of 4 and of 1 times this width. Published code takes ``width`` (64)
        here; 8 keeps the memory of a stack of runs small, since every edge of every scan has its own hidden states.
    edge_dropout : float
        Dropout inside that MLP.
    """

    dropout: float = setting(0.3, choice(0.3, 0.5))
    edge_width: int = 8
    edge_dropout: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.edge_width >= 1, "edge_width", self.edge_width, "at least 1")
        require(0 <= self.edge_dropout < 1, "edge_dropout", self.edge_dropout, "0 or more and below 1")


class Edges(NamedTuple):
    """The edges of each graph in both directions: first every pair u < v as v to u, then, in the same order, u to v."""

    to: Tensor  # [B, 2 M] ROI that hears
    of: Tensor  # [B, 2 M] ROI that is heard
    real: Tensor  # [B, 2 M] 1 for edges, 0 for places that a graph with fewer edges leaves empty

    def at(self, H: Tensor, end: Tensor) -> Tensor:
        """States of one end of each edge. Shape [B, P, h] -> [B, 2 M, h]."""
        return H.gather(1, end.unsqueeze(-1).expand(-1, -1, H.shape[-1]))


def list_edges(adjacency: Tensor, share: float) -> Edges:
    """Edges of graphs whose edges are the strongest ``share`` of all pairs.

    Parameters
    ----------
    adjacency : Tensor, shape [B, P, P]
        1 for edges, symmetric, zero diagonal (:func:`brio.methods.graphs.strong_edges`).
    share : float
        Gives every list the same length M; ROIs without signal leave places empty.
    """
    n_graphs, p = adjacency.shape[:2]
    pairs = p * (p - 1) // 2
    room = max(1, min(pairs, round(share * pairs)))
    place = torch.arange(p * p, device=adjacency.device)
    upper = (adjacency.flatten(1) > 0) & (place % p > place // p)
    number = upper.long().cumsum(1)  # the how-manieth edge of its graph
    slot = torch.where(upper & (number <= room), number - 1, torch.full_like(number, room))
    empty = torch.zeros(n_graphs, room + 1, dtype=torch.long, device=adjacency.device)
    found = empty.scatter(1, slot, place.expand(n_graphs, -1))[:, :room]  # empty places point at the diagonal
    u, v = found // p, found % p
    real = (v > u).to(adjacency.dtype)
    return Edges(torch.cat([u, v], 1), torch.cat([v, u], 1), torch.cat([real, real], 1))


def dense(values: Tensor, edges: Edges, n_rois: int) -> Tensor:
    """Values of edges as P x P weights of messages, zero elsewhere. Shape [B, ..., 2 M] -> [B, ..., P, P]."""
    middle = values.shape[1:-1]
    index = (edges.to * n_rois + edges.of).reshape(len(values), *[1] * len(middle), -1).expand_as(values)
    real = edges.real.reshape(index.shape[0], *[1] * len(middle), -1)
    flat = values.new_zeros(len(values), *middle, n_rois * n_rois).scatter(-1, index, values * real)
    return flat.unflatten(-1, (n_rois, n_rois))


def symmetric(values: Tensor) -> Tensor:
    """Both directions of an edge get their mean. Shape [B, ..., 2 M]."""
    return (values + values.roll(values.shape[-1] // 2, -1)) / 2


def edge_mean(values: Tensor, edges: Edges) -> Tensor:
    """Mean over the edges of each graph. Shape [B, 2 M] -> [B]."""
    return (values * edges.real).sum(-1) / edges.real.sum(-1).clamp_min(1)


def concrete(logit: Tensor, training: bool, temperature: float = 1.0) -> Tensor:
    """Relaxed Bernoulli sample (Maddison et al. 2017) while training, its probability afterwards. Graphs first."""
    if not training:
        return logit.sigmoid()
    u = uniform(logit.shape, logit)
    return ((logit + u.log() - (-u).log1p()) / temperature).sigmoid()


def straight_through(probability: Tensor, u: Tensor | float) -> Tensor:
    """1 where a number exceeds u (uniform ones: a Bernoulli sample), else 0, with the gradient of the number itself."""
    return (probability > u).to(probability.dtype) + (probability - probability.detach())


START, FALL, FALLS = 0.9, 0.1, 10


def _interval(epochs: int) -> int:
    return max(1, epochs // FALLS)


def keep_rate(epoch: Tensor, epochs: int, final: float) -> Tensor:
    """r, the share of edges a prior keeps: 0.9, then 0.1 less after every tenth of the epochs, down to ``final``."""
    falls = torch.div(epoch - 1, _interval(epochs), rounding_mode="floor")
    return (START - FALL * falls).clamp_min(final)


def decay_stages(epochs: int, final: float) -> list[Stage]:
    """While r falls no checkpoint may be chosen; at least one epoch is left for choosing."""
    falling = max(1, round((START - final) / FALL)) * _interval(epochs)
    falling = min(falling, epochs - 1)
    first = [Stage("decay", falling, selectable=False)] if falling else []
    return [*first, Stage("settled", epochs - falling)]


def bernoulli_kl(kept: Tensor, edges: Edges, r: Tensor | float) -> Tensor:
    """KL(Bernoulli(a) || Bernoulli(r)), mean over the edges of each graph. Shape [B, 2 M] -> [B]."""
    a = kept.clamp(1e-6, 1 - 1e-6)
    return edge_mean(a * (a / r).log() + (1 - a) * ((1 - a) / (1 - r)).log(), edges)


class GINEncoder(nn.Module):
    """A linear layer, then GIN layers, each with (batch norm,) ReLU, (a residual connection) and dropout."""

    def __init__(self, n_in: int, width: int, layers: int, dropout: float, residual: bool = False) -> None:
        super().__init__()
        self.embed = Linear(n_in, width)
        self.layers = nn.ModuleList(GINLayer(width, width) for _ in range(layers))
        self.norms = nn.ModuleList(BatchNorm(width) if residual else nn.Identity() for _ in range(layers))
        self.residual = residual
        self.dropout = Dropout(dropout)

    def forward(self, X: Tensor, A: Tensor) -> Tensor:
        """X: [B, P, n_in]; A: [B, P, P], A[u, v] weighs the message of v to u. Shape [B, P, width]."""
        H = self.embed(X)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            new = norm(layer(H, A)).relu()
            H = self.dropout(H + new if self.residual else new)
        return H

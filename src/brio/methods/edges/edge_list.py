"""The edges of a graph as a list, and values of edges.

A graph holds a fifth of all pairs of ROIs, so values are computed on lists of edges, [B, 2 M, h], and scattered into
P x P weights once they are single numbers: a fifth of the memory of an MLP over all pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Edges", "average_directions", "average_edges", "list_edges", "scatter_edges"]


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
    number = upper.long().cumsum(1)  # index of the edge within its graph, from 1
    slot = torch.where(upper & (number <= room), number - 1, torch.full_like(number, room))
    empty = torch.zeros(n_graphs, room + 1, dtype=torch.long, device=adjacency.device)
    found = empty.scatter(1, slot, place.expand(n_graphs, -1))[:, :room]  # empty places point at the diagonal
    u, v = found // p, found % p
    real = (v > u).to(adjacency.dtype)
    return Edges(torch.cat([u, v], 1), torch.cat([v, u], 1), torch.cat([real, real], 1))


def scatter_edges(values: Tensor, edges: Edges, n_rois: int) -> Tensor:
    """Values of edges as P x P weights of messages, zero elsewhere. Shape [B, ..., 2 M] -> [B, ..., P, P]."""
    middle = values.shape[1:-1]
    index = (edges.to * n_rois + edges.of).reshape(len(values), *[1] * len(middle), -1).expand_as(values)
    real = edges.real.reshape(index.shape[0], *[1] * len(middle), -1)
    flat = values.new_zeros(len(values), *middle, n_rois * n_rois).scatter(-1, index, values * real)
    return flat.unflatten(-1, (n_rois, n_rois))


def average_directions(values: Tensor) -> Tensor:
    """Both directions of an edge get their mean. Shape [B, ..., 2 M]."""
    return (values + values.roll(values.shape[-1] // 2, -1)) / 2


def average_edges(values: Tensor, edges: Edges) -> Tensor:
    """Mean over the edges of each graph. Shape [B, 2 M] -> [B]."""
    return (values * edges.real).sum(-1) / edges.real.sum(-1).clamp_min(1)

"""Edges of a graph as a list, values of edges, and random masks of them.

A graph holds a fifth of all pairs of ROIs. Values are therefore computed on lists of edges, [B, 2 M, h], and scattered
into P x P matrices once they are single numbers: a fifth of the memory of an MLP over all pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...training import Batch, Stage, StepContext


class Edges(NamedTuple):
    """The edges of each graph, in both directions.

    The first half of a list holds every pair u < v as the edge from v to u, the second half the same pairs in the same
    order as the edge from u to v. A graph with fewer than M edges leaves entries empty.

    Shapes: receiver, sender [B, 2 M], real [B, 2 M].
    """

    receiver: Tensor  # ROIs at the ends of each edge
    sender: Tensor
    real: Tensor  # 1 for edges, 0 for empty entries

    def gather(self, H: Tensor, end: Tensor) -> Tensor:
        """Gather the states at one end of each edge.

        Shapes: H [B, P, h], end [B, 2 M]; returns [B, 2 M, h].
        """
        return H.gather(1, end.unsqueeze(-1).expand(-1, -1, H.shape[-1]))


def list_edges(adjacency: Tensor, share: float) -> Edges:
    """List the edges of graphs whose edges are the strongest ``share`` of all pairs.

    Shapes: adjacency [B, P, P].
    """
    n_graphs, p = adjacency.shape[:2]
    n_pairs = p * (p - 1) // 2
    length = max(1, min(n_pairs, round(share * n_pairs)))
    cell = torch.arange(p * p, device=adjacency.device)
    upper = (adjacency.flatten(1) > 0) & (cell % p > cell // p)
    number = upper.long().cumsum(1)  # index of the edge within its graph, from 1
    entry = torch.where(upper & (number <= length), number - 1, torch.full_like(number, length))
    empty = torch.zeros(n_graphs, length + 1, dtype=torch.long, device=adjacency.device)
    cells = empty.scatter(1, entry, cell.expand(n_graphs, -1))[:, :length]  # empty entries point at the diagonal
    u, v = cells // p, cells % p
    real = (v > u).to(adjacency.dtype)
    return Edges(torch.cat([u, v], 1), torch.cat([v, u], 1), torch.cat([real, real], 1))


def scatter_edges(values: Tensor, edges: Edges, n_rois: int) -> Tensor:
    """Scatter values of edges into matrices of message weights, zero elsewhere.

    Shapes: values [B, ..., 2 M]; returns [B, ..., P, P].
    """
    middle = values.shape[1:-1]
    index = (edges.receiver * n_rois + edges.sender).reshape(len(values), *[1] * len(middle), -1).expand_as(values)
    real = edges.real.reshape(index.shape[0], *[1] * len(middle), -1)
    flat = values.new_zeros(len(values), *middle, n_rois * n_rois).scatter(-1, index, values * real)
    return flat.unflatten(-1, (n_rois, n_rois))


def average_directions(values: Tensor) -> Tensor:
    """Give both directions of each edge the mean of their values. Shape [B, ..., 2 M] in and out."""
    return (values + values.roll(values.shape[-1] // 2, -1)) / 2


def average_edges(values: Tensor, edges: Edges) -> Tensor:
    """Average values over the edges of each graph. Shape [B, 2 M] -> [B]."""
    return (values * edges.real).sum(-1) / edges.real.sum(-1).clamp_min(1)


INITIAL_RATE, DECREMENT, N_INTERVALS = 0.9, 0.1, 10
"""The share of edges that the prior keeps starts here and falls by so much after each interval of the epochs."""


def sample_concrete(logit: Tensor, step: StepContext | None, temperature: float = 1.0) -> Tensor:
    """Draw relaxed Bernoulli samples (Maddison et al. 2017) in training; return their probability at inference.

    Shapes: logit [B, ...]; returns [B, ...].
    """
    if step is None:
        return logit.sigmoid()
    u = step.draw_uniform(logit.shape, logit)
    return ((logit + u.log() - (-u).log1p()) / temperature).sigmoid()


def straight_through(probability: Tensor, threshold: Tensor | float) -> Tensor:
    """Make values binary, with the gradient of the values themselves (Bengio et al. 2013).

    Shapes: probability [...], threshold [...]; returns [...].
    """
    return (probability > threshold).to(probability.dtype) + (probability - probability.detach())


def schedule_keep_rate(epoch: Tensor, epochs: int, final: float) -> Tensor:
    """Schedule r, the share of edges that the prior keeps (GSAT, Miao et al. 2022).

    It is 0.9 at first and falls by 0.1 after every tenth of the epochs, down to ``final``.
    """
    n_falls = torch.div(epoch - 1, max(1, epochs // N_INTERVALS), rounding_mode="floor")
    return (INITIAL_RATE - DECREMENT * n_falls).clamp_min(final)


def plan_decay_stages(epochs: int, final: float) -> list[Stage]:
    """Plan a stage in which r falls, and a selectable one in which it is ``final``.

    No checkpoint is chosen while r falls. At least one epoch is left for choosing.
    """
    falling = max(1, round((INITIAL_RATE - final) / DECREMENT)) * max(1, epochs // N_INTERVALS)
    falling = min(falling, epochs - 1)
    first = [Stage("decay", falling, selectable=False)] if falling else []
    return [*first, Stage("constant rate", epochs - falling)]


def find_keep_rate(batch: Batch, epochs: int, final: float) -> Tensor | float:
    """Find r in one of the stages of :func:`plan_decay_stages`."""
    return schedule_keep_rate(batch.epoch, epochs, final) if batch.stage.name == "decay" else final


def bernoulli_kl(probability: Tensor, edges: Edges, r: Tensor | float) -> Tensor:
    """KL(Bernoulli(a) || Bernoulli(r)), mean over the edges of each graph.

    Shapes: probability [B, 2 M]; returns [B].
    """
    a = probability.clamp(1e-6, 1 - 1e-6)
    return average_edges(a * (a / r).log() + (1 - a) * ((1 - a) / (1 - r)).log(), edges)

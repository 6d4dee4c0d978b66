"""Random masks of edges, and the prior on the share of edges that a mask keeps."""

from __future__ import annotations

import torch
from torch import Tensor

from ...training import Stage, StepContext
from .edge_list import Edges, average_edges

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


def _interval_length(epochs: int) -> int:
    return max(1, epochs // N_INTERVALS)


def schedule_keep_rate(epoch: Tensor, epochs: int, final: float) -> Tensor:
    """Schedule r, the share of edges that the prior keeps (GSAT, Miao et al. 2022).

    It is 0.9 at first and falls by 0.1 after every tenth of the epochs, down to ``final``.
    """
    n_falls = torch.div(epoch - 1, _interval_length(epochs), rounding_mode="floor")
    return (INITIAL_RATE - DECREMENT * n_falls).clamp_min(final)


def plan_decay_stages(epochs: int, final: float) -> list[Stage]:
    """Plan a stage in which r falls, and a selectable one in which it is ``final``.

    No checkpoint is chosen while r falls. At least one epoch is left for choosing.
    """
    falling = max(1, round((INITIAL_RATE - final) / DECREMENT)) * _interval_length(epochs)
    falling = min(falling, epochs - 1)
    first = [Stage("decay", falling, selectable=False)] if falling else []
    return [*first, Stage("constant rate", epochs - falling)]


def find_keep_rate(epoch: Tensor, stage: Stage, epochs: int, final: float) -> Tensor | float:
    """Find r in one of the stages of :func:`plan_decay_stages`."""
    return schedule_keep_rate(epoch, epochs, final) if stage.name == "decay" else final


def bernoulli_kl(probability: Tensor, edges: Edges, r: Tensor | float) -> Tensor:
    """KL(Bernoulli(a) || Bernoulli(r)), mean over the edges of each graph.

    Shapes: probability [B, 2 M]; returns [B].
    """
    a = probability.clamp(1e-6, 1 - 1e-6)
    return average_edges(a * (a / r).log() + (1 - a) * ((1 - a) / (1 - r)).log(), edges)

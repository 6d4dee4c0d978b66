"""Random masks of edges, and the prior that says how many edges a mask keeps."""

from __future__ import annotations

import torch
from torch import Tensor

from ...training import Stage, StepContext
from .edge_list import Edges, average_edges

__all__ = ["bernoulli_kl", "keep_rate", "plan_decay_stages", "sample_concrete", "straight_through"]

START, FALL, FALLS = 0.9, 0.1, 10


def sample_concrete(logit: Tensor, step: StepContext | None, temperature: float = 1.0) -> Tensor:
    """Draw relaxed Bernoulli samples (Maddison et al. 2017) in training; return their probability at inference.

    Parameters
    ----------
    logit : Tensor, shape [B, ...]
        The graph first.
    step : StepContext or None
        None at inference.
    temperature : float
    """
    if step is None:
        return logit.sigmoid()
    u = step.draw_uniform(logit.shape, logit)
    return ((logit + u.log() - (-u).log1p()) / temperature).sigmoid()


def straight_through(probability: Tensor, u: Tensor | float) -> Tensor:
    """1 where a number exceeds u (uniform ones: a Bernoulli sample), else 0, with the gradient of the number itself."""
    return (probability > u).to(probability.dtype) + (probability - probability.detach())


def _interval(epochs: int) -> int:
    return max(1, epochs // FALLS)


def keep_rate(epoch: Tensor, epochs: int, final: float) -> Tensor:
    """r, the share of edges a prior keeps: 0.9, then 0.1 less after every tenth of the epochs, down to ``final``."""
    falls = torch.div(epoch - 1, _interval(epochs), rounding_mode="floor")
    return (START - FALL * falls).clamp_min(final)


def plan_decay_stages(epochs: int, final: float) -> list[Stage]:
    """While r falls no checkpoint may be chosen; at least one epoch is left for choosing."""
    falling = max(1, round((START - final) / FALL)) * _interval(epochs)
    falling = min(falling, epochs - 1)
    first = [Stage("decay", falling, selectable=False)] if falling else []
    return [*first, Stage("settled", epochs - falling)]


def bernoulli_kl(kept: Tensor, edges: Edges, r: Tensor | float) -> Tensor:
    """KL(Bernoulli(a) || Bernoulli(r)), mean over the edges of each graph. Shape [B, 2 M] -> [B]."""
    a = kept.clamp(1e-6, 1 - 1e-6)
    return average_edges(a * (a / r).log() + (1 - a) * ((1 - a) / (1 - r)).log(), edges)

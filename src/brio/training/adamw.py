"""AdamW over stacked parameters: every run has its own step count and may sit a step out."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["StackedAdamW"]


class StackedAdamW:
    """Decoupled weight decay (Loshchilov & Hutter 2019) for parameters with a leading runs axis.

    ``torch.optim.AdamW`` counts steps once for all; here each run counts its own, since the runs of a stack
    have epochs of different lengths. A parameter without gradient is left alone, decay included.

    Parameters
    ----------
    params : dict of Tensor, shapes [R, ...]
        Updated in place.
    """

    def __init__(
        self,
        params: dict[str, Tensor],
        learning_rate: float,
        weight_decay: float,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
    ) -> None:
        self.params = params
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.betas, self.epsilon = betas, epsilon
        self.mean = {name: torch.zeros_like(p) for name, p in params.items()}
        self.square = {name: torch.zeros_like(p) for name, p in params.items()}
        first = next(iter(params.values()))
        self.steps = torch.zeros(len(first), dtype=torch.float64, device=first.device)

    @torch.no_grad()
    def step(self, active: Tensor) -> None:
        """One update of the active runs from the gradients in ``.grad``. ``active``: bool, shape [R]."""
        self.steps += active
        beta1, beta2 = self.betas
        correction1 = 1 - beta1 ** self.steps.clamp_min(1)
        correction2 = (1 - beta2 ** self.steps.clamp_min(1)).sqrt()
        for name, p in self.params.items():
            if p.grad is None:
                continue
            shape = (-1,) + (1,) * (p.ndim - 1)
            go = active.view(shape).to(p.dtype)
            mean, square = self.mean[name], self.square[name]
            mean.add_((p.grad - mean) * (go * (1 - beta1)))
            square.add_((p.grad.square() - square) * (go * (1 - beta2)))
            size = (self.learning_rate / correction1).to(p.dtype).view(shape)
            root = square.sqrt() / correction2.to(p.dtype).view(shape) + self.epsilon
            p.sub_(go * (self.learning_rate * self.weight_decay * p + size * mean / root))
            p.grad = None

    def select(self, params: dict[str, Tensor], keep: Tensor) -> None:
        """Go on with some of the runs, whose parameters are given."""
        self.params = params
        self.mean = {name: m[keep] for name, m in self.mean.items()}
        self.square = {name: s[keep] for name, s in self.square.items()}
        self.steps = self.steps[keep]

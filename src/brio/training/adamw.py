"""AdamW over stacked parameters: every run has its own step count and may skip a step."""

from __future__ import annotations

import torch
from torch import Tensor


class StackedAdamW:
    """Decoupled weight decay (Loshchilov & Hutter 2019) for parameters with a leading runs axis.

    ``torch.optim.AdamW`` has one step count for all parameters; here each run has its own, since the runs of a stack
    have epochs of different lengths. A parameter without a gradient is not changed, not even by the decay.

    Shapes: params [R, ...].
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
        self.weight_decay = weight_decay
        self.betas, self.epsilon = betas, epsilon
        self.mean = {name: torch.zeros_like(p) for name, p in params.items()}
        self.square = {name: torch.zeros_like(p) for name, p in params.items()}
        first = next(iter(params.values()))
        self.steps = torch.zeros(len(first), dtype=torch.float64, device=first.device)
        self.rate = torch.full((), learning_rate, dtype=torch.float64, device=first.device)

    def set_rate(self, learning_rate: float) -> None:
        """Set the learning rate, in place, so that a recorded CUDA graph reads the new value."""
        self.rate.fill_(learning_rate)

    def forget(self) -> None:
        """Reset running averages and step counts, in place."""
        for tensor in (*self.mean.values(), *self.square.values(), self.steps):
            tensor.zero_()

    @torch.no_grad()
    def step(self, active: Tensor) -> None:
        """Update the active runs from the gradients in ``.grad``. ``active``: bool, shape [R]."""
        self.steps += active
        gradients = {name: p.grad for name, p in self.params.items() if p.grad is not None}
        if not gradients:
            return
        names, grads = list(gradients), list(gradients.values())
        params = [self.params[name] for name in names]
        mean, square = [self.mean[name] for name in names], [self.square[name] for name in names]
        beta1, beta2 = self.betas
        count = self.steps.clamp_min(1)
        # all factors of an inactive run are zero: nothing of it moves
        keep1, keep2, decay, size = (
            self._columns(params, torch.where(active, value, torch.zeros_like(value)))
            for value in (
                torch.full_like(count, 1 - beta1),
                torch.full_like(count, 1 - beta2),
                (self.rate * self.weight_decay).expand_as(count),
                self.rate / (1 - beta1**count),
            )
        )
        root = self._columns(params, (1 - beta2**count).rsqrt())
        torch._foreach_add_(mean, torch._foreach_mul(torch._foreach_sub(grads, mean), keep1))
        squared = torch._foreach_mul(grads, grads)
        torch._foreach_add_(square, torch._foreach_mul(torch._foreach_sub(squared, square), keep2))
        scale = torch._foreach_mul(torch._foreach_sqrt(square), root)
        torch._foreach_add_(scale, self.epsilon)
        change = torch._foreach_div(torch._foreach_mul(mean, size), scale)
        torch._foreach_add_(change, torch._foreach_mul(params, decay))
        torch._foreach_sub_(params, change)
        for p in params:
            p.grad = None

    @staticmethod
    def _columns(params: list[Tensor], value: Tensor) -> list[Tensor]:
        """One value per run, shaped to multiply each parameter."""
        value = value.to(params[0].dtype)
        return [value.view(-1, *(1,) * (p.ndim - 1)) for p in params]

    def select(self, params: dict[str, Tensor], keep: Tensor) -> None:
        """Continue with some of the runs."""
        self.params = params
        self.mean = {name: m[keep] for name, m in self.mean.items()}
        self.square = {name: s[keep] for name, s in self.square.items()}
        self.steps = self.steps[keep]

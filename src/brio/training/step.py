"""One optimisation step of all runs in a stack; on a GPU it is recorded once and replayed."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .adamw import StackedAdamW
from .contract import Stage
from .stack import Stack

__all__ = ["Step"]


class Step:
    """Loss, gradient and update of every active run under one stage.

    The models are so small that a GPU spends most of a step waiting for the next kernel to be launched. The first call
    runs as it stands, the second is recorded as a CUDA graph, and every further one replays it on new inputs.
    Everything a step reads besides its inputs (parameters, context) is changed in place and never moved;
    a new stage or a stack of other runs needs a new step.
    """

    def __init__(self, stack: Stack, optimiser: StackedAdamW, stage: Stage) -> None:
        self.stack, self.optimiser, self.stage = stack, optimiser, stage
        for name, p in stack.params.items():
            p.requires_grad_(not name.startswith(stage.frozen) if stage.frozen else True)
        self._warm = False
        self._graph: torch.cuda.CUDAGraph | None = None
        self._scans = self._active = torch.empty(0)

    def __call__(self, scans: np.ndarray, active: np.ndarray) -> None:
        """Take one step. ``scans``: [R, E, 2, n] positions in the cohort; ``active``: [R] bool."""
        inputs = self.stack.tensor(scans), self.stack.tensor(active)
        if inputs[0].device.type == "cpu" or not self._warm:
            self._take(*inputs)
            self._warm = True
            return
        if self._graph is None:
            self._scans, self._active = inputs
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._take(self._scans, self._active)
        else:
            self._scans.copy_(inputs[0])
            self._active.copy_(inputs[1])
        self._graph.replay()

    def _take(self, scans: Tensor, active: Tensor) -> None:
        losses = self.stack.losses(scans, self.stage)
        torch.where(active, losses, torch.zeros_like(losses)).sum().backward()
        self.optimiser.step(active)

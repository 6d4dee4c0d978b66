"""One optimisation step of all runs in a stack; on a GPU it is recorded once and replayed."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .adamw import StackedAdamW
from .contract import Stage
from .stack import Stack


class Step:
    """Loss, gradient and update of every active run under one stage.

    The models are so small that a GPU spends most of a step waiting for the next kernel to be launched. So the second
    call is recorded as a CUDA graph, and every later one replays it on new inputs. Everything else that a step reads
    (parameters, state) must be changed in place and never moved; a new stage or a stack of other runs needs a new step.
    """

    def __init__(self, stack: Stack, optimiser: StackedAdamW, stage: Stage) -> None:
        self.stack, self.optimiser, self.stage = stack, optimiser, stage
        for name, p in stack.params.items():
            p.requires_grad_(not name.startswith(stage.frozen) if stage.frozen else True)
        self._called = False
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: tuple[Tensor, ...] = ()

    def __call__(self, scans: np.ndarray, active: np.ndarray, key: np.ndarray, epoch: int) -> None:
        """Take one step.

        Shapes: scans [R, E, 2, n], active [R], key [R].
        """
        inputs = tuple(self.stack.to_tensor(a) for a in (scans, active, key, np.array(float(epoch))))
        if inputs[0].device.type == "cpu" or not self._called:
            self._take_step(*inputs)
            self._called = True
            return
        if self._graph is None:
            self._inputs = inputs
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._take_step(*self._inputs)
        else:
            for recorded, new in zip(self._inputs, inputs, strict=True):
                recorded.copy_(new)
        self._graph.replay()

    def _take_step(self, scans: Tensor, active: Tensor, key: Tensor, epoch: Tensor) -> None:
        updated = [*self.stack.buffers.values(), *self.stack.state.training.values()]  # what a loss may change in place
        before = [(t, t.clone(), t._version) for t in updated]
        losses = self.stack.compute_losses(scans, key, epoch, self.stage)
        torch.where(active, losses, torch.zeros_like(losses)).sum().backward()
        self.optimiser.step(active)
        for t, old, version in before:  # an inactive run keeps its own
            if t._version != version:
                t.copy_(torch.where(active.view(-1, *[1] * (t.dim() - 1)), t, old))

"""What the layers of a network are told about the training step they are part of.

A layer deep inside a network needs random numbers (dropout, edge sampling) that are the same whether its run trains
alone or in a stack, on any device. They are addressed like all others (:mod:`brio.draws`): by seed, epoch and step of
the run (the key), by the index of the draw within the step, and by position in the tensor. The first axis is the
graph; graphs that pad a stack come last, so they do not move the numbers of any other graph.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..draws import draw_uniform_tensor
from .random_numbers import uniform_from_keys


class StepContext:
    """One training step of one run. At inference networks are handed None instead.

    Parameters
    ----------
    key : Tensor, int64 scalar
        Address of the random numbers of the step.
    real : Tensor, shape [B]
        1 for graphs of the batch, 0 for those that pad the stack.
    site : Tensor of int64, shape [B]
        Source site of each graph, 0 to E - 1.
    update_statistics : bool
        Whether running statistics follow this pass; not in a look ahead inside a step.
    """

    def __init__(self, key: Tensor, real: Tensor, site: Tensor, update_statistics: bool = True) -> None:
        self.key, self.real, self.site, self.update_statistics = key, real, site, update_statistics
        self._n_draws = 0

    def draw_keys(self) -> Tensor:
        """Draw two keys for the next random numbers of the step, other ones at each call. Shape [2], int32."""
        self._n_draws += 1
        words = [draw_uniform_tensor(self.key, 2 * self._n_draws + i) * 2.0**32 - 2.0**31 for i in (0, 1)]
        return torch.stack(words).to(torch.int32)

    def draw_uniform(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """Draw uniform numbers in (0, 1), other ones at each call, in the precision and on the device of ``like``."""
        return uniform_from_keys(self.draw_keys(), shape, like)

    def draw_permutation(self) -> Tensor:
        """Draw a random order of the graphs of the batch; padding stays at the end. Shape [B], int64."""
        return torch.argsort(self.draw_uniform(self.real.shape, self.real) + 2.0 * (1.0 - self.real), stable=True)

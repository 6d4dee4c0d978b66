"""The network of a method that scores, samples or weighs the edges of a graph."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import Tensor, nn

from ...training import RunState, Scans, StepContext
from ..layers import build_profiles, select_strong_edges


class EdgeNetwork(nn.Module):
    """A network that reads connection profiles and the strong edges of scans."""

    def forward(self, scans: Scans, state: RunState, step: StepContext | None = None) -> Any:
        """Compute logits and representations of scans; in training also what the loss reads."""
        return self.read_graphs(build_profiles(scans, state), select_strong_edges(scans), step)

    @abstractmethod
    def read_graphs(self, X: Tensor, A: Tensor, step: StepContext | None) -> Any:
        """Compute what :meth:`forward` returns.

        Shapes: X [B, P, P], A [B, P, P].
        """

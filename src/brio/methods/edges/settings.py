"""Settings and memory of methods that score edges."""

from __future__ import annotations

from dataclasses import dataclass

from ...settings import ShareBelowOne, Width, choice, setting
from ...training import NeuralMethod
from ..layers import GraphSettings
from .scorer import KERNEL_WIDTH

COPIES = 7
"""About how many copies of the hidden states of edges a step keeps alive where kernels do not fuse the layers."""


@dataclass(frozen=True)
class EdgeSettings(GraphSettings):
    """Settings of methods that score edges from the states of their ends.

    Attributes
    ----------
    edge_width : int
        The MLP that scores edges has hidden layers of 4 and of 1 times this width. Published code takes ``width`` here:
        layers of 256 and 64 units cost 16,448 multiplications for each edge and step, those of 32 and 8 units 264.
        Kernels fuse the layers up to ``edge_width=16``. Above, the hidden states of all edges are stored: at 64 about
        3 GB more for each run of a stack on AAL116 (2,668 edges in both directions, 136 scans in a batch), 10 GB on
        CC200.
    edge_dropout : float
        Dropout inside that MLP.
    """

    dropout: ShareBelowOne = setting(0.3, choice(0.3, 0.5))
    edge_width: Width = 8
    edge_dropout: ShareBelowOne = 0.5


class EdgeMethod(NeuralMethod):
    """A method that scores edges by an MLP; memory grows with the width of the MLP where kernels do not fuse it."""

    settings: EdgeSettings

    def estimate_peak_matrices(self) -> float:
        s = self.settings
        stored = COPIES * s.edge_share * 5 * s.edge_width if 4 * s.edge_width > KERNEL_WIDTH else 0.0
        return super().estimate_peak_matrices() + stored

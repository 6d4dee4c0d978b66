"""Settings of methods that score edges."""

from __future__ import annotations

from dataclasses import dataclass

from ...settings import require, setting
from ...spaces import choice
from ..graphs import GraphSettings

__all__ = ["EdgeSettings"]


@dataclass(frozen=True)
class EdgeSettings(GraphSettings):
    """Settings of methods that score edges from the states of their ends.

    Attributes
    ----------
    edge_width : int
        The MLP that scores edges has hidden layers of 4 and of 1 times this width. Published code takes ``width`` (64)
        here; 8 keeps the memory of a stack of runs small, since every edge of every scan has its own hidden states.
    edge_dropout : float
        Dropout inside that MLP.
    """

    dropout: float = setting(0.3, choice(0.3, 0.5))
    edge_width: int = 8
    edge_dropout: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.edge_width >= 1, "edge_width", self.edge_width, "at least 1")
        require(0 <= self.edge_dropout < 1, "edge_dropout", self.edge_dropout, "0 or more and below 1")

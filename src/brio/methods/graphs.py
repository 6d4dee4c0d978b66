"""From connectomes to the graphs that GNNs read: one convention for every method.

Node features are the rows of the filled FC matrix (an ROI's connection profile); edges are the strongest fifth of the
absolute FC of each scan, without sign. ROIs without signal have no edges and the source mean as their profile.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..connectome import fill_dead
from ..settings import require, setting
from ..spaces import choice
from ..training import RunState, Scans
from .settings import BaselineSettings

__all__ = ["GraphSettings", "normalised", "profiles", "strong_edges"]


@dataclass(frozen=True)
class GraphSettings(BaselineSettings):
    """Settings that graph networks share.

    Attributes
    ----------
    width, layers : int
        Hidden width and number of message-passing layers.
    dropout : float
    edge_share : float
        Share of the edges of a scan, the strongest in absolute value, that make its graph.
    """

    learning_rate: float = setting(1e-3, choice(3e-4, 1e-3, 3e-3))
    width: int = 64
    layers: int = 2
    dropout: float = setting(0.5, choice(0.2, 0.5))
    edge_share: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("width", "layers"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        require(0 <= self.dropout < 1, "dropout", self.dropout, "0 or more and below 1")
        require(0 < self.edge_share <= 1, "edge_share", self.edge_share, "above 0 and at most 1")


def profiles(scans: Scans, state: RunState) -> Tensor:
    """Node features: rows of the FC matrix, ROIs without signal filled in. Shape [B, P, P]."""
    return fill_dead(scans.A, scans.alive, state.learned["mean"])


def strong_edges(scans: Scans) -> Tensor:
    """1 for the strongest edges of each scan, 0 elsewhere and on the diagonal; symmetric. Shape [B, P, P]."""
    size = scans.A.abs()
    return ((size >= scans.cut[:, None, None]) & (size > 0)).to(scans.A.dtype)


def normalised(adjacency: Tensor) -> Tensor:
    """D^-1/2 (A + I) D^-1/2 for non-negative weights. Shape [..., P, P]."""
    looped = adjacency + torch.eye(adjacency.shape[-1], device=adjacency.device, dtype=adjacency.dtype)
    root = looped.sum(-1).rsqrt()
    return root.unsqueeze(-1) * looped * root.unsqueeze(-2)

"""From connectomes to the graphs that GNNs read: one convention for every method.

Node features are the rows of the filled FC matrix (an ROI's connection profile). Edges are the strongest fifth of the
absolute FC of each scan, without sign. ROIs without signal have no edges, and the source mean as their profile.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..connectome import fill_dead
from ..domains import Layers, LearningRate, PositiveShare, ShareBelowOne, Width
from ..settings import setting
from ..spaces import choice
from ..training import NeuralSettings, RunState, Scans


@dataclass(frozen=True)
class GraphSettings(NeuralSettings):
    """Settings that graph networks share."""

    learning_rate: LearningRate = setting(1e-3, choice(3e-4, 1e-3, 3e-3))
    width: Width = 64  # hidden width
    layers: Layers = 2  # message-passing layers
    dropout: ShareBelowOne = setting(0.5, choice(0.2, 0.5))
    edge_share: PositiveShare = 0.2


def build_profiles(scans: Scans, state: RunState) -> Tensor:
    """Build the node features of a graph: rows of the FC matrix, with edges of ROIs without signal filled in.

    Parameters
    ----------
    scans : Scans
        B scans.
    state : RunState
        With the mean connectome of the source sites, ``state.learned["mean"]``, shape [P, P].

    Returns
    -------
    Tensor, shape [B, P, P]
    """
    return fill_dead(scans.A, scans.alive, state.learned["mean"])


def select_strong_edges(scans: Scans) -> Tensor:
    """Select the strongest edges of each scan, as many as the setting ``edge_share`` says.

    Parameters
    ----------
    scans : Scans
        B scans.

    Returns
    -------
    Tensor, shape [B, P, P]
        1 for a selected edge, else 0; symmetric, with a diagonal of zeros.
    """
    strength = scans.A.abs()
    return ((strength >= scans.cut[:, None, None]) & (strength > 0)).to(scans.A.dtype)


def normalise_adjacency(A: Tensor) -> Tensor:
    """Compute D^-1/2 (A + I) D^-1/2, with D the degrees of A + I (Kipf & Welling 2017).

    Parameters
    ----------
    A : Tensor, shape [..., P, P]
        Non-negative weights of edges.

    Returns
    -------
    Tensor, shape [..., P, P]
    """
    looped = A + torch.eye(A.shape[-1], device=A.device, dtype=A.dtype)
    root = looped.sum(-1).rsqrt()
    return root.unsqueeze(-1) * looped * root.unsqueeze(-2)

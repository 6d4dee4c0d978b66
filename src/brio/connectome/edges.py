"""Edges of connectomes: the entries above the diagonal, row by row."""

from __future__ import annotations

import torch
from torch import Tensor


def read_edges(A: Tensor) -> Tensor:
    """Read the edges of symmetric matrices.

    Shapes: A [..., P, P]; returns [..., P (P - 1) / 2].
    """
    n_rois = A.shape[-1]
    u, v = torch.triu_indices(n_rois, n_rois, 1, device=A.device)
    return A.flatten(-2).index_select(-1, u * n_rois + v)


def find_live_edges(alive: Tensor) -> Tensor:
    """Find the edges whose two ends have signal.

    Shapes: alive [..., P]; returns [..., P (P - 1) / 2].
    """
    u, v = torch.triu_indices(alive.shape[-1], alive.shape[-1], 1, device=alive.device)
    live = alive > 0
    return live[..., u] & live[..., v]

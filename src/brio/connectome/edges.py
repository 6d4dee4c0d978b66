"""Edges of connectomes: the entries above the diagonal, row by row."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["find_live_edges", "read_edges"]


def read_edges(A: Tensor) -> Tensor:
    """Read the edges of symmetric matrices.

    Parameters
    ----------
    A : Tensor, shape [..., P, P]

    Returns
    -------
    Tensor, shape [..., P (P - 1) / 2]

    Examples
    --------
    >>> read_edges(torch.arange(9.0).view(3, 3))
    tensor([1., 2., 5.])
    """
    n_rois = A.shape[-1]
    u, v = torch.triu_indices(n_rois, n_rois, 1, device=A.device)
    return A.flatten(-2).index_select(-1, u * n_rois + v)


def find_live_edges(alive: Tensor) -> Tensor:
    """Find the edges whose two ends have signal.

    Parameters
    ----------
    alive : Tensor, shape [..., P]
        Above 0 where an ROI has signal.

    Returns
    -------
    Tensor of bool, shape [..., P (P - 1) / 2]

    Examples
    --------
    >>> find_live_edges(torch.tensor([1, 0, 1]))
    tensor([False,  True, False])
    """
    u, v = torch.triu_indices(alive.shape[-1], alive.shape[-1], 1, device=alive.device)
    live = alive > 0
    return live[..., u] & live[..., v]

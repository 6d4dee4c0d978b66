"""How an ROI without signal enters the connectome: stated, and learned from source sites alone."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["fill_dead"]


def fill_dead(A: Tensor, alive: Tensor, mean: Tensor) -> Tensor:
    """Give the edges of ROIs without signal the value of the source mean connectome.

    Zeros would write the site into the graph, since which ROIs lack signal depends on the scanner's
    field of view. With ``mean`` all zero this is plain zero filling.

    Parameters
    ----------
    A : Tensor, shape [..., P, P]
        FC with zero rows for ROIs without signal.
    alive : Tensor, shape [..., P]
        Above 0 where the ROI has signal, else 0.
    mean : Tensor, shape [P, P]
        Source mean connectome of the fold, zero diagonal.
    """
    live = alive > 0
    return torch.where(live.unsqueeze(-1) & live.unsqueeze(-2), A, mean)

"""The log-connectome: correlations seen on the scale on which positive definite matrices add up."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["log_connectome"]


def log_connectome(A: Tensor, shrinkage: float) -> Tensor:
    """log((1 - s) R + s I) of the correlation matrices R behind Fisher z graphs, in the precision of the graphs.

    A fixed share s for every scan: one that is estimated from the number of frames would write the scanner's protocol
    into the matrix. ROIs without signal keep zero rows. Each scan's logarithm depends on that scan alone (the
    log-Euclidean view of Arsigny et al. 2006), so there is no reference to learn.

    Parameters
    ----------
    A : Tensor, shape [..., P, P]
        Fisher z, zero diagonal.
    shrinkage : float
        s, above 0 and below 1.

    Returns
    -------
    Tensor, shape [..., P, P]

    Examples
    --------
    >>> log_connectome(torch.zeros(2, 2), 0.5)
    tensor([[0., 0.],
            [0., 0.]])
    """
    R = A.double().tanh() + torch.eye(A.shape[-1], dtype=torch.float64, device=A.device)
    size, axes = torch.linalg.eigh(R)
    size = torch.log1p((1.0 - shrinkage) * (size.clamp_min(0.0) - 1.0))
    return ((axes * size.unsqueeze(-2)) @ axes.mT).to(A.dtype)

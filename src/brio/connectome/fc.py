"""The FC estimator Psi: Pearson correlation and Fisher z, batched, for scans and for their resamples."""

from __future__ import annotations

import torch
from torch import Tensor

from ..device import full_precision

__all__ = ["LARGEST_CORRELATION", "fisher_z", "psi", "standardise"]

LARGEST_CORRELATION = 1.0 - 1e-6
"""Correlations are held inside this bound so that Fisher z stays finite (at most 7.25)."""

_FLAT = 1e-6


def standardise(x: Tensor, mask: Tensor) -> Tensor:
    """z-score each ROI over the frames of its scan; flat ROIs and masked frames become zero.

    Parameters
    ----------
    x : Tensor, shape [..., T, P]
    mask : Tensor, shape [..., T]
        1 for frames of the scan, 0 for padding.
    """
    weight = mask.unsqueeze(-1).to(x.dtype)
    n = weight.sum(-2, keepdim=True).clamp_min(1)
    mean = (x * weight).sum(-2, keepdim=True) / n
    centred = (x - mean) * weight
    scale = centred.square().sum(-2, keepdim=True).div(n).sqrt()
    return torch.where(scale > 0, centred / scale.clamp_min(torch.finfo(x.dtype).tiny), torch.zeros_like(x))


def fisher_z(r: Tensor) -> Tensor:
    """Fisher z of correlations, diagonal set to zero. Shape [..., P, P]."""
    z = r.clamp(-LARGEST_CORRELATION, LARGEST_CORRELATION).atanh()
    return z - torch.diag_embed(z.diagonal(dim1=-2, dim2=-1))


def psi(x: Tensor, n: Tensor) -> Tensor:
    """The FC estimator Psi of zero-padded scans: Pearson, Fisher z, zero diagonal.

    ROIs without variance have no correlation and get zero rows here; how they enter a model is
    decided inside a fold (:mod:`brio.connectome.dead`).

    Parameters
    ----------
    x : Tensor, shape [..., T, P]
        Frames, about standardised, zero beyond the end of a scan.
    n : Tensor, shape [...]
        Number of frames of each scan.

    Returns
    -------
    Tensor, shape [..., P, P]
    """
    n = n[..., None, None].to(x.dtype)
    mean = x.sum(-2, keepdim=True) / n
    with full_precision():
        covariance = x.transpose(-1, -2) @ x / n - mean.transpose(-1, -2) * mean
    variance = covariance.diagonal(dim1=-2, dim2=-1).clamp_min(0)
    inverse = torch.where(variance > _FLAT, variance.clamp_min(_FLAT).rsqrt(), torch.zeros_like(variance))
    return fisher_z(covariance * inverse.unsqueeze(-1) * inverse.unsqueeze(-2))

"""The FC estimator Psi: Pearson correlation and Fisher z, batched over scans and resamples; ROIs without signal."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..device import full_precision

LARGEST_CORRELATION = 1.0 - 1e-6
"""Correlations are clipped to this magnitude so that Fisher z stays finite (at most 7.25)."""

FLAT = 1e-6
"""Variance of standardised frames at or below which an ROI has no signal."""


def standardise(x: Tensor, mask: Tensor) -> Tensor:
    """Compute z-scores of each ROI over the frames of its scan; flat ROIs and masked frames become zero.

    Shapes: x [..., T, P], mask [..., T]; returns [..., T, P].
    """
    weight = mask.unsqueeze(-1).to(x.dtype)
    n = weight.sum(-2, keepdim=True).clamp_min(1)
    mean = (x * weight).sum(-2, keepdim=True) / n
    centred = (x - mean) * weight
    scale = centred.square().sum(-2, keepdim=True).div(n).sqrt()
    return torch.where(scale > 0, centred / scale.clamp_min(torch.finfo(x.dtype).tiny), torch.zeros_like(x))


def fisher_z(r: Tensor) -> Tensor:
    """Compute Fisher z of correlations, with a zero diagonal.

    Shapes: r [..., P, P]; returns [..., P, P].
    """
    z = r.clamp(-LARGEST_CORRELATION, LARGEST_CORRELATION).atanh()
    return z - torch.diag_embed(z.diagonal(dim1=-2, dim2=-1))


def invert_fisher_z(A: Tensor) -> Tensor:
    """Compute the correlations whose Fisher z are given, in float64 and with a unit diagonal.

    Shapes: A [..., P, P]; returns [..., P, P].
    """
    # numpy's tanh takes half the time of torch's where torch has no vector instructions for it
    r = A.double().tanh() if A.is_cuda else torch.from_numpy(np.tanh(A.detach().double().numpy()))
    r.diagonal(dim1=-2, dim2=-1).fill_(1.0)
    return r


def psi(x: Tensor, n: Tensor) -> Tensor:
    """Estimate the FC of zero-padded scans by Psi: Pearson correlation, Fisher z, zero diagonal.

    ROIs without variance have no correlation and get zero rows. How they enter a model is decided inside a fold, see
    :func:`fill_dead`.

    Shapes: x [..., T, P], n [...]; returns [..., P, P].
    """
    n = n[..., None, None].to(x.dtype)
    mean = x.sum(-2, keepdim=True) / n
    with full_precision():
        covariance = x.transpose(-1, -2) @ x / n - mean.transpose(-1, -2) * mean
    variance = covariance.diagonal(dim1=-2, dim2=-1).clamp_min(0)
    inverse = torch.where(variance > FLAT, variance.clamp_min(FLAT).rsqrt(), torch.zeros_like(variance))
    return fisher_z(covariance * inverse.unsqueeze(-1) * inverse.unsqueeze(-2))


def fill_dead(A: Tensor, alive: Tensor, mean: Tensor) -> Tensor:
    """Replace the edges of ROIs without signal by those of the source mean connectome.

    Zeros would reveal the site, since the scanner's field of view decides which ROIs lack signal. With a ``mean`` of
    zeros this is plain zero filling.

    Shapes: A [..., P, P], alive [..., P], mean [P, P]; returns [..., P, P].
    """
    live = alive > 0
    return torch.where(live.unsqueeze(-1) & live.unsqueeze(-2), A, mean)

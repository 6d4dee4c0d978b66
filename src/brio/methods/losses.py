"""Losses that several methods share, each a pure function of one batch of one run."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..training import Batch

__all__ = [
    "bce",
    "class_loss",
    "classification_loss",
    "reverse_gradient",
    "site_cross_entropy",
    "site_losses",
]


def bce(logit: Tensor, label: Tensor) -> Tensor:
    """Binary cross-entropy of each scan; labels may lie between 0 and 1. Shape [B]."""
    return F.binary_cross_entropy_with_logits(logit, label, reduction="none")


def classification_loss(logit: Tensor, batch: Batch) -> Tensor:
    """Binary cross-entropy with equal weights over source sites and classes, Eq. (26).

    Parameters
    ----------
    logit : Tensor, shape [B]
    """
    cells = bce(logit, batch.label).unflatten(0, batch.cells).mean(-1)
    return (batch.cell_weight * cells).sum()


def class_loss(losses: Tensor, batch: Batch) -> Tensor:
    """Mean of the losses of single scans with equal weights over source sites and classes. Shape [B] -> scalar."""
    return (batch.weight * losses).sum()


def site_losses(losses: Tensor, batch: Batch) -> Tensor:
    """Mean loss at each source site, classes weighted equally. Shape [B] -> [E]."""
    return losses.unflatten(0, batch.cells).mean((1, 2))


def site_cross_entropy(site_logit: Tensor, batch: Batch) -> Tensor:
    """Cross-entropy of naming the source site of each scan; sites that pad the stack are no candidates.

    Parameters
    ----------
    site_logit : Tensor, shape [B, E]
    """
    candidate = batch.site_weight > 0
    masked = torch.where(candidate, site_logit, torch.full_like(site_logit, -1e9))
    own = torch.arange(len(candidate), device=site_logit.device) == batch.site[:, None]
    return -(batch.weight * torch.where(own, F.log_softmax(masked, -1), torch.zeros_like(masked)).sum(-1)).sum()


def reverse_gradient(x: Tensor, strength: Tensor | float) -> Tensor:
    """Gradient reversal (Ganin et al. 2016): x forward, gradient times ``-strength`` backward."""
    return x * -strength + (x * (1.0 + strength)).detach()

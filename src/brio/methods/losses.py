"""Losses that several methods share. Each is a pure function of one batch of one run.

E is the number of source sites of the batch, B the number of its scans.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..training import Batch


def bce(logit: Tensor, label: Tensor) -> Tensor:
    """Compute the binary cross-entropy of each scan.

    Parameters
    ----------
    logit : Tensor, shape [B]
    label : Tensor, shape [B]
        Between 0 and 1.

    Returns
    -------
    Tensor, shape [B]
    """
    return F.binary_cross_entropy_with_logits(logit, label, reduction="none")


def classification_loss(logit: Tensor, batch: Batch) -> Tensor:
    """Compute the binary cross-entropy with equal weights of source sites and classes, Eq. (26).

    Parameters
    ----------
    logit : Tensor, shape [B]
    batch : Batch

    Returns
    -------
    Tensor, scalar
    """
    cells = bce(logit, batch.label).unflatten(0, batch.cells).mean(-1)
    return (batch.cell_weight * cells).sum()


def average_losses(losses: Tensor, batch: Batch) -> Tensor:
    """Average losses of single scans with equal weights of source sites and classes.

    Parameters
    ----------
    losses : Tensor, shape [B]
    batch : Batch

    Returns
    -------
    Tensor, scalar
    """
    return (batch.weight * losses).sum()


def average_by_site(losses: Tensor, batch: Batch) -> Tensor:
    """Average losses of single scans at each source site, with equal weights of both classes.

    Parameters
    ----------
    losses : Tensor, shape [B]
    batch : Batch

    Returns
    -------
    Tensor, shape [E]
        Sites that pad the stack included.
    """
    return losses.unflatten(0, batch.cells).mean((1, 2))


def site_cross_entropy(site_logit: Tensor, batch: Batch) -> Tensor:
    """Compute the cross-entropy of a classifier of the source site.

    Sites that pad the stack are not among the classes.

    Shapes: site_logit [B, E].
    """
    is_real = batch.site_weight > 0
    masked = torch.where(is_real, site_logit, torch.full_like(site_logit, -1e9))
    is_own = torch.arange(len(is_real), device=site_logit.device) == batch.site[:, None]
    return -(batch.weight * torch.where(is_own, F.log_softmax(masked, -1), torch.zeros_like(masked)).sum(-1)).sum()


def reverse_gradient(x: Tensor, strength: Tensor | float) -> Tensor:
    """Return x, and multiply its gradient by ``-strength`` on the way back (Ganin et al. 2016)."""
    return x * -strength + (x * (1.0 + strength)).detach()

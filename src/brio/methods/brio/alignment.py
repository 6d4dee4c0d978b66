"""Qualification-guided cross-site alignment, Eqs. (22)-(25)."""

from __future__ import annotations

import torch
from torch import Tensor

from ...transport import sinkhorn_divergence

__all__ = ["alignment_loss", "cosines", "weighted_cost"]


def cosines(factors: Tensor) -> Tensor:
    """Inner products of unit factors between all scans of a class, factor by factor.

    Parameters
    ----------
    factors : Tensor, shape [E, 2, n, J, d_t]

    Returns
    -------
    Tensor, shape [E, E, 2, n, n, J]
    """
    return torch.einsum("ecnjd,fcmjd->efcnmj", factors, factors)


def weighted_cost(cosine: Tensor, alpha_bar: Tensor) -> Tensor:
    """Squared distance of the weighted representations, Eq. (23): sum_j alpha_bar_j (1 - r_j . r'_j).

    The representations of Eq. (22) need not be formed: unit factors make their distance a weighted
    sum of cosine dissimilarities, in [0, 2].

    Parameters
    ----------
    cosine : Tensor, shape [pairs, 2, n, n, J]
    alpha_bar : Tensor, shape [pairs, 2, J]
    """
    return ((1.0 - cosine) * alpha_bar[:, :, None, None, :]).sum(-1)


def alignment_loss(
    factors: Tensor, alpha_bar: Tensor, g: Tensor, pair_weight: Tensor, epsilon: float, iterations: int
) -> Tensor:
    """Alignment loss L_env^Q of one run, Eq. (25).

    Parameters
    ----------
    factors : Tensor, shape [E, 2, n, J, d_t]
        Full-scan factors of a batch.
    alpha_bar : Tensor, shape [pairs, 2, J]
    g : Tensor, shape [pairs, 2]
    pair_weight : Tensor, shape [pairs]
        2 / (E (E - 1)) for each pair of source sites.
    epsilon : float
        Entropic regularisation.
    iterations : int
        Sinkhorn iterations.

    Returns
    -------
    Tensor, scalar
    """
    cosine = cosines(factors)
    first, second = torch.triu_indices(len(factors), len(factors), 1, device=factors.device)
    divergence = sinkhorn_divergence(
        weighted_cost(cosine[first, second], alpha_bar),
        weighted_cost(cosine[first, first], alpha_bar),
        weighted_cost(cosine[second, second], alpha_bar),
        epsilon,
        iterations,
    )  # [pairs, 2]
    return (pair_weight * (g * divergence).mean(-1)).sum()

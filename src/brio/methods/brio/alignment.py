"""Qualification-guided cross-site alignment, Eqs. (22)-(25), of clouds of factors that grow over training steps."""

from __future__ import annotations

import torch
from torch import Tensor

from ...training import Tensors
from ...transport import entropic_cost


def cosines(x: Tensor, y: Tensor) -> Tensor:
    """Inner products of unit factors between scans of a class, factor by factor.

    Shapes: x, y [..., n, J, d_t] and [..., m, J, d_t]; returns [..., n, m, J].
    """
    return torch.einsum("...njd,...mjd->...nmj", x, y)


def weighted_cost(cosine: Tensor, alpha_bar: Tensor) -> Tensor:
    """Squared distance of the weighted representations, Eq. (23): sum_j alpha_bar_j (1 - r_j . r'_j).

    The representations of Eq. (22) need not be formed: unit factors make their distance a weighted
    sum of cosine dissimilarities, in [0, 2].

    Shapes: cosine [..., n, m, J], alpha_bar [..., J].
    """
    return ((1.0 - cosine) * alpha_bar[..., None, None, :]).sum(-1)


def alignment_loss(
    clouds: Tensor,
    alpha_bar: Tensor,
    g: Tensor,
    pair_weight: Tensor,
    epsilon: float,
    iterations: int,
    log_weight: Tensor | None = None,
) -> Tensor:
    """Alignment loss L_env^Q of one run, Eq. (25).

    A pair of sites appears in both orders, each with half of its share: the divergences S(x, y) of Eq. (24) then add up
    to OT(x, y) - OT(x, x) over ordered pairs, and no cloud has to be gathered by pairs.

    Shapes: clouds [E, 2, n, J, d_t], alpha_bar [pairs, 2, J], g [pairs, 2], pair_weight [pairs], log_weight [E, 2, n].
    """
    E = len(clouds)
    if E < 2:
        return clouds.new_zeros(())
    pair = _number_pairs(E, clouds.device)
    alpha_bar, share = alpha_bar[pair], 0.25 * (pair_weight[:, None] * g)[pair]  # two orders, two classes
    share = share * (1.0 - torch.eye(E, device=g.device, dtype=g.dtype))[:, :, None]
    between = weighted_cost(cosines(clouds[:, None], clouds[None]), alpha_bar)
    within = weighted_cost(cosines(clouds, clouds)[:, None], alpha_bar)  # of the first site, by the weights of the pair
    eta = clouds.new_full(clouds.shape[:3], 1.0 / clouds.shape[2]).log() if log_weight is None else log_weight
    eta = eta[:, None].expand(E, *eta.shape)
    zeta = torch.stack([eta.transpose(0, 1), eta])
    costs, eta = torch.stack([between, within]), torch.stack([eta, eta])
    cost = entropic_cost(costs, epsilon, iterations, eta, zeta, largest_cost=2.0)
    return (share * (cost[0] - cost[1])).sum()


def _number_pairs(E: int, device: torch.device) -> Tensor:
    """Number of each pair of sites, as ``torch.triu_indices`` lists them; anything on the diagonal. Shape [E, E]."""
    site = torch.arange(E, device=device)
    low, high = torch.minimum(site[:, None], site), torch.maximum(site[:, None], site)
    return (low * (2 * E - low - 1) // 2 + high - low - 1).clamp_min(0)


def extend_clouds(factors: Tensor, past: Tensors) -> tuple[Tensor, Tensor]:
    """Add the latest factors of each site and class to those of a batch, and remember the batch.

    Shapes: factors [E, 2, n, J, d_t]; returns clouds [E, 2, n + m, J, d_t], log_weight [E, 2, n + m].
    """
    clouds = torch.cat([factors, past["past_factors"]], 2)
    n, size = factors.shape[2], clouds.shape[2]
    seen = past["past_scans"] + n
    real = torch.minimum(seen.clamp_max(size), past["cell_size"]).clamp_min(1.0)[..., None]  # [E, 2, 1]
    here = torch.arange(size, device=factors.device) < real
    log_weight = torch.where(here, -real.log(), torch.full_like(real, -torch.inf))
    past["past_factors"].copy_(clouds[:, :, : size - n].detach())
    past["past_scans"].copy_(seen)
    return clouds, log_weight

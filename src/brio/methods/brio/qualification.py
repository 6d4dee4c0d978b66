"""Task-calibrated re-estimation qualification, Eqs. (11)-(19): every quantity for one run.

Shapes: E source sites, two classes, J factors, N scans. ``membership`` [E, 2, N] holds 1 / N_ec for the scans of
source site e and class c and 0 elsewhere, so that averages over cells are matrix products; ``site_weight`` [E]
holds 1 / E for each source site (0 for padding of a stack).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .settings import BrioSettings, Variant

__all__ = [
    "Qualification",
    "contribution_statistics",
    "pair_support",
    "qualification_profile",
    "qualify",
    "reestimation_support",
    "reestimation_variation",
    "reference_scale",
    "relevance",
    "source_balanced",
    "variant_profile",
]


class Qualification(NamedTuple):
    """What a refresh computes."""

    pi_task: Tensor  # [J]
    q_re: Tensor  # [E, 2, J]
    alpha_bar: Tensor  # [pairs, 2, J]
    g: Tensor  # [pairs, 2]; all zero when no factor is relevant (C_Q is empty)


def contribution_statistics(a: Tensor, membership: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean mu and variance V_sub of the contributions of each cell, and the class contrast Delta_e, Eq. (11).

    Parameters
    ----------
    a : Tensor, shape [N, J]
        Full-scan contributions.
    membership : Tensor, shape [E, 2, N]

    Returns
    -------
    mu, V_sub : Tensor, shape [E, 2, J]
    Delta : Tensor, shape [E, J]
    """
    mu = membership @ a
    deviation = (a - mu.unsqueeze(-2)).square()  # [E, 2, N, J]
    V_sub = (membership.unsqueeze(-1) * deviation).sum(-2)
    return mu, V_sub, mu[:, 1] - mu[:, 0]


def source_balanced(V_sub: Tensor, Delta: Tensor, site_weight: Tensor) -> tuple[Tensor, Tensor]:
    """Averages with equal weights over sites, Eq. (12); opposing contrasts cancel.

    Parameters
    ----------
    V_sub : Tensor, shape [E, 2, J]
    Delta : Tensor, shape [E, J]
    site_weight : Tensor, shape [E]

    Returns
    -------
    V_pool : Tensor, shape [2, J]
    Delta_j : Tensor, shape [J]
    """
    return torch.einsum("e,ecj->cj", site_weight, V_sub), site_weight @ Delta


def relevance(w: Tensor, Delta: Tensor, V_pool: Tensor, eps_w: float, eps_s: float) -> Tensor:
    """Unnormalised predictive relevance R_task, Eq. (13).

    Parameters
    ----------
    w : Tensor, shape [J, d_t]
        Head weights of each factor.
    Delta : Tensor, shape [J]
    V_pool : Tensor, shape [2, J]
    eps_w, eps_s : float
        Stabilisers.

    Returns
    -------
    Tensor, shape [J]
    """
    norm = w.square().sum(-1)
    beta = norm / (norm.sum() + eps_w)
    return beta * Delta.square() / (V_pool.sum(0) + eps_s)


def reestimation_variation(squared_change: Tensor, membership: Tensor) -> Tensor:
    """Mean squared change D_re of the contributions under re-estimation, Eq. (14).

    Parameters
    ----------
    squared_change : Tensor, shape [N, J]
        Mean over the K re-estimates of (a^(k) - a^(0))^2.
    membership : Tensor, shape [E, 2, N]

    Returns
    -------
    Tensor, shape [E, 2, J]
    """
    return membership @ squared_change


def reference_scale(V_sub: Tensor, Delta: Tensor) -> Tensor:
    """Local reference scale T = V_sub + M_task with M_task = Delta_e^2 / 4, Eq. (15). Shape [E, 2, J]."""
    return V_sub + Delta.square().unsqueeze(1) / 4


def reestimation_support(T: Tensor, D_re: Tensor, eps_q: float) -> Tensor:
    """Task-calibrated re-estimation support q_re, Eq. (16), in (0, 1].

    Near 1 where contributions barely move under re-estimation compared with the spread and
    separation they have at that site; never 0.

    Parameters
    ----------
    T, D_re : Tensor, shape [E, 2, J]
        Local reference scale, Eq. (15), and mean squared change, Eq. (14).
    eps_q : float
        Stabiliser.
    """
    return (T + eps_q) / (T + D_re + eps_q)


def pair_support(q_re: Tensor) -> Tensor:
    """Geometric mean of the supports of both sites of a pair, Eq. (18). [E, 2, J] -> [pairs, 2, J]."""
    first, second = torch.triu_indices(len(q_re), len(q_re), 1, device=q_re.device)
    return (q_re[first] * q_re[second]).sqrt()


def qualification_profile(pi: Tensor, q_pair: Tensor) -> tuple[Tensor, Tensor]:
    """Strength g and weights alpha_bar from alpha = pi q_pair, Eqs. (18) and (19).

    Parameters
    ----------
    pi : Tensor, shape [J]
    q_pair : Tensor, shape [pairs, 2, J]

    Returns
    -------
    g : Tensor, shape [pairs, 2]
    alpha_bar : Tensor, shape [pairs, 2, J]
    """
    alpha = pi * q_pair
    g = alpha.sum(-1)
    return g, alpha / g.unsqueeze(-1).clamp_min(torch.finfo(g.dtype).tiny)


def variant_profile(variant: Variant, pi: Tensor, q_pair: Tensor) -> tuple[Tensor, Tensor]:
    """Strength and weights of the full method or of an ablation.

    ============ ================================== =============
    variant      weights alpha_bar                  strength g
    ============ ================================== =============
    full         pi q_pair / g                      sum pi q_pair
    w/o RS       pi                                 1
    w/o TR       q_pair / sum q_pair                mean of q_pair
    w/o SM       pi q_pair / g                      1
    w/o SF       pi                                 sum pi q_pair
    w/o QG       1 / J                              1
    ============ ================================== =============

    Parameters
    ----------
    variant : str
    pi : Tensor, shape [J]
    q_pair : Tensor, shape [pairs, 2, J]

    Returns
    -------
    g : Tensor, shape [pairs, 2]
    alpha_bar : Tensor, shape [pairs, 2, J]
    """
    uniform = torch.full_like(pi, 1.0 / pi.shape[-1])
    g, alpha_bar = qualification_profile(uniform if variant in ("w/o TR", "w/o QG") else pi, q_pair)
    if variant in ("w/o RS", "w/o SF"):
        alpha_bar = pi.expand_as(alpha_bar)
    if variant == "w/o QG":
        alpha_bar = uniform.expand_as(alpha_bar)
    if variant in ("w/o RS", "w/o SM", "w/o QG"):
        g = torch.ones_like(g)
    return g, alpha_bar


def qualify(
    a: Tensor, squared_change: Tensor, w: Tensor, membership: Tensor, site_weight: Tensor, s: BrioSettings
) -> Qualification:
    """Relevance, support and pairwise qualification of one run, Eqs. (11)-(19).

    Where no factor has any relevance the cache C_Q stays empty, as the paper's algorithm says: g is zero
    and the alignment loss with it (except in variants that do not use relevance).

    Parameters
    ----------
    a : Tensor, shape [N, J]
        Full-scan contributions.
    squared_change : Tensor, shape [N, J]
        Mean over the re-estimates of their squared change.
    w : Tensor, shape [J, d_t]
        Head weights.
    membership : Tensor, shape [E, 2, N]
    site_weight : Tensor, shape [E]
    s : BrioSettings
        Its stabilisers and its variant are read.
    """
    _, V_sub, Delta = contribution_statistics(a, membership)
    V_pool, contrast = source_balanced(V_sub, Delta, site_weight)
    R_task = relevance(w, contrast, V_pool, s.eps_w, s.eps_s)
    total = R_task.sum()
    relevant = total > 0
    pi_task = torch.where(relevant, R_task / torch.where(relevant, total, torch.ones_like(total)), 1.0 / len(R_task))
    D_re = reestimation_variation(squared_change, membership)
    q_re = reestimation_support(reference_scale(V_sub, Delta), D_re, s.eps_q)
    g, alpha_bar = variant_profile(s.variant, pi_task, pair_support(q_re))
    if s.variant not in ("w/o TR", "w/o QG"):
        g = torch.where(relevant, g, torch.zeros_like(g))
    return Qualification(pi_task, q_re, alpha_bar, g)

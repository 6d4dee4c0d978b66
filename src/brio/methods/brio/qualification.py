"""Balanced assignment of ROIs to factors, Eq. (7), qualification, Eqs. (11)-(19), and the alignment that uses it."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...training import Tensors
from ...transport import entropic_cost
from .settings import BrioSettings, Variant


def balanced(similarity: Tensor, iterations: int) -> Tensor:
    """Compute the assignment Pi with row sums 1/J and column sums 1/P by log-domain scaling, Eq. (7).

    The last update is that of the columns, so the column sums are exact.

    Shapes: similarity [J, P].
    """
    J, P = similarity.shape[-2:]
    log_pi = similarity
    for _ in range(iterations):
        log_pi = torch.log_softmax(log_pi, dim=-1) - math.log(J)
        log_pi = torch.log_softmax(log_pi, dim=-2) - math.log(P)
    return log_pi.exp()


class Assignment(nn.Module):
    """Learnable queries Q and keys of ROI embeddings; scaled dot products, balanced."""

    def __init__(self, J: int, d_e: int, d_qk: int, temperature: float, iterations: int) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(J, d_qk))  # Q
        self.keys = nn.Linear(d_e, d_qk, bias=False)  # omega
        self.scale = 1.0 / (math.sqrt(d_qk) * temperature)
        self.iterations = iterations

    def forward(self, roi: Tensor) -> Tensor:
        """Pi = A_omega(Q, E^ROI). Shape [P, d_e] -> [J, P]."""
        return balanced(self.scale * self.queries @ self.keys(roi).transpose(-1, -2), self.iterations)


class Qualification(NamedTuple):
    """The results of a refresh. Shapes: pi_task [J], q_re [E, 2, J], alpha_bar [pairs, 2, J], g [pairs, 2]."""

    pi_task: Tensor  # relevance of each factor; sums to one
    q_re: Tensor  # re-estimation support of each factor at each site and class
    alpha_bar: Tensor  # weights of the factors for each pair of source sites and class; sum to one
    g: Tensor  # strength of the alignment of each pair and class


def qualify(
    a: Tensor, squared_change: Tensor, w: Tensor, cell_average: Tensor, site_weight: Tensor, settings: BrioSettings
) -> Qualification:
    """Compute relevance, support and pairwise qualification of one run, Eqs. (11)-(16), (18) and (19).

    If no factor is relevant, pi_task is 1 / J and g is 0, so that the alignment loss is 0, except in variants that do
    not use relevance. (The paper's algorithm leaves the cache C_Q empty and sets the loss to 0.)

    Shapes: a [N, J], squared_change [N, J], w [J, d_t], cell_average [E, 2, N], site_weight [E].
    """
    _, V_sub, Delta_e = contribution_statistics(a, cell_average)
    V_pool, Delta = average_over_sites(V_sub, Delta_e, site_weight)
    R_task = relevance(w, Delta, V_pool, settings.eps_w, settings.eps_s)
    pi_task = normalise_relevance(R_task)
    D_re = reestimation_variation(squared_change, cell_average)
    q_re = reestimation_support(reference_scale(V_sub, Delta_e), D_re, settings.eps_q)
    g, alpha_bar = variant_profile(settings.variant, pi_task, pair_support(q_re))
    if settings.variant not in ("w/o TR", "w/o QG"):
        g = torch.where(R_task.sum() > 0, g, torch.zeros_like(g))
    return Qualification(pi_task, q_re, alpha_bar, g)


def contribution_statistics(a: Tensor, cell_average: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute mean mu and variance V_sub of the contributions of each cell, and the class contrast, Eq. (11).

    Shapes: a [N, J], cell_average [E, 2, N]; returns mu, V_sub [E, 2, J], Delta_e [E, J].
    """
    mu = cell_average @ a
    deviation = (a - mu.unsqueeze(-2)).square()  # [E, 2, N, J]
    V_sub = (cell_average.unsqueeze(-1) * deviation).sum(-2)
    return mu, V_sub, mu[:, 1] - mu[:, 0]


def average_over_sites(V_sub: Tensor, Delta_e: Tensor, site_weight: Tensor) -> tuple[Tensor, Tensor]:
    """Average over source sites with equal weights, Eq. (12). Contrasts of opposite sign cancel.

    Shapes: V_sub [E, 2, J], Delta_e [E, J], site_weight [E]; returns V_pool [2, J], Delta [J].
    """
    return torch.einsum("e,ecj->cj", site_weight, V_sub), site_weight @ Delta_e


def relevance(w: Tensor, Delta: Tensor, V_pool: Tensor, eps_w: float, eps_s: float) -> Tensor:
    """Compute the unnormalised predictive relevance R_task, Eq. (13).

    Shapes: w [J, d_t], Delta [J], V_pool [2, J]; returns [J].
    """
    norm = w.square().sum(-1)
    beta = norm / (norm.sum() + eps_w)
    return beta * Delta.square() / (V_pool.sum(0) + eps_s)


def normalise_relevance(R_task: Tensor) -> Tensor:
    """Normalise the relevance to pi_task, Eq. (13), which sums to one.

    The paper defines pi_task if any factor is relevant. If none is, we set it to 1 / J, and :func:`qualify` sets g to
    0.

    Shapes: R_task [J]; returns [J].
    """
    total = R_task.sum()
    relevant = total > 0
    return torch.where(relevant, R_task / torch.where(relevant, total, torch.ones_like(total)), 1.0 / len(R_task))


def reestimation_variation(squared_change: Tensor, cell_average: Tensor) -> Tensor:
    """Compute the mean squared change D_re of the contributions under re-estimation, Eq. (14).

    Shapes: squared_change [N, J], cell_average [E, 2, N]; returns [E, 2, J].
    """
    return cell_average @ squared_change


def reference_scale(V_sub: Tensor, Delta_e: Tensor) -> Tensor:
    """Compute the local reference scale T = V_sub + M_task with M_task = Delta_e^2 / 4, Eq. (15).

    Shapes: V_sub [E, 2, J], Delta_e [E, J]; returns [E, 2, J].
    """
    return V_sub + Delta_e.square().unsqueeze(1) / 4


def reestimation_support(T: Tensor, D_re: Tensor, eps_q: float) -> Tensor:
    """Compute the task-calibrated re-estimation support q_re, Eq. (16), in (0, 1].

    The support is near 1 if contributions change little under re-estimation compared with their spread and separation
    at that site; it is never 0.

    Shapes: T, D_re [E, 2, J]; returns [E, 2, J].
    """
    return (T + eps_q) / (T + D_re + eps_q)


def pair_support(q_re: Tensor) -> Tensor:
    """Compute the geometric mean of the supports of both sites of each pair, Eq. (18).

    Shapes: q_re [E, 2, J]; returns [E (E - 1) / 2, 2, J].
    """
    first, second = torch.triu_indices(len(q_re), len(q_re), 1, device=q_re.device)
    return (q_re[first] * q_re[second]).sqrt()


def variant_profile(variant: Variant, pi: Tensor, q_pair: Tensor) -> tuple[Tensor, Tensor]:
    """Compute strength and weights of the full method or of an ablation.

    ======= ====================== =================== ==============
    variant removes                weights alpha_bar   strength g
    ======= ====================== =================== ==============
    full    nothing                pi q_pair / g       sum pi q_pair
    w/o RS  re-estimation support  pi                  1
    w/o TR  task relevance         q_pair / sum q_pair mean of q_pair
    w/o SM  strength modulation    pi q_pair / g       1
    w/o SF  support in the weights pi                  sum pi q_pair
            of the factors
    w/o QG  qualification guidance 1 / J               1
    ======= ====================== =================== ==============

    :func:`qualify` sets g to 0 if no factor is relevant, except for w/o TR and w/o QG. The paper does not expand the
    abbreviation SF; this variant removes the priority of supported factors.

    Shapes: pi [J], q_pair [pairs, 2, J]; returns g [pairs, 2], alpha_bar [pairs, 2, J].
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


def qualification_profile(pi: Tensor, q_pair: Tensor) -> tuple[Tensor, Tensor]:
    """Compute strength g and weights alpha_bar from alpha = pi q_pair, Eqs. (18) and (19).

    Shapes: pi [J], q_pair [pairs, 2, J]; returns g [pairs, 2], alpha_bar [pairs, 2, J].
    """
    alpha = pi * q_pair
    g = alpha.sum(-1)
    return g, alpha / g.unsqueeze(-1).clamp_min(torch.finfo(g.dtype).tiny)


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

    A pair of sites appears in both orders, each with half of its share. The divergences S(x, y) of Eq. (24) then add up
    to OT(x, y) - OT(x, x) over ordered pairs, and clouds need not be gathered by pairs.

    Shapes: clouds [E, 2, n, J, d_t], alpha_bar [pairs, 2, J], g [pairs, 2], pair_weight [pairs], log_weight [E, 2, n].
    """
    E = len(clouds)
    if E < 2:
        return clouds.new_zeros(())
    site = torch.arange(E, device=clouds.device)
    low, high = torch.minimum(site[:, None], site), torch.maximum(site[:, None], site)
    # number of each pair of sites, as torch.triu_indices lists them; anything on the diagonal. [E, E]
    pair = (low * (2 * E - low - 1) // 2 + high - low - 1).clamp_min(0)
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


def weighted_cost(cosine: Tensor, alpha_bar: Tensor) -> Tensor:
    """Compute the squared distance of the weighted representations, Eq. (23): sum_j alpha_bar_j (1 - r_j . r'_j).

    The representations of Eq. (22) need not be formed: unit factors make their distance a weighted
    sum of cosine dissimilarities, in [0, 2].

    Shapes: cosine [..., n, m, J], alpha_bar [..., J].
    """
    return ((1.0 - cosine) * alpha_bar[..., None, None, :]).sum(-1)


def cosines(x: Tensor, y: Tensor) -> Tensor:
    """Compute the inner products of unit factors between scans of a class, factor by factor.

    Shapes: x, y [..., n, J, d_t] and [..., m, J, d_t]; returns [..., n, m, J].
    """
    return torch.einsum("...njd,...mjd->...nmj", x, y)

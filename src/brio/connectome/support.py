"""What a fold learns from the full-scan FC of its source sites: the support S, Eq. (3), and the mean connectome."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .fc import unfold_edges


def masked_median(x: Tensor, valid: Tensor) -> Tensor:
    """Compute the median of the valid entries over the first axis: the mean of the middle two, NaN if there are none.

    Shapes: x [n, ...], valid [n, ...]; returns [...].
    """
    ordered = torch.where(valid, x, torch.full_like(x, torch.inf)).sort(dim=0).values
    count = valid.sum(0)
    low = ordered.gather(0, ((count - 1) // 2).clamp_min(0)[None])[0]
    high = ordered.gather(0, (count // 2).clamp_max(len(x) - 1)[None])[0]
    return torch.where(count > 0, (low + high) / 2, torch.full_like(low, torch.nan))


def site_median(A: Tensor, alive: Tensor) -> Tensor:
    """Compute the median of |A_uv| over the scans of one site that have signal in both ROIs, for u < v.

    Shapes: A [n, P, P], alive [n, P]; returns [P (P - 1) / 2]. An edge for which no scan has signal is NaN.
    """
    u, v = torch.triu_indices(A.shape[-1], A.shape[-1], 1, device=A.device)
    chunk = max(1, (1 << 24) // max(1, len(A)))
    parts = [
        masked_median(A[:, u[s], v[s]].abs(), alive[:, u[s]] & alive[:, v[s]])
        for s in (slice(i, i + chunk) for i in range(0, len(u), chunk))
    ]
    return torch.cat(parts)


def source_strength(site_medians: Sequence[Tensor], n_rois: int) -> Tensor:
    """Compute the matrix A-bar of Eq. (3): the median over source sites of the medians within sites.

    Shapes: site_medians [P (P - 1) / 2]; returns [P, P].
    """
    stacked = torch.stack(list(site_medians))
    return unfold_edges(torch.nan_to_num(masked_median(stacked, ~stacked.isnan()), nan=0.0), n_rois)


def sym_top(strength: Tensor, rho_g: float) -> Tensor:
    """Compute the support S = SymTop_m of Eq. (3), m = ceil(rho_g (P - 1)).

    Each ROI selects its m strongest partners; an edge is in the support if either end selected it. Of equally strong
    partners, the one with the smaller index is selected.

    Shapes: strength [P, P]; returns [P, P].
    """
    p = len(strength)
    m = math.ceil(rho_g * (p - 1) - 1e-9)
    off_diagonal = strength.clone().fill_diagonal_(-torch.inf)
    selected = off_diagonal.sort(dim=1, descending=True, stable=True).indices[:, :m]
    S = torch.zeros(p, p, dtype=torch.bool, device=strength.device)
    S.scatter_(1, selected, True)
    return S | S.T


def edge_cut(A: Tensor, share: float) -> Tensor:
    """Compute the threshold on |FC| that the strongest ``share`` of the edges of each graph reach or exceed.

    Shapes: A [..., P, P]; returns [...].
    """
    p = A.shape[-1]
    u, v = torch.triu_indices(p, p, 1, device=A.device)
    count = len(u)
    n_strong = max(1, min(count, round(share * count)))
    flat = A.reshape(-1, p, p)
    size = max(1, (1 << 26) // count)
    parts = [part[:, u, v].abs().kthvalue(count - n_strong + 1, dim=-1).values for part in flat.split(size)]
    return torch.cat(parts).reshape(A.shape[:-2])


def site_mean(A: Tensor, alive: Tensor) -> Tensor:
    """Compute the mean FC over the scans of one site that have signal in both ROIs.

    Shapes: A [n, P, P], alive [n, P]; returns [P, P]. An edge for which no scan has signal is NaN.
    """
    live = alive.to(A.dtype)
    count = live.T @ live
    # rows of ROIs without signal are zero already; in double precision the order of scans does not matter
    mean = (A.sum(0, dtype=torch.float64) / count.clamp_min(1)).to(A.dtype)
    return torch.where(count > 0, mean, torch.full_like(mean, torch.nan))


def source_mean(site_means: Sequence[Tensor]) -> Tensor:
    """Compute the mean connectome of the source sites, each site with equal weight.

    Shapes: site_means [P, P]; returns [P, P].
    """
    stacked = torch.stack(list(site_means))
    return torch.nan_to_num(stacked.nanmean(0), nan=0.0).fill_diagonal_(0.0)

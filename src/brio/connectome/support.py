"""What a fold learns from the full-scan FC of its source sites: the support S and the mean connectome."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["edge_cut", "masked_median", "site_mean", "site_median", "source_mean", "source_strength", "sym_top"]


def masked_median(x: Tensor, valid: Tensor) -> Tensor:
    """Median over the first axis of the valid entries (mean of the middle two); NaN where there is none."""
    ordered = torch.where(valid, x, torch.full_like(x, torch.inf)).sort(dim=0).values
    count = valid.sum(0)
    low = ordered.gather(0, ((count - 1) // 2).clamp_min(0)[None])[0]
    high = ordered.gather(0, (count // 2).clamp_max(len(x) - 1)[None])[0]
    return torch.where(count > 0, (low + high) / 2, torch.full_like(low, torch.nan))


def site_median(A: Tensor, alive: Tensor) -> Tensor:
    """Median over the subjects of one site of |A_uv|, for u < v, among subjects with signal in both ROIs.

    Parameters
    ----------
    A : Tensor, shape [n, P, P]
    alive : Tensor of bool, shape [n, P]

    Returns
    -------
    Tensor, shape [P (P - 1) / 2]
    """
    u, v = torch.triu_indices(A.shape[-1], A.shape[-1], 1, device=A.device)
    chunk = max(1, (1 << 24) // max(1, len(A)))
    parts = [
        masked_median(A[:, u[s], v[s]].abs(), alive[:, u[s]] & alive[:, v[s]])
        for s in (slice(i, i + chunk) for i in range(0, len(u), chunk))
    ]
    return torch.cat(parts)


def source_strength(site_medians: Sequence[Tensor], n_rois: int) -> Tensor:
    """Matrix A-bar of Eq. (3): median over source sites of the medians within sites, zero diagonal.

    An edge that no source subject has signal for gets strength zero.
    """
    stacked = torch.stack(list(site_medians))
    strength = torch.nan_to_num(masked_median(stacked, ~stacked.isnan()), nan=0.0)
    u, v = torch.triu_indices(n_rois, n_rois, 1, device=strength.device)
    matrix = strength.new_zeros(n_rois, n_rois)
    matrix[u, v] = strength
    return matrix + matrix.T


def sym_top(strength: Tensor, rho_g: float) -> Tensor:
    """Support S = SymTop_m of Eq. (3), m = ceil(rho_g (P - 1)).

    Each ROI selects its m strongest partners; an edge is kept if either end selected it.
    Equal strengths go to the partner with the smaller index.

    Returns
    -------
    Tensor of bool, shape [P, P]

    Examples
    --------
    >>> sym_top(torch.tensor([[0., 3., 1.], [3., 0., 2.], [1., 2., 0.]]), 0.5).int()
    tensor([[0, 1, 0],
            [1, 0, 1],
            [0, 1, 0]], dtype=torch.int32)
    """
    p = len(strength)
    m = math.ceil(rho_g * (p - 1) - 1e-9)
    off_diagonal = strength.clone().fill_diagonal_(-torch.inf)
    chosen = off_diagonal.sort(dim=1, descending=True, stable=True).indices[:, :m]
    S = torch.zeros(p, p, dtype=torch.bool, device=strength.device)
    S.scatter_(1, chosen, True)
    return S | S.T


def edge_cut(A: Tensor, share: float) -> Tensor:
    """|FC| of the weakest of the strongest ``share`` of the edges of each graph. Shape [..., P, P] -> [...].

    Examples
    --------
    >>> edge_cut(torch.tensor([[0.0, 3.0, -1.0], [3.0, 0.0, 2.0], [-1.0, 2.0, 0.0]]), 0.6)
    tensor(2.)
    """
    p = A.shape[-1]
    u, v = torch.triu_indices(p, p, 1, device=A.device)
    count = len(u)
    keep = max(1, min(count, round(share * count)))
    flat = A.reshape(-1, p, p)
    size = max(1, (1 << 26) // count)
    parts = [part[:, u, v].abs().kthvalue(count - keep + 1, dim=-1).values for part in flat.split(size)]
    return torch.cat(parts).reshape(A.shape[:-2])


def site_mean(A: Tensor, alive: Tensor) -> Tensor:
    """Mean FC over the subjects of one site that have signal in both ROIs; NaN where none has. Shape [P, P]."""
    live = alive.to(A.dtype)
    count = live.T @ live
    total = A.sum(0)  # rows of ROIs without signal are zero already
    return torch.where(count > 0, total / count.clamp_min(1), torch.full_like(total, torch.nan))


def source_mean(site_means: Sequence[Tensor]) -> Tensor:
    """Mean connectome of the source sites, each site with equal weight; zero where no site has signal."""
    stacked = torch.stack(list(site_means))
    return torch.nan_to_num(stacked.nanmean(0), nan=0.0).fill_diagonal_(0.0)

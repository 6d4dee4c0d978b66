"""Kernel ridge regression with an intercept for each source site, and what its one inverse gives away.

Only the order of scans within a site matters at a hospital that gave no training data, so the model is fitted to what
differs within sites: every source site has an intercept of its own, without penalty. (One for all of them is there to
be compared with.)
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Fit", "alignment_functionals", "left_out", "solve"]


class Fit(NamedTuple):
    """The solution for one penalty."""

    alpha: Tensor  # [n] weights of the source scans
    intercept: Tensor  # [E] of each source site, or [1] of all
    inverse: Tensor  # [n + E, n + E] or [n + 1, n + 1], of the bordered system


def solve(K: Tensor, y: Tensor, sites: Tensor, penalty: float) -> Fit:
    """Minimise |y - f - b|^2 + penalty |f|_K^2.

    Parameters
    ----------
    K : Tensor, shape [n, n]
    y : Tensor, shape [n]
    sites : Tensor, shape [n, E]
        1 where a scan belongs to a site, each of which has an intercept; a column of ones for one in common.
    """
    n, E = sites.shape
    system = K.new_zeros(n + E, n + E)
    system[:n, :n] = K
    system[:n, :n].diagonal().add_(penalty)
    system[:n, n:], system[n:, :n] = sites, sites.T
    inverse = torch.linalg.inv(system)
    found = inverse[:, :n] @ y
    return Fit(found[:n], found[n:], inverse)


def left_out(fit: Fit, y: Tensor, sites: Tensor) -> Tensor:
    """f of every source scan from the model that has not seen its site, without fitting any of them.

    Deleting the rows of a site and its intercept from the bordered system changes its inverse by a block of the site's
    own size and one: f = y - G^-1 (B^-1 r) on the site, for the block G of the inverse. Exact, for a given kernel. An
    intercept in common stays, and is part of f.

    Returns
    -------
    Tensor, shape [n]
        Without an intercept where each site has its own: an unseen one has none.
    """
    n = len(y)
    full = fit.inverse[:, :n] @ y
    f = torch.empty_like(y)
    for e in range(sites.shape[1]):
        scans = sites[:, e].nonzero().squeeze(-1)
        own = [n + e] if len(fit.intercept) > 1 else []
        gone = torch.cat([scans, scans.new_tensor(own)])
        block = fit.inverse[gone[:, None], gone]
        f[scans] = y[scans] - torch.linalg.solve(block, full[gone])[: len(scans)]
    return f


def alignment_functionals(alpha_bar: Tensor, g: Tensor, membership: Tensor) -> Tensor:
    """Differences between sites that alignment takes away from one factor, as rows over source scans.

    Their squared values add up to the mean over pairs of sites and both classes of
    g alpha_bar (mean of a at one site - mean of a at the other)^2: Eq. (25) with the distance of means in the place of
    the transport divergence, which for a function of the kernel's space is a quadratic form and can be solved for.

    Parameters
    ----------
    alpha_bar, g : Tensor, shape [pairs, 2]
        Of this factor, and of the pair.
    membership : Tensor, shape [E, 2, n]
        1 / N_ec for the scans of site e and class c.

    Returns
    -------
    Tensor, shape [rows, n]
    """
    E = len(membership)
    first, second = torch.triu_indices(E, E, 1, device=g.device)
    weight = g * alpha_bar / max(1, len(first)) / 2
    rows = []
    for c in range(2):
        laplacian = membership.new_zeros(E, E)
        laplacian[first, second] = -weight[:, c]
        laplacian = laplacian + laplacian.T
        laplacian.diagonal().copy_(-laplacian.sum(1))
        size, axes = torch.linalg.eigh(laplacian)
        rows.append((axes * size.clamp_min(0).sqrt()).T @ membership[:, c])
    return torch.cat(rows)

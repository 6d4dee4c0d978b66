"""Kernel ridge regression with an intercept for each source site, and the inner folds that its inverse gives for free.

At a test site only the order of its scans matters, so the model is fitted to differences within sites: every source
site has an intercept of its own, which is not penalised. One intercept for all sites is there for comparison.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["KernelRidgeFit", "build_alignment_functionals", "predict_inner_folds", "solve_kernel_ridge"]


class KernelRidgeFit(NamedTuple):
    """The solution for one penalty."""

    alpha: Tensor  # [n] weights of the source scans
    intercept: Tensor  # [E] of each source site, or [1] of all
    inverse: Tensor  # [n + E, n + E] or [n + 1, n + 1], of the bordered system


def solve_kernel_ridge(K: Tensor, y: Tensor, sites: Tensor, penalty: float) -> KernelRidgeFit:
    """Minimise |y - f - b|^2 + penalty |f|_K^2.

    Parameters
    ----------
    K : Tensor, shape [n, n]
        Kernel between source scans.
    y : Tensor, shape [n]
        Labels, -1 or 1.
    sites : Tensor, shape [n, E]
        1 where a scan belongs to a site, each of which has an intercept; a column of ones for a common intercept.
    penalty : float

    Returns
    -------
    KernelRidgeFit
    """
    n, E = sites.shape
    system = K.new_zeros(n + E, n + E)
    system[:n, :n] = K
    system[:n, :n].diagonal().add_(penalty)
    system[:n, n:], system[n:, :n] = sites, sites.T
    inverse = torch.linalg.inv(system)
    solution = inverse[:, :n] @ y
    return KernelRidgeFit(solution[:n], solution[n:], inverse)


def predict_inner_folds(fit: KernelRidgeFit, y: Tensor, sites: Tensor) -> Tensor:
    """Predict f of every source scan from the inner fold that withholds its site, without fitting any of the folds.

    Deleting the rows of a site and its intercept from the bordered system changes its inverse by a block of the site's
    own size and one: f = y - G^-1 (B^-1 r) on the site, for the block G of the inverse. This is exact for a given
    kernel. A common intercept stays, and is part of f.

    Parameters
    ----------
    fit : KernelRidgeFit
    y : Tensor, shape [n]
        The labels it was fitted to.
    sites : Tensor, shape [n, E]
        1 where a scan belongs to a site.

    Returns
    -------
    Tensor, shape [n]
        Without an intercept where each source site has its own, because another site has none.
    """
    n = len(y)
    full = fit.inverse[:, :n] @ y
    f = torch.empty_like(y)
    for e in range(sites.shape[1]):
        scans = sites[:, e].nonzero().squeeze(-1)
        intercept = [n + e] if len(fit.intercept) > 1 else []
        deleted = torch.cat([scans, scans.new_tensor(intercept)])
        block = fit.inverse[deleted[:, None], deleted]
        f[scans] = y[scans] - torch.linalg.solve(block, full[deleted])[: len(scans)]
    return f


def build_alignment_functionals(alpha_bar: Tensor, g: Tensor, cell_average: Tensor) -> Tensor:
    """Build the differences between sites that alignment penalises for one factor, as rows over source scans.

    Their squared values add up to the mean over pairs of sites and both classes of
    g alpha_bar (mean of a at one site - mean of a at the other)^2. This is Eq. (25) with the distance of means in the
    place of the transport divergence; for a function of the kernel's space it is a quadratic form, which has a closed
    solution.

    Parameters
    ----------
    alpha_bar, g : Tensor, shape [pairs, 2]
        Of this factor, and of the pair.
    cell_average : Tensor, shape [E, 2, n]
        1 / N_ec for the scans of site e and class c.

    Returns
    -------
    Tensor, shape [rows, n]
    """
    E = len(cell_average)
    first, second = torch.triu_indices(E, E, 1, device=g.device)
    weight = g * alpha_bar / max(1, len(first)) / 2
    rows = []
    for c in range(2):
        laplacian = cell_average.new_zeros(E, E)
        laplacian[first, second] = -weight[:, c]
        laplacian = laplacian + laplacian.T
        laplacian.diagonal().copy_(-laplacian.sum(1))
        size, axes = torch.linalg.eigh(laplacian)
        rows.append((axes * size.clamp_min(0).sqrt()).T @ cell_average[:, c])
    return torch.cat(rows)

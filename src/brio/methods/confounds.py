"""Confounds of features of scans: robust regressions on age and sex, fitted at source sites, removed anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..training import SourceScans, TensorSpec

HUBER_CUT = 1.35
"""Residuals beyond this many scales count linearly: 95 % efficient for normal errors (Huber 1981)."""

LARGEST_SCORE = 5.0
"""Standardised features are clipped to this many spreads."""


class Confounds(NamedTuple):
    """Features expected from covariates, pooled over source sites: a test site has no expectation of its own.

    Shapes: covariate_mean [C], slope [C, ...], level [...], scale [...].
    """

    covariate_mean: Tensor  # over the source scans
    slope: Tensor  # of each feature on each covariate
    level: Tensor  # expected features at the mean covariates
    scale: Tensor  # spread of the source scans around their expectation


def declare_confounds(n_covariates: int, *axes: int | str) -> dict[str, TensorSpec]:
    """Declare the stored fields of :class:`Confounds` for features of some axes."""
    each = TensorSpec(axes)
    declared = {"covariate_mean": TensorSpec((n_covariates,)), "slope": TensorSpec((n_covariates, *axes))}
    declared |= {"level": each, "scale": each._replace(low=0.0)}
    return {f"learned.{name}": spec for name, spec in declared.items()}


def fit_huber(y: Tensor, live: Tensor, X: Tensor, iterations: int = 30) -> tuple[Tensor, Tensor]:
    """Fit Huber regressions of many columns on one design, with their scales (Huber 1981; Owen 2007).

    The minimiser of ``sklearn.linear_model.HuberRegressor(alpha=0)``, for all columns at once: residuals are winsorised
    and regressed on the same design again, so that no column needs a system of equations of its own.

    Shapes: y [n, columns], live [n, columns], X [n, k]; returns coefficients [k, columns], residuals [n, columns].
    """
    inverse = torch.linalg.pinv(X)
    count = live.sum(0).clamp_min(1)
    b = inverse @ (live * y)
    r = torch.addmm(y, X, b, alpha=-1)
    variance = (live * r).square().sum(0) / count
    for _ in range(iterations):
        cut = HUBER_CUT * variance.sqrt()
        winsorised = r.clamp(-cut, cut) * live
        variance = torch.linalg.vector_norm(winsorised, dim=0).square() / count
        b = b + inverse @ winsorised
        r = torch.addmm(y, X, b, alpha=-1)
    return b, live * r


def fit_confounds(source: SourceScans, values: Tensor, live: Tensor, covariates: Tensor) -> Confounds:
    """Fit levels, slopes on covariates and spreads of features, by Huber regressions at each source site.

    Slopes are pooled with the information each site has on them (for least squares this would be a regression with an
    intercept for each site); levels weigh the sites equally.

    Shapes: values [n, ...], live [n, ...], covariates [n, C].
    """
    y, mask = values.flatten(1), live.flatten(1)
    mean = covariates.mean(0)
    information = covariates.new_zeros(covariates.shape[1], covariates.shape[1])
    weighted = y.new_zeros(covariates.shape[1], y.shape[1])
    levels, centres, present = [], [], []
    for rows in iterate_sites(source, y.device):
        X = build_design(covariates[rows])
        b, _ = fit_huber(y[rows], mask[rows], X)
        products = X[:, 1:].T @ X[:, 1:]
        information, weighted = information + products, weighted + products @ b[1:]
        levels.append(b[0])
        centres.append(covariates[rows].mean(0))
        present.append((mask[rows].sum(0) > 0).to(y.dtype))
    slope = torch.linalg.pinv(information, hermitian=True) @ weighted
    level, has_value = torch.stack(levels), torch.stack(present)
    level = level - (torch.stack(centres) - mean) @ slope
    level = (level * has_value).sum(0) / has_value.sum(0).clamp_min(1)
    r = (y - level - (covariates - mean) @ slope) * mask
    scale = (r.square().sum(0) / mask.sum(0).clamp_min(1)).sqrt().clamp_min(1e-6)
    shape = values.shape[1:]
    return Confounds(mean, slope.unflatten(1, shape), level.unflatten(0, shape), scale.unflatten(0, shape))


def remove_confounds(values: Tensor, live: Tensor, covariates: Tensor, confounds: Confounds) -> Tensor:
    """Subtract from features what the covariates of a scan let expect, and divide by their spread.

    Shapes: values [n, ...], live [n, ...], covariates [n, C]; returns [n, ...].
    """
    offset = covariates - confounds.covariate_mean
    expected = confounds.level + (offset @ confounds.slope.flatten(1)).unflatten(1, confounds.level.shape)
    return ((values - expected) / confounds.scale).clamp(-LARGEST_SCORE, LARGEST_SCORE) * live


def build_design(covariates: Tensor) -> Tensor:
    """Build the design of a regression at one site: intercept and centred covariates. Shape [n, C] -> [n, 1 + C]."""
    centred = covariates - covariates.mean(0)
    # a covariate that is constant here (only one sex) gets no slope, instead of one on rounding errors
    constant = centred.abs().amax(0) <= 1e-5 * covariates.abs().amax(0)
    return torch.cat([torch.ones_like(centred[:, :1]), centred * ~constant], 1)


def iterate_sites(source: SourceScans, device: torch.device) -> Iterator[Tensor]:
    """Iterate over the source sites in sorted order: the rows of their scans among the source scans, int64."""
    for site in np.unique(source.site):
        yield torch.from_numpy(np.flatnonzero(source.site == site)).to(device)

"""The scaffold of CORE: edges whose diagnosis effect comes back at every source site and in every bootstrap.

All of it is learned from source scans. Age and sex are taken out site by site with Huber regressions; what is left of
each edge is compared between the classes within each site; edges are ranked by the size of their effects and by how far
the sites agree on its sign, and kept where that rank holds under resampling of the subjects.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .. import draws
from ..settings import require, setting
from ..spaces import choice
from ..training import Scans, SourceScans

__all__ = [
    "Confounds",
    "Scaffold",
    "ScaffoldSettings",
    "adjusted",
    "bootstrap_weights",
    "confounds",
    "huber",
    "n_scaffold_edges",
    "scaffold",
    "site_effects",
]

HUBER_CUT = 1.35
"""Residuals beyond this many scales count linearly: 95 % efficient where nothing is wrong (Huber 1981)."""


@dataclass(frozen=True)
class ScaffoldSettings:
    """Settings of the scaffold.

    Attributes
    ----------
    edges : int
        Edges of the scaffold; an atlas that has fewer gives all it has.
    bootstraps : int
        Resamples of the subjects within each site and class.
    top_share : float
        Share of all edges, by score, that a bootstrap selects.
    stability : float
        Share of bootstraps that must have selected an edge. Where too few edges pass, the best of the others follow.
    """

    edges: int = setting(300, choice(200, 300, 500))
    bootstraps: int = 100
    top_share: float = 0.1
    stability: float = 0.7

    def __post_init__(self) -> None:
        for name in ("edges", "bootstraps"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        require(0 < self.top_share <= 1, "top_share", self.top_share, "above 0 and at most 1")
        require(0 <= self.stability <= 1, "stability", self.stability, "between 0 and 1")
        parent = getattr(super(), "__post_init__", None)  # beside the settings of a network, or of a linear model
        if parent is not None:
            parent()


class Scaffold(NamedTuple):
    """Chosen edges and what is known of each."""

    u: Tensor  # [M] int64
    v: Tensor  # [M] int64, u < v
    effect: Tensor  # [M] mean over sites of the signed effect
    agreement: Tensor  # [M] |mean over sites of its sign|
    stability: Tensor  # [M] share of bootstraps that selected the edge
    score: Tensor  # [M] mean over sites of |effect|, times agreement

    def priors(self) -> Tensor:
        """What a network is told of each edge, about between -1 and 1. Shape [M, 4]."""
        effect = self.effect / self.effect.abs().max().clamp_min(1e-12)
        score = self.score / self.score.max().clamp_min(1e-12)
        return torch.stack([effect, self.agreement, self.stability, score], -1)


class Confounds(NamedTuple):
    """Values expected of a scan from its covariates, pooled over source sites: an unseen site has none of its own."""

    covariate_mean: Tensor  # [C]
    slope: Tensor  # [C, ...]
    level: Tensor  # [...] expected at the mean covariates
    scale: Tensor  # [...] spread of the source scans around what is expected of them


def n_scaffold_edges(settings: ScaffoldSettings, n_rois: int) -> int:
    """Edges of the scaffold; known without data, so that runs can be stacked."""
    return min(settings.edges, n_rois * (n_rois - 1) // 2)


def huber(y: Tensor, live: Tensor, X: Tensor, iterations: int = 30) -> tuple[Tensor, Tensor]:
    """Huber regressions of many columns on one design, scale estimated with them (Huber 1981; Owen 2007).

    The minimiser of ``sklearn.linear_model.HuberRegressor(alpha=0)``, for all columns at once: residuals are winsorised
    and regressed on the same design again, so that no column needs a system of equations of its own.

    Parameters
    ----------
    y, live : Tensor, shape [n, columns]
        ``live`` is 1 where there is a value, else 0.
    X : Tensor, shape [n, k]
        May be of deficient rank (one sex only, say); then the shortest coefficients.

    Returns
    -------
    coefficients : Tensor, shape [k, columns]
    residuals : Tensor, shape [n, columns]
        0 where there is no value.
    """
    inverse = torch.linalg.pinv(X)
    count = live.sum(0).clamp_min(1)
    b = inverse @ (live * y)
    r = torch.addmm(y, X, b, alpha=-1)
    variance = (live * r).square().sum(0) / count
    for _ in range(iterations):
        cut = HUBER_CUT * variance.sqrt()
        held = r.clamp(-cut, cut) * live
        variance = torch.linalg.vector_norm(held, dim=0).square() / count
        b = b + inverse @ held
        r = torch.addmm(y, X, b, alpha=-1)
    return b, live * r


def bootstrap_weights(source: SourceScans, n: int) -> np.ndarray:
    """Weights of the source scans in each of n bootstraps, float64. Shape [n, scans].

    The Bayesian bootstrap (Rubin 1981): exponential weights instead of counts. A weight belongs to a participant and
    to nobody else, and no resample of a small cell loses all but one of its members.
    """
    who = source.connectomes.ids[source.scans]
    return -np.log1p(-draws.draw_uniform(source.seed, "scaffold", np.arange(n)[:, None], who))


def site_effects(r: Tensor, live: Tensor, label: Tensor, weight: Tensor, spread: Tensor) -> Tensor:
    """Difference of the weighted class means at one site, in its standard errors. Shape [n weights, columns].

    Parameters
    ----------
    r, live : Tensor, shape [n, columns]
    label : Tensor, shape [n]
        0 or 1.
    weight : Tensor, shape [n weights, n]
    spread : Tensor, shape [columns]
        Standard deviation within classes.
    """
    means, counts = [], []
    for one in (label, 1 - label):
        total = (weight * one) @ live
        means.append((weight * one) @ (r * live) / total.clamp_min(1e-12))
        counts.append(one @ live)
    known = (counts[0] > 0) & (counts[1] > 0)
    error = spread * (1 / counts[0].clamp_min(1) + 1 / counts[1].clamp_min(1)).sqrt()
    return torch.where(known, (means[0] - means[1]) / error.clamp_min(1e-12), torch.zeros_like(means[0]))


def scaffold(source: SourceScans, scans: Scans, settings: ScaffoldSettings) -> Scaffold:
    """Reproducible diagnostic edges of the source sites.

    Parameters
    ----------
    scans : Scans
        Those of ``source.scans``, in their order.
    """
    P = scans.A.shape[-1]
    u, v = torch.triu_indices(P, P, 1, device=scans.A.device)
    y, live = scans.A[:, u, v], _both(scans.alive, u, v).to(scans.A.dtype)
    label = torch.tensor(source.label, dtype=y.dtype, device=y.device)
    residual, within, cells = torch.zeros_like(y), torch.zeros_like(y[0]), torch.zeros_like(y[0])
    for here in _sites(source, y.device):
        _, r = huber(y[here], live[here], _design(scans.covariates[here]))
        residual[here] = r
        for one in (label[here], 1 - label[here]):
            member = live[here] * one[:, None]
            count = member.sum(0)
            within += ((r - (member * r).sum(0) / count.clamp_min(1)) * member).square().sum(0)
            cells += (count > 0).to(y.dtype)
    spread = (within / (live.sum(0) - cells).clamp_min(1)).sqrt()
    weights = bootstrap_weights(source, settings.bootstraps)
    weight = torch.from_numpy(np.concatenate([np.ones((1, weights.shape[1])), weights])).to(y)  # first: the sample
    effect, size, sign = (y.new_zeros(len(weight), len(u)) for _ in range(3))
    n_sites = 0
    for here in _sites(source, y.device):
        t = site_effects(residual[here], live[here], label[here], weight[:, here], spread)
        effect, size, sign, n_sites = effect + t, size + t.abs(), sign + t.sign(), n_sites + 1
    agreement = sign.abs() / n_sites
    score = size / n_sites * agreement
    top = score[1:].topk(max(1, round(settings.top_share * len(u))), dim=1).indices
    chosen_in = torch.zeros_like(score[1:]).scatter_(1, top, 1.0)
    stability = chosen_in.mean(0)
    rank = score[0] + (stability >= settings.stability).to(y.dtype) * (score[0].max() + 1)
    e = rank.topk(n_scaffold_edges(settings, P)).indices.sort().values
    return Scaffold(u[e], v[e], effect[0, e] / n_sites, agreement[0, e], stability[e], score[0, e])


def confounds(source: SourceScans, values: Tensor, live: Tensor, covariates: Tensor) -> Confounds:
    """Levels, slopes on covariates and spreads of features, from Huber regressions at each source site.

    Slopes are pooled with the information each site has on them (for least squares this would be a regression with an
    intercept for each site); levels weigh the sites equally.

    Parameters
    ----------
    values : Tensor, shape [n, ...]
    live : Tensor, shape [n, ...]
        1 where there is a value.
    covariates : Tensor, shape [n, C]
    """
    y, mask = values.flatten(1), live.flatten(1)
    mean = covariates.mean(0)
    information = covariates.new_zeros(covariates.shape[1], covariates.shape[1])
    weighted = y.new_zeros(covariates.shape[1], y.shape[1])
    levels, centres, known = [], [], []
    for here in _sites(source, y.device):
        X = _design(covariates[here])
        b, _ = huber(y[here], mask[here], X)
        products = X[:, 1:].T @ X[:, 1:]
        information, weighted = information + products, weighted + products @ b[1:]
        levels.append(b[0])
        centres.append(covariates[here].mean(0))
        known.append((mask[here].sum(0) > 0).to(y.dtype))
    slope = torch.linalg.pinv(information, hermitian=True) @ weighted
    level, seen = torch.stack(levels), torch.stack(known)
    level = level - (torch.stack(centres) - mean) @ slope
    level = (level * seen).sum(0) / seen.sum(0).clamp_min(1)
    r = (y - level - (covariates - mean) @ slope) * mask
    scale = (r.square().sum(0) / mask.sum(0).clamp_min(1)).sqrt().clamp_min(1e-6)
    shape = values.shape[1:]
    return Confounds(mean, slope.unflatten(1, shape), level.unflatten(0, shape), scale.unflatten(0, shape))


def adjusted(values: Tensor, live: Tensor, covariates: Tensor, known: Confounds) -> Tensor:
    """Features less what is expected of the scan's covariates, in spreads, 0 where there is no value. Shape [n, ...].

    Held within five spreads.
    """
    off = covariates - known.covariate_mean
    expected = known.level + (off @ known.slope.flatten(1)).unflatten(1, known.level.shape)
    return ((values - expected) / known.scale).clamp(-5, 5) * live


def _both(alive: Tensor, u: Tensor, v: Tensor) -> Tensor:
    return alive[:, u] & alive[:, v]


def _design(covariates: Tensor) -> Tensor:
    """Intercept and centred covariates of one site. Shape [n, 1 + C]."""
    centred = covariates - covariates.mean(0)
    constant = centred.abs().amax(0) <= 1e-5 * covariates.abs().amax(0)  # one sex only: no slope, not rounding noise
    return torch.cat([torch.ones_like(centred[:, :1]), centred * ~constant], 1)


def _sites(source: SourceScans, device: torch.device) -> Iterator[Tensor]:
    """Rows of each source site, sites in sorted order."""
    for site in np.unique(source.site):
        yield torch.from_numpy(np.flatnonzero(source.site == site)).to(device)

"""The scaffold of CORE: edges whose diagnosis effect is reproducible over source sites and bootstraps.

All of this is learned from source scans. Age and sex are regressed out site by site with Huber regressions. The
residuals of each edge are compared between the classes within each site. Edges are ranked by the size of their effects
and by how far the sites agree on the sign. Edges are selected if they keep their rank when participants are resampled.
The effects of age and sex on the features of a scan are also learned at source sites, and removed at all sites.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor

from .. import draws
from ..settings import Count, PositiveShare, Share, choice, setting
from ..training import MethodSettings, Scans, SourceScans, TensorSpec

HUBER_CUT = 1.35
"""Residuals beyond this many scales count linearly: 95% efficient for normal errors (Huber 1981)."""

LARGEST_SCORE = 5.0
"""Standardised features are clipped to this many scale units."""


class Confounds(NamedTuple):
    """Features expected from covariates, pooled over source sites because a test site has no expectation of its own.

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

    Slopes are pooled with the information that each site has on them (for least squares, this would be a regression
    with an intercept for each site). Levels give all sites equal weight.

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
    """Subtract the values expected from a scan's covariates from its features, and divide by their spread.

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
    """Iterate over the source sites in sorted order, yielding the rows of their scans among the source scans."""
    for site in np.unique(source.site):
        yield torch.from_numpy(np.flatnonzero(source.site == site)).to(device)


ROUNDING = 1e-6
"""A smaller effect, in standard errors, counts as having no sign: covariates fully explain a site with three scans."""


@dataclass(frozen=True)
class ScaffoldSettings(MethodSettings):
    """Settings of the scaffold.

    Attributes
    ----------
    edges : int
        Number of edges in the scaffold; all edges if the atlas has fewer.
    bootstraps : int
        Number of bootstraps, each of which draws new weights for the participants of every site. See
        :func:`draw_bootstrap_weights`.
    top_share : float
        Share of all edges that each bootstrap selects: those with the highest scores.
    stability : float
        Minimum share of bootstraps that must select an edge for it to enter the scaffold. If too few edges reach
        it, the best of the others are added.
    """

    edges: Annotated[int, Meta(ge=1, le=100_000)] = setting(300, choice(200, 300, 500))
    bootstraps: Count = 100
    top_share: PositiveShare = 0.1
    stability: Share = 0.7


class Scaffold(NamedTuple):
    """Selected edges and their statistics. Shapes: u, v [M], effect [M], agreement [M], stability [M], score [M]."""

    u: Tensor  # ends of the edges, u < v
    v: Tensor
    effect: Tensor  # mean over sites of the signed effect
    agreement: Tensor  # absolute mean over sites of the sign of the effect
    stability: Tensor  # share of bootstraps that selected the edge
    score: Tensor  # mean over sites of the absolute effect, times agreement

    def compute_priors(self) -> Tensor:
        """Scale the statistics of each edge to at most 1 in magnitude, as inputs of a neural network. Shape [M, 4]."""
        effect = self.effect / self.effect.abs().max().clamp_min(1e-12)
        score = self.score / self.score.max().clamp_min(1e-12)
        return torch.stack([effect, self.agreement, self.stability, score], -1)


def draw_bootstrap_weights(source: SourceScans, n: int) -> np.ndarray:
    """Draw the weights of the source scans in each of n bootstraps.

    The Bayesian bootstrap (Rubin 1981): exponential weights instead of counts. The weight of a participant does not
    depend on other participants, and no resample of a small cell loses all but one of its members.

    Shapes: returns [n, scans].
    """
    ids = source.connectomes.ids[source.scans]
    return -np.log1p(-draws.draw_uniform(source.seed, "scaffold", np.arange(n)[:, None], ids))


def compute_site_effects(r: Tensor, live: Tensor, label: Tensor, weight: Tensor, spread: Tensor) -> Tensor:
    """Compute the differences of weighted class means at one site, in units of their standard errors.

    Shapes: r [n, columns], live [n, columns], label [n], weight [n_weights, n], spread [columns]; returns [n_weights,
    columns].
    """
    means, counts = [], []
    for member in (label, 1 - label):
        total = (weight * member) @ live
        means.append((weight * member) @ (r * live) / total.clamp_min(1e-12))
        counts.append(member @ live)
    both_present = (counts[0] > 0) & (counts[1] > 0)
    error = spread * (1 / counts[0].clamp_min(1) + 1 / counts[1].clamp_min(1)).sqrt()
    return torch.where(both_present, (means[0] - means[1]) / error.clamp_min(1e-12), torch.zeros_like(means[0]))


def build_scaffold(source: SourceScans, scans: Scans, settings: ScaffoldSettings) -> Scaffold:
    """Select the edges whose diagnosis effect is reproducible over the source sites."""
    P = scans.A.shape[-1]
    u, v = torch.triu_indices(P, P, 1, device=scans.A.device)
    y, live = scans.A[:, u, v], (scans.alive[:, u] & scans.alive[:, v]).to(scans.A.dtype)
    label = torch.tensor(source.label, dtype=y.dtype, device=y.device)
    residual, spread = _remove_covariates(source, y, live, label, scans.covariates)
    bootstraps = draw_bootstrap_weights(source, settings.bootstraps)
    whole_sample = np.ones((1, bootstraps.shape[1]))
    weight = torch.from_numpy(np.concatenate([whole_sample, bootstraps])).to(y)
    effect, size, sign = (y.new_zeros(len(weight), len(u)) for _ in range(3))
    n_sites = 0
    for rows in iterate_sites(source, y.device):
        t = compute_site_effects(residual[rows], live[rows], label[rows], weight[:, rows], spread)
        direction = t.sign() * (t.abs() > ROUNDING)
        effect, size, sign, n_sites = effect + t, size + t.abs(), sign + direction, n_sites + 1
    agreement = sign.abs() / n_sites
    score = size / n_sites * agreement
    top = score[1:].topk(max(1, round(settings.top_share * len(u))), dim=1).indices
    stability = torch.zeros_like(score[1:]).scatter_(1, top, 1.0).mean(0)
    rank = score[0] + (stability >= settings.stability).to(y.dtype) * (score[0].max() + 1)
    e = rank.topk(min(settings.edges, len(u))).indices.sort().values  # a number that no data change: runs are stacked
    return Scaffold(u[e], v[e], effect[0, e] / n_sites, agreement[0, e], stability[e], score[0, e])


def _remove_covariates(
    source: SourceScans, y: Tensor, live: Tensor, label: Tensor, covariates: Tensor
) -> tuple[Tensor, Tensor]:
    """Residuals [n, edges] of regressions at each site, and their standard deviation [edges] within classes."""
    residual, within, n_cells = torch.zeros_like(y), torch.zeros_like(y[0]), torch.zeros_like(y[0])
    for rows in iterate_sites(source, y.device):
        _, r = fit_huber(y[rows], live[rows], build_design(covariates[rows]))
        residual[rows] = r
        for in_class in (label[rows], 1 - label[rows]):
            member = live[rows] * in_class[:, None]
            count = member.sum(0)
            within += ((r - (member * r).sum(0) / count.clamp_min(1)) * member).square().sum(0)
            n_cells += (count > 0).to(y.dtype)
    return residual, (within / (live.sum(0) - n_cells).clamp_min(1)).sqrt()

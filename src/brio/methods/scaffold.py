"""The scaffold of CORE: edges whose diagnosis effect is reproducible over source sites and bootstraps.

All of it is learned from source scans. Age and sex are removed site by site with Huber regressions. The residuals of
each edge are compared between the classes within each site. Edges are ranked by the size of their effects and by how
far the sites agree on the sign, and are selected where that rank holds when participants are resampled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .. import draws
from ..settings import Count, Domain, PositiveShare, Share, check_domains, choice, setting
from ..training import Scans, SourceScans
from .confounds import build_design, fit_huber, iterate_sites

ROUNDING = 1e-6
"""A smaller effect, in standard errors, has no sign: covariates explain all of a site with three scans."""


@dataclass(frozen=True)
class ScaffoldSettings:
    """Settings of the scaffold.

    Attributes
    ----------
    edges : int
        Edges of the scaffold; all edges where the atlas has fewer.
    bootstraps : int
        Weightings of the participants of each site (:func:`draw_bootstrap_weights`).
    top_share : float
        Share of all edges, by score, that a bootstrap selects.
    stability : float
        Share of bootstraps that must have selected an edge. Where too few edges pass, the best of the others follow.
    """

    edges: Annotated[int, Domain(1, 100_000)] = setting(300, choice(200, 300, 500))
    bootstraps: Count = 100
    top_share: PositiveShare = 0.1
    stability: Share = 0.7

    def __post_init__(self) -> None:
        check_domains(self)
        parent = getattr(super(), "__post_init__", None)  # beside the settings of a network, or of a linear model
        if parent is not None:
            parent()


class Scaffold(NamedTuple):
    """Selected edges and their statistics.

    Shapes: u, v [M], effect [M], agreement [M], stability [M], score [M].
    """

    u: Tensor  # ends of the edges, u < v
    v: Tensor
    effect: Tensor  # mean over sites of the signed effect
    agreement: Tensor  # absolute mean over sites of the sign of the effect
    stability: Tensor  # share of bootstraps that selected the edge
    score: Tensor  # mean over sites of the absolute effect, times agreement

    def compute_priors(self) -> Tensor:
        """Scale the statistics of each edge to at most 1 in size, as inputs of a network. Shape [M, 4]."""
        effect = self.effect / self.effect.abs().max().clamp_min(1e-12)
        score = self.score / self.score.max().clamp_min(1e-12)
        return torch.stack([effect, self.agreement, self.stability, score], -1)


def count_scaffold_edges(settings: ScaffoldSettings, n_rois: int) -> int:
    """Count the edges of the scaffold. The number does not depend on data, so that runs can be stacked."""
    return min(settings.edges, n_rois * (n_rois - 1) // 2)


def draw_bootstrap_weights(source: SourceScans, n: int) -> np.ndarray:
    """Draw the weights of the source scans in each of n bootstraps.

    The Bayesian bootstrap (Rubin 1981): exponential weights instead of counts. The weight of a participant does not
    depend on other participants, and no resample of a small cell loses all but one of its members.

    Shapes: returns [n, scans].
    """
    ids = source.connectomes.ids[source.scans]
    return -np.log1p(-draws.draw_uniform(source.seed, "scaffold", np.arange(n)[:, None], ids))


def compute_site_effects(r: Tensor, live: Tensor, label: Tensor, weight: Tensor, spread: Tensor) -> Tensor:
    """Compute the differences of weighted class means at one site, in their standard errors.

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
    e = rank.topk(count_scaffold_edges(settings, P)).indices.sort().values
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

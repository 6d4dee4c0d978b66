"""Harmonisation of connectomes across sites, learned from source sites: ComBat and regression on covariates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..cohort import Cohort
from ..cohort.covariates import read_covariates
from ..errors import BrioError
from .connectomes import Connectomes
from .fc import fill_dead, read_edges, unfold_edges
from .harmonisation_rule import HarmonisationRule, require_covariates
from .resampling import ReestimateRequest
from .support import source_mean


@dataclass(frozen=True, eq=False)
class Combat:
    """Fitted site effects of d features, E sites and C covariates.

    Shapes: alpha, sigma [d], beta [C, d], gamma, delta [E, d], prior [4].
    """

    sites: tuple[str, ...]
    alpha: np.ndarray  # grand mean and pooled standard deviation
    sigma: np.ndarray
    beta: np.ndarray  # effects of covariates
    gamma: np.ndarray  # posterior shift and variance of each site, in units of sigma
    delta: np.ndarray
    prior: np.ndarray  # mean and variance of the shifts, shape and scale of the variances, averaged over sites

    def extend_to_unseen_sites(
        self, X: np.ndarray, site: np.ndarray, policy: str, covariates: np.ndarray | None = None
    ) -> Combat:
        """Return a copy that also has effects for the sites it was not fitted to.

        Shapes: X [n, d], site [n], covariates [n, C].
        """
        new = [str(name) for name in np.unique(site) if name not in self.sites]
        if new and policy == "raise":
            remedy = "set harmonise.unseen to identity, pooled or unlabelled (transductive)"
            raise BrioError(f"ComBat was not fitted to site {new[0]} (harmonise.unseen=raise); {remedy}")
        gamma, delta = list(self.gamma), list(self.delta)
        for name in new:
            here = site == name
            if policy == "unlabelled":
                z = (X[here] - self.expected_value(None if covariates is None else covariates[here])) / self.sigma
                shift, variance = _posterior(z, self.prior)
            elif policy == "pooled":
                shift, variance = self.gamma.mean(0), self.delta.mean(0)
            else:
                shift, variance = np.zeros_like(self.alpha), np.ones_like(self.alpha)
            gamma.append(shift)
            delta.append(variance)
        return replace(self, sites=(*self.sites, *new), gamma=np.stack(gamma), delta=np.stack(delta))

    def apply(self, X: np.ndarray, site: np.ndarray, covariates: np.ndarray | None = None) -> np.ndarray:
        """Remove the site effects from features.

        Shapes: X [n, d], site [n], covariates [n, C]; returns [n, d].
        """
        index = np.array([self.sites.index(str(name)) for name in site], dtype=np.int64)
        expected = self.expected_value(covariates)
        z = (X - expected) / self.sigma
        return (z - self.gamma[index]) / np.sqrt(self.delta[index]) * self.sigma + expected

    def expected_value(self, covariates: np.ndarray | None) -> np.ndarray:
        """Return the expected features without any site effect. Shape [d], or [n, d] with covariates."""
        return self.alpha if covariates is None else self.alpha + covariates @ self.beta


def fit_combat(X: np.ndarray, site: np.ndarray, covariates: np.ndarray | None = None) -> Combat:
    """Fit ComBat to features of several sites.

    Shapes: X [n, d], site [n], covariates [n, C].
    """
    names, index = np.unique(site, return_inverse=True)
    count = np.bincount(index)
    if (count < 2).any():
        few = f"ComBat needs at least two scans per site, but site {names[count < 2][0]} has one"
        raise BrioError(f"{few}; leave out this site, or choose another harmonise.kind")
    one_hot = np.eye(len(names))[index]
    design = one_hot if covariates is None else np.hstack([one_hot, covariates])
    effects = np.linalg.lstsq(design, X, rcond=None)[0]
    alpha = (count / len(X)) @ effects[: len(names)]
    beta = effects[len(names) :]
    variance = np.square(X - design @ effects).mean(0)
    sigma = np.sqrt(np.where(variance > 0, variance, 1.0))
    expected = alpha if covariates is None else alpha + covariates @ beta
    z = (X - expected) / sigma
    z_by_site = [z[index == e] for e in range(len(names))]
    priors = [_prior(own) for own in z_by_site]
    posteriors = [_posterior(own, prior) for own, prior in zip(z_by_site, priors, strict=True)]
    gamma, delta = (np.stack(parameter) for parameter in zip(*posteriors, strict=True))
    return Combat(tuple(map(str, names)), alpha, sigma, beta, gamma, delta, np.mean(priors, 0))


def _prior(z: np.ndarray) -> tuple[float, float, float, float]:
    """Prior of a site from moments over features: of the shifts (normal) and of the variances (inverse gamma)."""
    gamma, delta = z.mean(0), z.var(0, ddof=1)
    several = z.shape[1] > 1  # one feature has no spread over features: its moments are its own
    m, s2 = delta.mean(), max(delta.var(ddof=1) if several else 0.0, 1e-12)
    spread = float(gamma.var(ddof=1)) if several else 0.0
    return float(gamma.mean()), spread, float((2 * s2 + m**2) / s2), float((m * s2 + m**3) / s2)


def _posterior(z: np.ndarray, prior: Sequence[float] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Posterior shift and variance of a site by iterated conditional modes."""
    mean, spread, shape, scale = prior
    n, gamma_hat = len(z), z.mean(0)
    gamma, delta = gamma_hat, z.var(0, ddof=1) if n > 1 else np.ones(z.shape[1])
    for _ in range(1000):
        precision = spread * n + delta
        informative = precision > 0  # features that are constant have neither spread nor variance
        new_gamma = np.where(
            informative, (spread * n * gamma_hat + delta * mean) / np.where(informative, precision, 1.0), gamma_hat
        )
        new_delta = (0.5 * np.square(z - new_gamma).sum(0) + scale) / (n / 2.0 + shape - 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            change = max(
                float(np.nanmax(np.abs(new_gamma - gamma) / np.abs(gamma), initial=0.0)),
                float(np.nanmax(np.abs(new_delta - delta) / delta, initial=0.0)),
            )
        gamma, delta = new_gamma, new_delta
        if change <= TOLERANCE:
            break
    return gamma, np.where(delta > 0, delta, 1.0)


TOLERANCE = 1e-4
"""The iterations for a posterior end when its relative change is below this value."""
CONSTANT = 1e-5
"""A covariate gets no slope if it varies less than this within all groups, in standard deviations."""


@dataclass(frozen=True, eq=False)
class Residualiser:
    """Fitted slopes of d features on C covariates.

    Shapes: slope [C, d].
    """

    slope: np.ndarray  # for covariates in units of the source scans: mean 0 and standard deviation 1
    sites: tuple[str, ...] = ()  # none: slopes hold for scans of any site

    def apply(self, X: np.ndarray, site: np.ndarray, covariates: np.ndarray | None) -> np.ndarray:
        """Subtract the effects of a scan's covariates; features at the mean covariates are unchanged.

        Shapes: X [n, d], site [n], covariates [n, C]; returns [n, d].
        """
        assert covariates is not None
        return X - fill_gaps(covariates) @ self.slope


def fit_residualiser(X: np.ndarray, group: np.ndarray, covariates: np.ndarray) -> Residualiser:
    """Fit slopes of features on covariates by least squares with an intercept for each group.

    A group is one class at one site. A difference between sites, or between patients and controls, is therefore not
    mistaken for an effect of age, however much their ages differ.

    Shapes: X [n, d], group [n], covariates [n, C].
    """
    within, known = X.astype(np.float64), fill_gaps(covariates)
    for name in np.unique(group):
        here = group == name
        within[here] -= within[here].mean(0)
        known[here] -= known[here].mean(0)
    varies = np.abs(known).max(0) > CONSTANT  # else the slope would be one on rounding errors
    slope = np.zeros((known.shape[1], X.shape[1]))
    slope[varies] = np.linalg.lstsq(known[:, varies], within, rcond=None)[0]
    return Residualiser(slope)


def fill_gaps(covariates: np.ndarray) -> np.ndarray:
    """Return covariates standardised by the source scans; gaps are 0, the mean. Shape [n, C]."""
    return np.where(np.isnan(covariates), 0.0, covariates)


@dataclass(frozen=True, eq=False)
class Harmoniser:
    """Effects fitted to source scans, which can be removed from scans of the same or another cohort.

    Shapes: dead_roi_fill [P, P], covariate_mean, covariate_sd [C].
    """

    rule: HarmonisationRule
    effects: Combat | Residualiser  # of the source sites, or slopes on covariates
    dead_roi_fill: Tensor  # what the edges of an ROI without signal hold: the mean connectome of the source sites
    covariate_mean: np.ndarray  # of the covariates of the source scans; C = 0 where there are none
    covariate_sd: np.ndarray

    def read_covariates(self, cohort: Cohort) -> np.ndarray | None:
        """Read covariates standardised by the source scans, [n, C]; None if the rule has none."""
        if not self.rule.covariates:
            return None
        return (_read_covariates(cohort, self.rule) - self.covariate_mean) / self.covariate_sd


def fit_harmoniser(plain: Connectomes, source: np.ndarray, rule: HarmonisationRule) -> Harmoniser:
    """Fit effects of sites or covariates to source scans."""
    sites = plain.cohort.sites
    fill = source_mean([plain.site_mean(source[sites[source] == e]) for e in np.unique(sites[source])])
    mean, sd = np.zeros(0), np.ones(0)
    known = None
    if rule.covariates:
        known = _read_covariates(plain.cohort, rule)[source]
        require_covariates(known, rule, "this run")
        mean, sd = known.mean(0), known.std(0).clip(1e-9)
        if rule.kind == "residualise":  # motion may have gaps, and one sex alone must not be divided by nothing
            mean, sd = np.nanmean(known, axis=0), np.nanstd(known, axis=0)
            sd = np.where(sd > CONSTANT * np.abs(mean).clip(1.0), sd, 1.0)
        known = (known - mean) / sd
    index = torch.from_numpy(source).to(plain.device)
    edges = _read_filled_edges(plain.full[index], plain.alive[index], fill)
    if rule.kind == "residualise":
        assert known is not None
        groups = 2 * np.unique(sites[source], return_inverse=True)[1] + plain.cohort.labels[source]
        return Harmoniser(rule, fit_residualiser(edges, groups, known), fill, mean, sd)
    return Harmoniser(rule, fit_combat(edges, sites[source], known), fill, mean, sd)


class HarmonisedConnectomes(Connectomes):
    """Connectomes of a cohort without effects of sites or covariates; re-estimates are treated in the same way."""

    def __init__(self, plain: Connectomes, harmoniser: Harmoniser) -> None:
        self.__dict__.update(plain.__dict__)  # frames, horizons and BOLD are shared
        self._fc_summaries = {}  # not shared
        unseen = harmoniser.rule.unseen
        if "site" in plain.cohort.participants:
            self._sites = plain.cohort.sites
        elif unseen in ("unlabelled", "raise"):
            lack = f"cohort '{plain.cohort.name}' has no column 'site'; add this column to its participants table"
            raise BrioError(f"harmonise.unseen={unseen} needs the site of every scan, but {lack}")
        else:
            self._sites = np.full(len(plain), "")  # one unnamed site
        self._dead_roi_fill = harmoniser.dead_roi_fill.to(plain.full)
        self._covariates = harmoniser.read_covariates(plain.cohort)
        self.effects = harmoniser.effects
        x = _read_filled_edges(plain.full, plain.alive, self._dead_roi_fill)
        if isinstance(self.effects, Combat):
            self.effects = self.effects.extend_to_unseen_sites(x, self._sites, unseen, self._covariates)
        self.full = self._harmonise(plain.full, plain.alive, np.arange(len(plain)), x)

    def iterate_reestimates(
        self, request: ReestimateRequest, max_bytes: int | None = None
    ) -> Iterator[tuple[np.ndarray, Tensor]]:
        """Yield harmonised re-estimates, as :meth:`Connectomes.iterate_reestimates` does."""
        for chunk, A in super().iterate_reestimates(request, max_bytes):
            scans = np.repeat(request.scans[chunk], request.K)
            flat = A.flatten(0, 1)
            alive = self.alive[torch.from_numpy(scans).to(self.device)]
            edges = _read_filled_edges(flat, alive, self._dead_roi_fill)
            yield chunk, self._harmonise(flat, alive, scans, edges).unflatten(0, A.shape[:2])

    def find_block_changes(self, i: int, count: int, block_length: int | None = None) -> np.ndarray:
        """Return the changes of harmonised connectomes: effects are linear in a scan's edges, up to a constant."""
        change = torch.from_numpy(super().find_block_changes(i, count, block_length))
        scans = np.full(len(change), i)
        alive, edges = self.alive[i].cpu().expand(len(change), -1), read_edges(change).numpy()
        moved, still = (self._harmonise(change, alive, scans, x) for x in (edges, np.zeros_like(edges)))
        return np.asarray((moved - still).numpy())

    def _harmonise(self, A: Tensor, alive: Tensor, scans: np.ndarray, edges: np.ndarray) -> Tensor:
        """Symmetric matrices of harmonised edges, zero rows for dead ROIs. Shape [n, P, P]."""
        known = None if self._covariates is None else self._covariates[scans]
        harmonised = self.effects.apply(edges, self._sites[scans], known)
        live = alive.to(A.dtype)
        full = unfold_edges(torch.from_numpy(harmonised).to(A), A.shape[-1])
        return full * live.unsqueeze(-1) * live.unsqueeze(-2)


def harmonise_connectomes(plain: Connectomes, source: np.ndarray, rule: HarmonisationRule) -> Connectomes:
    """Harmonise connectomes for a run with these source scans; without harmonisation, return them as they are."""
    return plain if rule.kind == "none" else HarmonisedConnectomes(plain, fit_harmoniser(plain, source, rule))


def _read_covariates(cohort: Cohort, rule: HarmonisationRule) -> np.ndarray:
    return read_covariates(cohort, rule.covariate_names, "harmonise.covariates", "leave out this covariate")


def _read_filled_edges(A: Tensor, alive: Tensor, fill: Tensor) -> np.ndarray:
    """Edges above the diagonal, dead ROIs filled. Shape [n, P, P] -> [n, P (P - 1) / 2]."""
    return read_edges(fill_dead(A, alive, fill.to(A))).double().cpu().numpy()

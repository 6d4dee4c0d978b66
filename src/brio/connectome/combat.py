"""ComBat: site effects of source sites, estimated by empirical Bayes, and policies for all other sites.

Johnson et al. 2007, applied to imaging by Fortin et al. 2018. ComBat knows nothing about a site it was not fitted to,
so what happens there is an explicit choice: see :class:`brio.connectome.HarmonisationRule`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..errors import BrioError


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
            raise BrioError(
                f"ComBat was not fitted to site {new[0]} (harmonise.unseen=raise); choose identity, pooled or "
                "unlabelled (transductive), or a protocol without test sites (kfold)"
            )
        gamma, delta = list(self.gamma), list(self.delta)
        for name in new:
            here = site == name
            if policy == "unlabelled":
                z = (X[here] - self.expected_value(None if covariates is None else covariates[here])) / self.sigma
                shift, variance = _posterior(z, *self.prior)
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
        raise BrioError(f"ComBat needs at least two scans of each site; {names[count < 2][0]} has one")
    one_hot = np.eye(len(names))[index]
    design = one_hot if covariates is None else np.hstack([one_hot, covariates])
    effects = np.linalg.lstsq(design, X, rcond=None)[0]
    alpha = (count / len(X)) @ effects[: len(names)]
    beta = effects[len(names) :]
    variance = np.square(X - design @ effects).mean(0)
    sigma = np.sqrt(np.where(variance > 0, variance, 1.0))
    expected = alpha if covariates is None else alpha + covariates @ beta
    z = (X - expected) / sigma
    gammas, deltas, priors = [], [], []
    for e in range(len(names)):
        prior = _prior(z[index == e])
        gamma, delta = _posterior(z[index == e], *prior)
        gammas.append(gamma)
        deltas.append(delta)
        priors.append(prior)
    return Combat(
        tuple(str(n) for n in names), alpha, sigma, beta, np.stack(gammas), np.stack(deltas), np.mean(priors, 0)
    )


def _prior(z: np.ndarray) -> tuple[float, float, float, float]:
    """Prior of a site from moments over features: of the shifts (normal) and of the variances (inverse gamma)."""
    gamma, delta = z.mean(0), z.var(0, ddof=1)
    several = z.shape[1] > 1  # one feature has no spread over features: its moments are its own
    m, s2 = delta.mean(), max(delta.var(ddof=1) if several else 0.0, 1e-12)
    spread = float(gamma.var(ddof=1)) if several else 0.0
    return float(gamma.mean()), spread, float((2 * s2 + m**2) / s2), float((m * s2 + m**3) / s2)


def _posterior(
    z: np.ndarray, mean: float, spread: float, shape: float, scale: float, tolerance: float = 1e-4
) -> tuple[np.ndarray, np.ndarray]:
    """Posterior shift and variance of a site by iterated conditional modes."""
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
        if change <= tolerance:
            break
    return gamma, np.where(delta > 0, delta, 1.0)

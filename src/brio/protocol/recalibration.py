"""Calibration at new sites: recalibration of one site, its mean over sites, parts of the Brier score, net benefit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import expit, stdtrit

_LARGEST_STEP = 5.0
_ITERATIONS = 50


class Recalibration(NamedTuple):
    """How the logits of one site would have to be changed to fit its labels."""

    slope: float  # of the logistic regression of labels on logits; 1 is calibrated, below 1 predictions are too extreme
    slope_se: float
    intercept: float  # of the same regression
    intercept_se: float
    in_the_large: float  # intercept with the slope fixed to 1; below 0 there are fewer patients than predicted
    in_the_large_se: float


def fit_recalibration(label: np.ndarray, logit: np.ndarray) -> Recalibration:
    """Fit slope and intercept of the logits of one site (logistic recalibration, Cox 1958).

    Shapes: label [n], logit [n].

    Returns NaN where there is one class only, or a logit is missing, as of a run that diverged; slope and intercept are
    NaN where logits separate the classes completely, or do not differ.
    """
    label, logit = np.asarray(label, dtype=float), np.asarray(logit, dtype=float)
    nothing = (np.array([np.nan]), np.array([np.nan]))
    if not 0 < label.mean() < 1 or not np.isfinite(logit).all():
        return Recalibration(*[float("nan")] * 6)
    ones = np.ones((len(label), 1))
    large, large_se = _fit_logistic(ones, label, logit) or nothing
    separated = logit[label == 1].min() >= logit[label == 0].max() or logit[label == 1].max() <= logit[label == 0].min()
    fit = None if separated else _fit_logistic(np.column_stack([ones, logit]), label, np.zeros(len(label)))
    beta, se = fit or (np.full(2, np.nan), np.full(2, np.nan))
    return Recalibration(*map(float, (beta[1], se[1], beta[0], se[0], large[0], large_se[0])))


def _fit_logistic(X: np.ndarray, y: np.ndarray, offset: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Coefficients and standard errors of an unpenalised logistic regression by Newton's method; None without one."""
    beta = np.zeros(X.shape[1])
    for _ in range(_ITERATIONS):
        p = expit(X @ beta + offset)
        information = (X * (p * (1 - p))[:, None]).T @ X
        if np.linalg.cond(information) > 1e12:
            return None
        step = np.linalg.solve(information, X.T @ (y - p))
        beta = beta + step * min(1.0, _LARGEST_STEP / max(np.abs(step).max(), 1e-300))
        if np.abs(step).max() < 1e-10:
            return beta, np.sqrt(np.diag(np.linalg.inv(information)))
    return None


@dataclass(frozen=True)
class SiteMean:
    """The mean of a quantity over sites that each know it with a standard error."""

    mean: float  # with its 95 % interval
    low: float
    high: float
    sd: float  # of the true values between sites
    new_low: float  # 95 % interval of the true value at a new site
    new_high: float
    n: int  # sites that have a value


def average_over_sites(value: np.ndarray, se: np.ndarray) -> SiteMean:
    """Average estimates of sites by a random-effects model.

    The variance between sites is that of DerSimonian & Laird (1986), the interval of the mean that of Hartung & Knapp
    (2001). The interval for a new site draws the variance between sites from its confidence distribution (Viechtbauer
    2007; the idea of Nagashima, Noma & Furukawa 2019): with the estimate alone it would hold 90 % of new sites only.

    Shapes: value, se [sites].

    Returns intervals are NaN with fewer than three sites.
    """
    known = np.isfinite(value) & np.isfinite(se) & (se > 0)
    x, variance, n = value[known], se[known] ** 2, int(known.sum())
    if n == 0:
        return SiteMean(np.nan, np.nan, np.nan, np.nan, np.nan, np.nan, 0)
    w = 1 / variance
    q = float((w * (x - (w * x).sum() / w.sum()) ** 2).sum())
    scale = w.sum() - (w**2).sum() / w.sum()
    between = max(0.0, (q - (n - 1)) / scale) if n > 1 else 0.0
    w = 1 / (variance + between)
    mean = float((w * x).sum() / w.sum())
    if n < 3:
        return SiteMean(mean, np.nan, np.nan, np.nan, np.nan, np.nan, n)
    spread = float((w * (x - mean) ** 2).sum() / (n - 1))
    error = np.sqrt(max(1.0, spread) / w.sum())  # never below the interval that ignores the estimate of the spread
    own = stdtrit(n - 1, 0.975) * error
    new_low, new_high = np.quantile(_draw_new_sites(x, variance), [0.025, 0.975])
    return SiteMean(mean, mean - own, mean + own, float(np.sqrt(between)), float(new_low), float(new_high), n)


def _draw_new_sites(x: np.ndarray, variance: np.ndarray, count: int = 4_000) -> np.ndarray:
    """Draw true values of new sites from estimates of n sites and their sampling variances. Shape [count]."""
    rng = np.random.default_rng(0)
    between = np.concatenate([[0.0], np.geomspace(1e-4, 1e3, 400) * x.var()])  # [grid]
    w = 1 / (variance + between[:, None])
    mean = (w * x).sum(axis=1) / w.sum(axis=1)
    q = (w * (x - mean[:, None]) ** 2).sum(axis=1)  # falls with the variance; chi-squared at its true value
    drawn = np.interp(-rng.chisquare(len(x) - 1, count), -q, between)
    centre, error = np.interp(drawn, between, mean), np.interp(drawn, between, w.sum(axis=1) ** -0.5)
    return centre + np.hypot(error, np.sqrt(drawn)) * rng.normal(size=count)


class BrierParts(NamedTuple):
    """Brier score = miscalibration - discrimination + uncertainty."""

    brier: float
    miscalibration: float
    discrimination: float
    uncertainty: float


def split_brier(label: np.ndarray, probability: np.ndarray) -> BrierParts:
    """Split the Brier score into parts, without bins.

    Miscalibration is what isotonic recalibration on the same scans would take off, discrimination what the
    recalibrated probabilities are better than the share of patients, whose own score is the uncertainty (Dimitriadis,
    Gneiting & Jordan, PNAS 2021).

    Shapes: label [n], probability [n].
    """
    from sklearn.isotonic import IsotonicRegression

    label = np.asarray(label, dtype=float)
    recalibrated = IsotonicRegression(out_of_bounds="clip").fit_transform(probability, label)
    brier, best = (float(((p - label) ** 2).mean()) for p in (probability, recalibrated))
    uncertainty = float(label.var())
    return BrierParts(brier, brier - best, uncertainty - best, uncertainty)


def compute_net_benefit(label: np.ndarray, probability: np.ndarray, threshold: np.ndarray) -> np.ndarray:
    """Compute the net benefit of treating everybody above a threshold probability (Vickers & Elkin 2006).

    True positives count one, false positives the odds of the threshold, both per scan. Treating nobody has net benefit
    0; probabilities of 1 give that of treating all.

    Shapes: label [n], probability [n], threshold [k]; returns [k].
    """
    treated = probability[:, None] >= threshold
    true, false = (treated & (label == c)[:, None] for c in (1, 0))
    return true.mean(axis=0) - false.mean(axis=0) * threshold / (1 - threshold)

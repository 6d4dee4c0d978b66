"""Probabilities: reliability and ROC curves, recalibration at a site, Brier parts, net benefit, repeated scans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit, stdtrit
from scipy.special import logit as to_logit

from ..errors import BrioError
from .metrics import merge_ties
from .statistics import FoldOverlap, t_interval

RESAMPLES = 2_000
WHOLE_COEFFICIENT = 4.0
"""Width from which the interval of a calibration slope or intercept is uninformative, such as -1 to 3."""


def reliability_curve(
    label: np.ndarray, probability: np.ndarray, bins: int = 10, site: np.ndarray | None = None
) -> pd.DataFrame:
    """Compute the reliability curve: the share of patients among scans with similar predicted probabilities.

    Bins hold equal numbers of scans; scans of one probability are in one bin.

    Shapes: label [n], probability [n], site [n]. Returns one row per bin: ``left``, ``right``, ``count``, mean
    ``probability`` and ``observed`` share of patients; NaN for an empty bin.
    """
    label, probability = np.asarray(label), np.asarray(probability, dtype=float)
    if bins < 1:
        raise BrioError(f"bins={bins}: must be at least 1")
    if not ((probability >= 0) & (probability <= 1)).all():
        raise BrioError("probabilities must lie between 0 and 1; convert logits to probabilities first")
    edges = np.unique(np.quantile(probability, np.linspace(0, 1, bins + 1)))
    if len(edges) == 1:  # all probabilities are the same
        edges = np.repeat(edges, 2)
    bin_of, n_bins = np.searchsorted(edges[1:-1], probability), len(edges) - 1  # on an edge: in the lower bin
    count = np.bincount(bin_of, minlength=n_bins)
    with np.errstate(invalid="ignore"):  # 0 / 0 in empty bins
        table = pd.DataFrame(
            {
                "left": edges[:-1],
                "right": edges[1:],
                "count": count,
                "probability": np.bincount(bin_of, probability, n_bins) / count,
                "observed": np.bincount(bin_of, label, n_bins) / count,
            }
        )
    if site is not None:
        table["low"], table["high"] = _observed_interval(label, bin_of, np.asarray(site), n_bins)
    return table


def _observed_interval(
    label: np.ndarray, bin_of: np.ndarray, site: np.ndarray, n_bins: int
) -> tuple[np.ndarray, np.ndarray]:
    """95% bootstrap interval over sites of the share of patients in each bin; NaN where a bin has one site only."""
    names, site_of = np.unique(site, return_inverse=True)
    cell, n_cells = site_of * n_bins + bin_of, len(names) * n_bins
    scans = np.bincount(cell, minlength=n_cells).reshape(-1, n_bins)  # [sites, bins]
    patients = np.bincount(cell, label, n_cells).reshape(-1, n_bins)
    drawn = np.random.default_rng(0).integers(0, len(names), (RESAMPLES, len(names)))
    with np.errstate(invalid="ignore"):  # a draw may miss all sites of a bin
        shares = patients[drawn].sum(axis=1) / scans[drawn].sum(axis=1)  # [resamples, bins]
    several_sites = (scans > 0).sum(axis=0) > 1
    interval = np.full((2, n_bins), np.nan)
    interval[:, several_sites] = np.nanquantile(shares[:, several_sites], [(1 - 0.95) / 2, (1 + 0.95) / 2], axis=0)
    return interval[0], interval[1]


def calibration_error(label: np.ndarray, probability: np.ndarray, bins: int = 10) -> float:
    """Compute the expected calibration error: the mean gap between observed and predicted share of patients.

    Bins are weighted by their number of scans. The error is above zero even for a perfectly calibrated model, and it
    grows as the number of scans per bin falls.
    """
    curve = reliability_curve(label, probability, bins)
    gap = (curve["observed"] - curve["probability"]).abs()
    return float((gap * curve["count"]).sum() / curve["count"].sum())


@dataclass(frozen=True, eq=False)
class RocBand:
    """The mean ROC curve over sites.

    Shapes: false_positive_rate [points], true_positive_rate, low, high [points].
    """

    false_positive_rate: np.ndarray
    true_positive_rate: np.ndarray  # mean over sites and its t interval, separately at each false-positive rate
    low: np.ndarray
    high: np.ndarray
    auc: float  # mean over sites of the exact AUC, and its t interval
    auc_low: float
    auc_high: float
    n_sites: int  # sites with a curve
    one_class_units: tuple[str, ...]  # sites (or folds) with one class only, which have no curve


def roc_band(
    predictions: pd.DataFrame,
    by: Sequence[str] = ("fold",),
    points: int = 201,
    correction: FoldOverlap | None = None,
) -> RocBand:
    """Compute the mean ROC curve over sites and its band of t intervals.

    The curve of each site is interpolated on common false-positive rates. Curves of the seeds of a site are averaged
    first. Sites have equal weight, whatever their size, and scans of different sites are not ranked against each other.
    """
    grid = np.linspace(0, 1, points)
    curves, areas, one_class_units = [], [], []
    for name, unit in predictions.groupby(list(by)):
        if unit["label"].nunique() < 2:
            one_class_units.append(", ".join(map(str, name)))
            continue
        runs = unit.groupby("seed")
        steps = [_trace_roc(run["label"].to_numpy(), run["margin"].to_numpy(float)) for _, run in runs]
        # on a vertical step, np.interp returns the upper end
        curves.append(np.mean([np.interp(grid, *step) for step in steps], axis=0))
        areas.append(np.mean([np.trapezoid(true, false) for false, true in steps]))
    if not curves:
        why = f"only one class at {'; '.join(one_class_units)}" if one_class_units else "there are no predictions"
        raise BrioError(f"no ROC curve can be computed: {why}")
    limits = (0.0, 1.0)
    band = np.array([t_interval(rates, correction, limits=limits) for rates in np.transpose(curves)])
    mean = np.mean(curves, axis=0)
    if len(curves) > 1:
        band = np.where(np.isnan(band), mean[:, None], band)  # where all curves meet, as at both ends
    low, high = t_interval(areas, correction, limits=limits)
    return RocBand(
        false_positive_rate=grid,
        true_positive_rate=mean,
        low=band[:, 0],
        high=band[:, 1],
        auc=float(np.mean(areas)),
        auc_low=low,
        auc_high=high,
        n_sites=len(curves),
        one_class_units=tuple(one_class_units),
    )


def _trace_roc(label: np.ndarray, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return false- and true-positive rates at the corners of a ROC curve, from (0, 0) to (1, 1).

    Like ``sklearn.metrics.roc_curve``, whose input checks take many times as long as the curve of one site.
    """
    if not np.isfinite(score).all():
        raise BrioError("no ROC curve can be computed: a margin is missing or infinite")
    score = merge_ties(score)
    order = np.argsort(score, kind="stable")[::-1]
    last_of_ties = np.flatnonzero(np.diff(score[order], append=np.nan) != 0)
    true = np.cumsum(label[order] == 1)[last_of_ties]
    false = last_of_ties + 1 - true
    turns = (np.diff(false, 2) != 0) | (np.diff(true, 2) != 0)  # points inside a straight line are left out
    corner = np.concatenate([[True], turns, [True]]) if len(true) > 1 else np.array([True])
    true, false = (np.concatenate([[0], count[corner]]) for count in (true, false))
    return false / false[-1], true / true[-1]


_LARGEST_STEP = 5.0
_ITERATIONS = 50


class Recalibration(NamedTuple):
    """The change of the logits of one site that would fit them to its labels."""

    slope: float  # of the logistic regression of labels on logits; 1 is calibrated, below 1 predictions are too extreme
    slope_se: float
    intercept: float  # of the same regression
    intercept_se: float
    in_the_large: float  # intercept with the slope fixed to 1; below 0 there are fewer patients than predicted
    in_the_large_se: float


def fit_recalibration(label: np.ndarray, logit: np.ndarray) -> Recalibration:
    """Fit slope and intercept of the logits of one site (logistic recalibration, Cox 1958).

    Shapes: label [n], logit [n]. Returns NaN where there is one class only, or a logit is missing, as of a run that
    diverged; slope and intercept are NaN where logits separate the classes completely, or do not differ.
    """
    label, logit = np.asarray(label, dtype=float), np.asarray(logit, dtype=float)
    if not 0 < label.mean() < 1 or not np.isfinite(logit).all():
        return Recalibration(*[float("nan")] * 6)
    ones = np.ones((len(label), 1))
    large, large_covariance = _fit_logistic(ones, label, logit) or (np.full(1, np.nan), np.full((1, 1), np.nan))
    separated = logit[label == 1].min() >= logit[label == 0].max() or logit[label == 1].max() <= logit[label == 0].min()
    beta, se = np.full(2, np.nan), np.full(2, np.nan)
    if not separated:  # fitted to standardised logits, of which no slope is too large for Newton's steps
        mean, sd = logit.mean(), logit.std()
        fit = _fit_logistic(np.column_stack([ones, (logit - mean) / sd]), label, np.zeros(len(label)))
        if fit is not None:
            back = np.array([[1.0, -mean / sd], [0.0, 1.0 / sd]])
            beta, se = back @ fit[0], np.sqrt(np.diag(back @ fit[1] @ back.T))
    return Recalibration(*map(float, (beta[1], se[1], beta[0], se[0], large[0], large_covariance[0, 0] ** 0.5)))


def read_logits(probability: pd.Series | np.ndarray) -> np.ndarray:
    """Return the logits of probabilities, which are kept away from 0 and 1, where they have none. Shape [n]."""
    return np.asarray(to_logit(np.asarray(probability, dtype=float).clip(1e-12, 1 - 1e-12)))


def recalibrate_sites(predictions: pd.DataFrame) -> pd.DataFrame:
    """Recalibrate every run at its test site; seeds of a site are averaged, since they see the same participants.

    Returns the columns of :class:`Recalibration` by site.
    """
    rows = []
    for (fold, _), run in predictions.groupby(["fold", "seed"], sort=False):
        fitted = fit_recalibration(run["label"].to_numpy(), read_logits(run["probability"]))
        rows.append({"fold": fold} | fitted._asdict())
    return pd.DataFrame(rows).groupby("fold").mean()


def _fit_logistic(X: np.ndarray, y: np.ndarray, offset: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Coefficients and their covariance of an unpenalised logistic regression by Newton's method; None without one."""
    beta = np.zeros(X.shape[1])
    for _ in range(_ITERATIONS):
        p = expit(X @ beta + offset)
        information = (X * (p * (1 - p))[:, None]).T @ X
        if np.linalg.cond(information) > 1e12:
            return None
        step = np.linalg.solve(information, X.T @ (y - p))
        beta = beta + step * min(1.0, _LARGEST_STEP / max(np.abs(step).max(), 1e-300))
        if np.abs(step).max() < 1e-10:
            return beta, np.linalg.inv(information)
    return None


@dataclass(frozen=True)
class SiteMean:
    """The mean of a quantity over sites, each with a standard error."""

    mean: float  # with its 95% interval
    low: float
    high: float
    sd: float  # of the true values between sites
    new_low: float  # 95% interval of the true value at a new site
    new_high: float
    n: int  # sites that have a value


def average_recalibration(sites: pd.DataFrame, name: str) -> SiteMean:
    """Average a column of :func:`recalibrate_sites` over sites, by :func:`average_over_sites`."""
    return average_over_sites(*sites[[name, f"{name}_se"]].to_numpy(dtype=float).T)


def average_over_sites(value: np.ndarray, se: np.ndarray) -> SiteMean:
    """Average estimates of sites by a random-effects model.

    The variance between sites is that of DerSimonian & Laird (1986), the interval of the mean that of Hartung & Knapp
    (2001). The interval for a new site draws the variance between sites from its confidence distribution (Viechtbauer
    2007; an idea of Nagashima, Noma & Furukawa 2019): with the estimate alone, it would cover only 90% of new sites.

    Shapes: value, se [sites]. Intervals are NaN with fewer than three sites.
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

    Miscalibration is the part that isotonic recalibration on the same scans would remove. Discrimination is how much
    better the recalibrated probabilities are than the share of patients, whose own score is the uncertainty
    (Dimitriadis, Gneiting & Jordan, PNAS 2021).

    Shapes: label [n], probability [n].
    """
    from sklearn.isotonic import IsotonicRegression

    label = np.asarray(label, dtype=float)
    recalibrated = IsotonicRegression(out_of_bounds="clip").fit_transform(probability, label)
    brier, best = (float(((p - label) ** 2).mean()) for p in (probability, recalibrated))
    uncertainty = float(label.var())
    return BrierParts(brier, brier - best, uncertainty - best, uncertainty)


def compute_net_benefit(label: np.ndarray, probability: np.ndarray, threshold: np.ndarray) -> np.ndarray:
    """Compute the net benefit of treating everyone above a threshold probability (Vickers & Elkin 2006).

    True positives add one, false positives subtract the odds of the threshold, both per scan. Treating no one has net
    benefit 0; probabilities of 1 give the net benefit of treating everyone.

    Shapes: label [n], probability [n], threshold [k]; returns [k].
    """
    treated = probability[:, None] >= threshold
    true, false = (treated & (label == c)[:, None] for c in (1, 0))
    return true.mean(axis=0) - false.mean(axis=0) * threshold / (1 - threshold)


class SessionVariance(NamedTuple):
    """Variance components of margins over repeated scans.

    Shapes: participants [...], sessions [...], icc [...].
    """

    participants: np.ndarray
    sessions: np.ndarray  # variance between sessions of a participant
    icc: np.ndarray  # share of participants in the sum of both: ICC(1)


def estimate_session_variance(
    values: np.ndarray, member: np.ndarray, cell: np.ndarray, weight: np.ndarray | None = None
) -> SessionVariance:
    """Estimate variance components and ICC(1) by analysis of variance.

    Shapes: values [N, ...], member [N], cell [n], weight [n]. Returns NaN where no cell has two participants.
    """
    values = np.asarray(values, dtype=float)
    k = np.bincount(member).astype(float)  # sessions of each participant
    w = np.ones(len(k)) if weight is None else np.asarray(weight, dtype=float)
    mean = _sum_by(values, member, len(k)) / _align(k, values)
    within = _sum_by((values - mean[member]) ** 2, member, len(k))  # [n, ...]
    n_cells = int(cell.max()) + 1
    size, n = np.bincount(cell, w * k, n_cells), np.bincount(cell, w, n_cells)  # scans and participants of each cell
    filled = np.maximum(size, 1e-300)
    centre = _sum_by(_align(w * k, values) * mean, cell, n_cells) / _align(filled, values)
    between = (_align(w * k, values) * (mean - centre[cell]) ** 2).sum(axis=0)
    df_between, df_within = float(np.maximum(n - 1, 0).sum()), float((w * (k - 1)).sum())
    # a cell with one participant has nothing between participants: it adds 0 to both sums
    effective = float((size - np.bincount(cell, w * k**2, n_cells) / filled).sum())
    with np.errstate(invalid="ignore", divide="ignore"):
        sessions = (_align(w, values) * within).sum(axis=0) / np.float64(df_within)
        n_sessions = np.float64(effective) / df_between
        participants = (between / np.float64(df_between) - sessions) / n_sessions
        return SessionVariance(participants, sessions, participants / (participants + sessions))


def _sum_by(values: np.ndarray, group: np.ndarray, n_groups: int) -> np.ndarray:
    total = np.zeros((n_groups, *values.shape[1:]))
    np.add.at(total, group, values)
    return total


def _align(factor: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Give a factor of the first axis as many axes as the values have."""
    return factor.reshape(-1, *[1] * (values.ndim - 1))


def count_agreeing_pairs(decision: np.ndarray, member: np.ndarray) -> np.ndarray:
    """Compute the share of pairs of scans of each participant that get the same decision.

    Shapes: decision [N, ...], member [N]; returns [n, ...].
    """
    k = _align(np.bincount(member).astype(float), decision)
    yes = _sum_by(decision.astype(float), member, len(k))
    no = k - yes
    return (yes * (yes - 1) + no * (no - 1)) / (k * (k - 1))


def jackknife_participants(
    statistic: Callable[[np.ndarray], np.ndarray], cell: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Compute 95% intervals of statistics by leaving out each participant once.

    A bootstrap would draw participants of a small cell twice, which makes variances between participants too small;
    the jackknife has no such bias. Cells are independent samples, so their variances add up (Efron & Stein 1981).

    Shapes: statistic [n], cell [n]; returns [m].
    """
    centre = statistic(np.ones(len(cell)))
    without = np.array([statistic(weight) for weight in 1.0 - np.eye(len(cell))])
    variance = np.zeros(np.shape(centre))
    for own in (without[cell == c] for c in np.unique(cell)):
        variance += (len(own) - 1) / len(own) * ((own - own.mean(axis=0)) ** 2).sum(axis=0)
    half = 1.959963984540054 * np.sqrt(variance)
    return centre - half, centre + half

"""The variance of a mean over left-out sites or folds, and what follows from it: intervals and detectable differences.

Scores of left-out sites share training scans, so their mean varies more between cohorts than SD / sqrt(n) says.
Nadeau and Bengio's variance allows for that: (1/n + c) times the variance of one score. Here c is the number of test
scans over that of source scans that two models share, 1/(n - 2) where each of n sites is left out once. Tests and
intervals were chosen by their level on real connectomes (``benchmarks/interval_coverage.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import ndtri, stdtrit

EQUIVALENCE_MARGIN = 0.02
"""Difference in AUC below which two methods are taken to be level; one value for all comparisons."""
LEAST_FOR_NEW_SITE = 5
"""With fewer sites, the prediction interval of a new site misses it too often."""
POWER = 0.8
"""Probability of a significant result at the smallest detectable difference."""

Values = Sequence[float] | np.ndarray
_NO_VARIANCE = 1e-20  # what rounding leaves of scores that are equal


@dataclass(frozen=True)
class FoldOverlap:
    """How much the folds of one seed share: their number, and what is added to one over it in a variance."""

    n_folds: int
    correction: float


def fold_correction(n_test: float, n_source: float, n_folds: int) -> FoldOverlap:
    """Return how the variance of a mean over folds is corrected.

    Training sets of different folds overlap, and folds of different seeds hold the same participants: seeds add no
    units, so a mean over the folds of several seeds has the variance and the degrees of freedom of one.
    """
    return FoldOverlap(n_folds, n_test / max(n_source - 2 * n_test, n_test))


def site_correction(n_sites: int) -> float:
    """Return what is added to 1/n in the variance of a mean over n sites, each left out once: 1/(n - 2).

    Nadeau and Bengio have one over the number of source sites, n - 1. Two models share n - 2 of them; with that number
    the tests hold their level for three sites, too.
    """
    return 1 / max(n_sites - 2, 1)


Correction = FoldOverlap | float | None


def _count_units(values: np.ndarray, correction: Correction) -> tuple[int, float]:
    """Return the number of units that a mean rests on, and what is added to one over it."""
    if isinstance(correction, FoldOverlap):
        return min(len(values), correction.n_folds), correction.correction
    return len(values), site_correction(len(values)) if correction is None else correction


def degrees_of_freedom(values: Values, correction: Correction = None) -> int:
    """Return the degrees of freedom of a t test over sites, or over the folds of several seeds."""
    return _count_units(np.asarray(values), correction)[0] - 1


def standard_error(values: Values, correction: Correction = None) -> float:
    """Compute the standard error of a mean over sites or folds.

    Shapes: values [n].

    Returns NaN for fewer than two values, and for values that do not vary: they say nothing of their spread.
    """
    present = np.asarray(values, dtype=float)
    if len(present) < 2:
        return float("nan")
    n, added = _count_units(present, correction)
    variance = present.var(ddof=1)
    return float(np.sqrt((1 / n + added) * variance)) if variance > _NO_VARIANCE else float("nan")


def t_interval(
    values: Values,
    correction: Correction = None,
    *,
    level: float = 0.95,
    limits: tuple[float, float] = (-np.inf, np.inf),
) -> tuple[float, float]:
    """Compute the corrected t interval of the mean over left-out sites or folds.

    Over sites, the interval is about the mean over sites like these, of which the present ones are a sample.

    Shapes: values [n].

    Returns low, high: NaN for fewer than two values, and for values that do not vary, such as an AUC of 1 at every
    site.
    """
    present = np.asarray(values, dtype=float)
    present = present[~np.isnan(present)]
    return _interval(present, correction, degrees_of_freedom(present, correction), level, limits)


def new_site_interval(
    values: Values, *, level: float = 0.95, limits: tuple[float, float] = (-np.inf, np.inf)
) -> tuple[float, float]:
    """Compute the prediction interval of the score at one new site of a size like these.

    Its variance is that between sites times 1 + 1/n + 2c, with n - 2 degrees of freedom as in Higgins et al.

    Returns low, high: NaN for fewer than :data:`LEAST_FOR_NEW_SITE` values, and for values that do not vary.
    """
    present = np.asarray(values, dtype=float)
    present = present[~np.isnan(present)]
    n = len(present)
    if n < LEAST_FOR_NEW_SITE:
        return float("nan"), float("nan")
    return _interval(present, 1 + 2 * site_correction(n), n - 2, level, limits)


def _interval(
    present: np.ndarray, correction: Correction, df: int, level: float, limits: tuple[float, float]
) -> tuple[float, float]:
    """Interval around the mean of values without NaN."""
    half = stdtrit(df, (1 + level) / 2) * standard_error(present, correction)
    if np.isnan(half):
        return float("nan"), float("nan")
    return float(max(limits[0], present.mean() - half)), float(min(limits[1], present.mean() + half))


def detectable_difference(error: float, df: float = np.inf, *, alpha: float = 0.05, power: float = POWER) -> float:
    """Compute the smallest true difference that a two-sided t test finds with a given power.

    Returns NaN where the standard error is not known, or is zero: scores that do not vary say nothing of their spread.
    """
    if not error > 0:
        return float("nan")
    if not np.isfinite(df):
        return float(error * (ndtri(1 - alpha / 2) + ndtri(power)))
    return error * _detectable_effect(float(df), float(alpha), float(power))


@cache  # a table asks for the same few over and over
def _detectable_effect(df: float, alpha: float, power: float) -> float:
    """The smallest detectable difference in units of its standard error."""
    from scipy import optimize, stats

    critical = float(stdtrit(df, 1 - alpha / 2))

    def missing_power(effect: float) -> float:
        # the other tail is left out: a significant result of the wrong sign finds nothing
        return float(stats.nct.sf(critical, df, effect)) - power

    return float(optimize.brentq(missing_power, 0.0, 10.0 + 3.0 * critical))

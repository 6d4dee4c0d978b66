"""Intervals of means over sites or folds, and the smallest difference that a comparison could have shown.

The intervals were chosen by their coverage in simulation (``benchmarks/interval_coverage.py``): Student's t over sites
covers 94 to 96 % from three sites on, where a bootstrap of three sites covers 74 to 77 %; the corrected resampled t
over folds covers 94 to 97 %, where a bootstrap that takes the folds of all seeds as independent covers 60 to 67 %.
Models of different test sites share training scans: where they are really trained, the t interval of an AUC over 20
sites covers 92 to 93 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from scipy.special import ndtri, stdtrit

__all__ = ["EQUIVALENCE_MARGIN", "POWER", "detectable_difference", "fold_correction", "standard_error", "t_interval"]

EQUIVALENCE_MARGIN = 0.02
"""Difference in AUC, fixed in advance, below which two methods are taken to be level."""
POWER = 0.8
"""Probability of a significant result at the smallest detectable difference."""

Values = Sequence[float] | np.ndarray


def fold_correction(n_test: float, n_source: float) -> float:
    """Return what the corrected resampled t adds to 1/k in the variance of a mean over k folds.

    Training sets of different folds overlap, and folds of different seeds hold the same participants, so scores vary
    less between folds than they would between cohorts.

    Parameters
    ----------
    n_test : float
        Mean number of test scans of a fold.
    n_source : float
        Mean number of scans that the model learned from. For the mean of one method, all scans but the test scans are
        counted, those for validation included: the coverage of the interval is then nearest to its level.

    Returns
    -------
    float

    References
    ----------
    Nadeau & Bengio, Machine Learning 52, 239 (2003); for repeated k-fold Bouckaert & Frank, PAKDD 2004.

    Examples
    --------
    >>> round(fold_correction(103, 927), 3)
    0.111
    """
    return n_test / n_source


def standard_error(values: Values, correction: float = 0.0) -> float:
    """Compute the standard error of a mean over sites or folds.

    Parameters
    ----------
    values : array-like of float, shape [n]
        Without NaN.
    correction : float
        0 over sites, :func:`fold_correction` over folds.

    Returns
    -------
    float
        NaN for fewer than two values.
    """
    present = np.asarray(values, dtype=float)
    if len(present) < 2:
        return float("nan")
    return float(np.sqrt((1 / len(present) + correction) * present.var(ddof=1)))


def t_interval(
    values: Values,
    correction: float = 0.0,
    *,
    level: float = 0.95,
    limits: tuple[float, float] = (-np.inf, np.inf),
) -> tuple[float, float]:
    """Compute Student's t interval of the mean over sites, or its corrected form over folds.

    Over sites, the interval is about the mean over sites like these, of which the present ones are a sample.

    Parameters
    ----------
    values : array-like of float, shape [n]
        NaN are ignored.
    correction : float
        0 over sites, :func:`fold_correction` over folds.
    level : float
    limits : tuple of float
        Smallest and largest value that a score can have; the interval ends there.

    Returns
    -------
    low, high : float
        NaN for fewer than two values.

    Examples
    --------
    >>> low, high = t_interval([0.7, 0.8, 0.9])
    >>> round(low, 3), round(high, 3)
    (0.552, 1.048)
    """
    present = np.asarray(values, dtype=float)
    present = present[~np.isnan(present)]
    if len(present) < 2:
        return float("nan"), float("nan")
    half = stdtrit(len(present) - 1, (1 + level) / 2) * standard_error(present, correction)
    return float(max(limits[0], present.mean() - half)), float(min(limits[1], present.mean() + half))


def detectable_difference(error: float, df: float = np.inf, *, alpha: float = 0.05, power: float = POWER) -> float:
    """Compute the smallest true difference that a two-sided t test finds with a given power.

    Parameters
    ----------
    error : float
        Standard error of the mean difference.
    df : float
        Degrees of freedom; infinite for a z test.
    alpha : float
        Level of the test; the level divided by the number of comparisons bounds that of a family (Bonferroni).
    power : float

    Returns
    -------
    float
        NaN where the standard error is not known, or is zero: scores that do not vary say nothing of their spread.

    Examples
    --------
    >>> round(detectable_difference(1.0), 3), round(detectable_difference(1.0, 19), 3)
    (2.802, 2.954)
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

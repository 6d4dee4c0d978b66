"""Paired tests of two methods, over sites or over folds, and Holm's correction for several comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from .intervals import EQUIVALENCE_MARGIN, Correction, degrees_of_freedom, standard_error, t_interval

Values = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Difference:
    """The paired difference between two methods."""

    n: int  # number of pairs compared: sites, or folds
    n_missing: int  # number of pairs in which a score is missing
    mean: float
    low: float
    high: float
    error: float  # standard error of the mean; NaN for fewer than two pairs, and where the differences do not vary
    better: int  # number of pairs in which the first method is better, and worse; the rest are ties
    worse: int
    p: float  # two-sided p value; NaN where the standard error is
    p_level: float  # of two one-sided tests: small where the methods differ by less than the margin
    df: int  # degrees of freedom


def _paired_differences(first: Values, second: Values) -> tuple[np.ndarray, int]:
    """Differences of the pairs with both scores, and the number of other pairs.

    Rounded, so that scores that are equal as fractions give exact ties.
    """
    differences = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    complete = differences[~np.isnan(differences)].round(12)
    return complete, len(differences) - len(complete)


def compare_by_corrected_t(
    first: Values,
    second: Values,
    correction: Correction = None,
    *,
    alpha: float = 0.05,
    lower_is_better: bool = False,
    margin: float = EQUIVALENCE_MARGIN,
) -> Difference:
    """Compare the scores of two methods at the same left-out sites, or on the same folds, by a corrected t test.

    Shapes: first, second [n].
    """
    differences, n_missing = _paired_differences(first, second)
    n = len(differences)
    mean = float(differences.mean()) if n else float("nan")
    low, high = t_interval(differences, correction, level=1 - alpha)
    error = standard_error(differences, correction)
    better, worse = int((differences > 0).sum()), int((differences < 0).sum())
    if lower_is_better:
        better, worse = worse, better
    p, p_level, df = float("nan"), float("nan"), degrees_of_freedom(differences, correction)
    if error > 0:
        p = float(2 * stdtr(df, -abs(mean) / error))
        p_level = float(stdtr(df, (abs(mean) - margin) / error))
    return Difference(n, n_missing, mean, low, high, error, better, worse, p, p_level, df)


def compare_groups(first: Values, second: Values, *, alpha: float = 0.05) -> Difference:
    """Compare the mean of a score, or of a gain, between two groups of left-out sites by a t test.

    What the models of all sites share does not change the difference between groups, so nothing is added to the
    variance of the t test with one variance for both.

    Shapes: first, second [sites of the group].

    Returns of the means, first minus second; NaN for a group of fewer than two sites.
    """
    groups = [values[~np.isnan(values)] for values in (np.asarray(first, float), np.asarray(second, float))]
    sizes = [len(values) for values in groups]
    n_missing = len(first) + len(second) - sum(sizes)
    nan = float("nan")
    if min(sizes) < 2:
        return Difference(sum(sizes), n_missing, nan, nan, nan, nan, 0, 0, nan, nan, 0)
    df = sum(sizes) - 2
    within = sum((len(values) - 1) * values.var(ddof=1) for values in groups) / df
    error = float(np.sqrt(within * sum(1 / n for n in sizes)))
    mean = float(groups[0].mean() - groups[1].mean())
    half = float(stdtrit(df, 1 - alpha / 2)) * error
    p = float(2 * stdtr(df, -abs(mean) / error)) if error > 0 else nan
    return Difference(sum(sizes), n_missing, mean, mean - half, mean + half, error, 0, 0, p, nan, df)


def adjust_holm(p: Values) -> np.ndarray:
    """Adjust p values for the number of comparisons in their family, by Holm's method.

    Rejecting where the adjusted value is at most alpha bounds the probability of any false rejection by alpha, however
    the comparisons depend on each other.

    Shapes: p [comparisons]; returns [comparisons].
    """
    raw = np.asarray(p, dtype=float)
    adjusted = np.full(len(raw), np.nan)
    ascending = np.argsort(raw)[: int((~np.isnan(raw)).sum())]  # NaN sort last
    remaining = np.arange(len(ascending), 0, -1)
    adjusted[ascending] = np.minimum(1.0, np.maximum.accumulate(remaining * raw[ascending]))
    return adjusted

"""Tests and intervals over sites and folds whose scores share training data, and over participants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np
import pandas as pd
from scipy.special import ndtri, stdtr, stdtrit

from ..errors import BrioError, nearest
from ..formatting import format_count

EQUIVALENCE_MARGIN = 0.02
"""Difference in AUC below which two methods count as equivalent; one value for all comparisons."""
LEAST_FOR_NEW_SITE = 5
"""With fewer sites, the prediction interval for a new site misses its score too often."""
ALPHA = 0.05
"""Level of all tests; all intervals are 95% intervals."""
POWER = 0.8
"""Probability of a significant result at the smallest detectable difference."""

Values = Sequence[float] | np.ndarray
_NO_VARIANCE = 1e-20  # what rounding leaves of scores that are equal


@dataclass(frozen=True)
class FoldOverlap:
    """The overlap of the folds of one seed: their number, and the term added to 1 / number in a variance."""

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

    Nadeau and Bengio add one over the number of source sites, n - 1. Two models share n - 2 of them; with that number,
    the tests hold their level even for three sites.
    """
    return 1 / max(n_sites - 2, 1)


FEW_SITES = 5


def explain_few_sites(n_sites: int) -> str:
    """State what three to five sites can show; empty for other numbers."""
    if not 3 <= n_sites <= FEW_SITES:
        return ""
    reach = stdtrit(n_sites - 1, 1 - ALPHA / 2) * np.sqrt(1 / n_sites + site_correction(n_sites))
    return (
        f"With {n_sites} sites, only very large effects can be significant for new sites: the half-width of a 95% "
        f"interval is {reach:.1f} SDs across sites (t, {n_sites - 1} degrees of freedom). A small p value "
        "over participants or permuted labels does not contradict this, because it applies only to these sites."
    )


Correction = FoldOverlap | float | None


def _count_units(values: np.ndarray, correction: Correction) -> tuple[int, float]:
    """Return the number of units behind a mean, and the term added to 1 / number."""
    if isinstance(correction, FoldOverlap):
        return min(len(values), correction.n_folds), correction.correction
    return len(values), site_correction(len(values)) if correction is None else correction


def degrees_of_freedom(values: Values, correction: Correction = None) -> int:
    """Return the degrees of freedom of a t test over sites, or over the folds of several seeds."""
    return _count_units(np.asarray(values), correction)[0] - 1


def standard_error(values: Values, correction: Correction = None) -> float:
    """Compute the standard error of a mean over sites or folds.

    Shapes: values [n]. Returns NaN for fewer than two values, and for values that do not vary, because their spread is
    then unknown.
    """
    present = np.asarray(values, dtype=float)
    if len(present) < 2:
        return float("nan")
    n, added = _count_units(present, correction)
    variance = present.var(ddof=1)
    return float(np.sqrt((1 / n + added) * variance)) if variance > _NO_VARIANCE else float("nan")


def t_interval(
    values: Values, correction: Correction = None, *, limits: tuple[float, float] = (-np.inf, np.inf)
) -> tuple[float, float]:
    """Compute the corrected 95% t interval of the mean over left-out sites or folds.

    Over sites, the interval is for the mean over sites like these, of which the present ones are a sample.

    Shapes: values [n]. Returns low, high: NaN for fewer than two values, and for values that do not vary, such as an
    AUC of 1 at every site.
    """
    present = np.asarray(values, dtype=float)
    present = present[~np.isnan(present)]
    return _interval(present, correction, degrees_of_freedom(present, correction), limits)


def new_site_interval(values: Values, *, limits: tuple[float, float] = (-np.inf, np.inf)) -> tuple[float, float]:
    """Compute the 95% prediction interval of the score at one new site of a size like these.

    Its variance is that between sites times 1 + 1/n + 2c, with n - 2 degrees of freedom as in Higgins et al.

    Returns low, high: NaN for fewer than :data:`LEAST_FOR_NEW_SITE` values, and for values that do not vary.
    """
    present = np.asarray(values, dtype=float)
    present = present[~np.isnan(present)]
    n = len(present)
    if n < LEAST_FOR_NEW_SITE:
        return float("nan"), float("nan")
    return _interval(present, 1 + 2 * site_correction(n), n - 2, limits)


def _interval(present: np.ndarray, correction: Correction, df: int, limits: tuple[float, float]) -> tuple[float, float]:
    """Interval around the mean of values without NaN."""
    half = stdtrit(df, 1 - ALPHA / 2) * standard_error(present, correction)
    if np.isnan(half):
        return float("nan"), float("nan")
    return float(max(limits[0], present.mean() - half)), float(min(limits[1], present.mean() + half))


def detectable_difference(error: float, df: float = np.inf, *, alpha: float = ALPHA) -> float:
    """Compute the smallest true difference that a two-sided t test finds with 80% power.

    Returns NaN if the standard error is unknown or zero, because the spread of scores that do not vary is unknown.
    """
    if not error > 0:
        return float("nan")
    if not np.isfinite(df):
        return float(error * (ndtri(1 - alpha / 2) + ndtri(POWER)))
    return error * _detectable_effect(float(df), float(alpha))


@cache  # a table asks for the same few over and over
def _detectable_effect(df: float, alpha: float) -> float:
    """The smallest detectable difference in units of its standard error."""
    from scipy import optimize, stats

    critical = float(stdtrit(df, 1 - alpha / 2))

    def missing_power(effect: float) -> float:
        # the other tail is left out: a significant result of the wrong sign finds nothing
        return float(stats.nct.sf(critical, df, effect)) - POWER

    return float(optimize.brentq(missing_power, 0.0, 10.0 + 3.0 * critical))


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


def compare_by_corrected_t(
    first: Values,
    second: Values,
    correction: Correction = None,
    *,
    lower_is_better: bool = False,
    margin: float = EQUIVALENCE_MARGIN,
) -> Difference:
    """Compare the scores of two methods at the same left-out sites, or on the same folds, by a corrected t test.

    Shapes: first, second [n].
    """
    pairs = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    differences = pairs[~np.isnan(pairs)].round(12)  # so that scores that are equal as fractions give exact ties
    n, n_missing = len(differences), len(pairs) - len(differences)
    mean = float(differences.mean()) if n else float("nan")
    low, high = t_interval(differences, correction)
    error = standard_error(differences, correction)
    better, worse = int((differences > 0).sum()), int((differences < 0).sum())
    if lower_is_better:
        better, worse = worse, better
    p, p_level, df = float("nan"), float("nan"), degrees_of_freedom(differences, correction)
    if error > 0:
        p = float(2 * stdtr(df, -abs(mean) / error))
        p_level = float(stdtr(df, (abs(mean) - margin) / error))
    return Difference(n, n_missing, mean, low, high, error, better, worse, p, p_level, df)


def compare_groups(first: Values, second: Values) -> Difference:
    """Compare the mean of a score, or of a gain, between two groups of left-out sites by a t test.

    Training data that all models share do not change the difference between groups, so nothing is added to the
    variance of the t test, which pools the variances of both groups.

    Shapes: first, second [sites of the group]. The difference is first minus second; NaN for a group of fewer than
    two sites.
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
    half = float(stdtrit(df, 1 - ALPHA / 2)) * error
    p = float(2 * stdtr(df, -abs(mean) / error)) if error > 0 else nan
    return Difference(sum(sizes), n_missing, mean, mean - half, mean + half, error, 0, 0, p, nan, df)


def adjust_holm(p: Values) -> np.ndarray:
    """Adjust p values for the number of comparisons in their family, by Holm's method.

    If hypotheses with an adjusted value of at most alpha are rejected, the probability of any false rejection is at
    most alpha, however the comparisons depend on each other.

    Shapes: p [comparisons]; returns [comparisons].
    """
    raw = np.asarray(p, dtype=float)
    adjusted = np.full(len(raw), np.nan)
    ascending = np.argsort(raw)[: int((~np.isnan(raw)).sum())]  # NaN sort last
    remaining = np.arange(len(ascending), 0, -1)
    adjusted[ascending] = np.minimum(1.0, np.maximum.accumulate(remaining * raw[ascending]))
    return adjusted


def compare_family(
    scores: pd.DataFrame,
    reference: str | None = None,
    correction: FoldOverlap | None = None,
    *,
    lower_is_better: bool = False,
    margin: float = EQUIVALENCE_MARGIN,
) -> pd.DataFrame:
    """Compare all pairs of methods, or all with a reference, over left-out sites by :func:`compare_by_corrected_t`.

    With the ``correction`` of :func:`fold_correction` the rows are folds of k-fold. All comparisons of one call are one
    family for Holm's correction.

    Shapes: scores [sites or folds, methods]. Returns one row per comparison: ``method``, ``other``, ``n`` pairs,
    ``left_out``, ``mean_difference``, ``low``, ``high``, ``better``, ``worse``, ``p``, ``p_holm``, ``p_level`` (of two
    one-sided tests for a difference below the margin), a ``warning`` (:class:`TooFew`, or empty) if nothing can be
    tested, and ``detectable`` and ``detectable_in_family``: the smallest true difference that the test at level 0.05,
    or at 0.05 divided by the number of comparisons, finds with 80% power.
    """
    names = [str(name) for name in scores.columns]
    if reference is not None and reference not in names:
        raise BrioError(f"reference method '{reference}' has no scores; {nearest(reference, names)}")
    pairs = list(combinations(names, 2)) if reference is None else [(m, reference) for m in names if m != reference]
    if not pairs:
        scored = f"only {names[0]} has scores" if names else "no method has scores"
        raise BrioError(f"{scored}; a comparison needs two methods")
    column = dict(zip(names, scores.to_numpy(dtype=float, na_value=np.nan).T, strict=True))
    differences = [
        compare_by_corrected_t(column[a], column[b], correction, lower_is_better=lower_is_better, margin=margin)
        for a, b in pairs
    ]
    table = pd.DataFrame(pairs, columns=["method", "other"])
    columns = {"n": "n", "left_out": "n_missing", "mean_difference": "mean"}
    for name in (*columns, "low", "high", "better", "worse", "p"):
        table[name] = [getattr(d, columns.get(name, name)) for d in differences]
    tested = max(1, int(table["p"].notna().sum()))
    units = "sites" if correction is None else "folds"
    return table.assign(
        p_holm=adjust_holm(table["p"].to_numpy()),
        p_level=[d.p_level for d in differences],
        warning=["" if d.error > 0 else TooFew(d.n, units) for d in differences],
        detectable=[detectable_difference(d.error, d.df) for d in differences],
        detectable_in_family=[detectable_difference(d.error, d.df, alpha=ALPHA / tested) for d in differences],
    )


@dataclass(frozen=True)
class TooFew:
    """Why nothing was tested: fewer than two units in common, or differences that do not vary."""

    n: int
    units: str

    def __str__(self) -> str:
        one = self.units.removesuffix("s")
        if self.n < 2:
            return f"{format_count(self.n, one)} in common, too few for a test"
        return f"the difference is the same at every {one}, so its spread is unknown and nothing can be tested"

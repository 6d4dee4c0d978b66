"""Paired tests of two methods, over sites or over folds, and Holm's correction for several comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from .intervals import fold_correction, standard_error, t_interval

__all__ = [
    "Difference",
    "adjust_holm",
    "compare_by_corrected_t",
    "compare_by_signed_rank",
    "signed_rank_p",
    "smallest_reachable_p",
]

Values = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Difference:
    """The paired difference between two methods.

    Attributes
    ----------
    n : int
        Number of pairs compared: sites, or folds.
    n_missing : int
        Number of pairs in which a score is missing.
    mean, low, high : float
        Mean of the differences, first method minus second, and its t interval of level 1 - alpha
        (:func:`brio.protocol.t_interval`). Where lower is better, a negative mean is in favour of the first method.
    error : float
        Standard error of the mean; NaN for fewer than two pairs.
    better, worse : int
        Number of pairs in which the first method is better, and worse; the rest are ties.
    p : float
        Two-sided p value.
    smallest_p : float
        Smallest p value that the pairs without ties could reach, if all differences had the same sign; 0 for a t test.
    """

    n: int
    n_missing: int
    mean: float
    low: float
    high: float
    error: float
    better: int
    worse: int
    p: float
    smallest_p: float


def _paired_differences(first: Values, second: Values) -> tuple[np.ndarray, int]:
    """Differences of the pairs with both scores, and the number of other pairs.

    Rounded, so that scores that are equal as fractions give exact ties.
    """
    differences = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    complete = differences[~np.isnan(differences)].round(12)
    return complete, len(differences) - len(complete)


def smallest_reachable_p(n_nonzero: int) -> float:
    """Return the smallest two-sided p that a signed-rank test can reach.

    It does if all differences have the same sign.

    Parameters
    ----------
    n_nonzero : int
        Number of differences that are not zero.

    Returns
    -------
    float

    Examples
    --------
    >>> smallest_reachable_p(5), smallest_reachable_p(6)
    (0.0625, 0.03125)
    """
    return min(1.0, 2.0 * 0.5**n_nonzero)


def signed_rank_p(differences: Values) -> float:
    """Compute the two-sided p of Wilcoxon's signed-rank test, exact for any number of sites, with or without ties.

    Differences of zero are dropped; if all are zero, p is 1. Under the null hypothesis both signs of a difference are
    equally likely, so the distribution of the sum of positive ranks is built up rank by rank.

    Parameters
    ----------
    differences : array-like of float, shape [n]
        Without NaN.

    Returns
    -------
    float

    References
    ----------
    Wilcoxon, Biometrics Bulletin 1, 80 (1945).

    Examples
    --------
    >>> signed_rank_p([0.01, 0.03, 0.02, -0.01, 0.05, 0.04])
    0.09375
    """
    from scipy.stats import rankdata

    signed = np.asarray(differences, dtype=float)
    signed = signed[signed != 0]
    doubled = np.rint(2 * rankdata(np.abs(signed))).astype(int)  # tied ranks may be halves
    chance = np.zeros(doubled.sum() + 1)  # of each sum of positive ranks
    chance[0] = 1.0
    for rank in doubled:
        chance[rank:] += chance[: len(chance) - rank].copy()
        chance /= 2
    observed = int(doubled[signed > 0].sum())
    return min(1.0, 2 * float(min(chance[: observed + 1].sum(), chance[observed:].sum())))


def compare_by_signed_rank(
    first: Values, second: Values, *, alpha: float = 0.05, lower_is_better: bool = False
) -> Difference:
    """Compare the scores of two methods at the same sites by the signed-rank test.

    The interval is Student's t over sites.

    Parameters
    ----------
    first, second : array-like of float, shape [sites]
        Score of each method at each site, NaN where there is none.
    alpha : float
        The interval has level 1 - alpha.
    lower_is_better : bool
        For losses, such as the Brier score.

    Returns
    -------
    Difference

    Examples
    --------
    >>> difference = compare_by_signed_rank([0.75, 0.5, 0.875, np.nan], [0.5, 0.5, 0.75, 0.75])
    >>> difference.n, difference.n_missing, difference.mean, difference.better, difference.p
    (3, 1, 0.125, 2, 0.5)
    """
    differences, n_missing = _paired_differences(first, second)
    better, worse = int((differences > 0).sum()), int((differences < 0).sum())
    low, high = t_interval(differences, level=1 - alpha)
    return Difference(
        n=len(differences),
        n_missing=n_missing,
        mean=float(differences.mean()) if len(differences) else float("nan"),
        low=low,
        high=high,
        error=standard_error(differences),
        better=worse if lower_is_better else better,
        worse=better if lower_is_better else worse,
        p=signed_rank_p(differences) if len(differences) else float("nan"),
        smallest_p=smallest_reachable_p(better + worse),
    )


def compare_by_corrected_t(
    first: Values, second: Values, n_test: float, n_source: float, *, alpha: float = 0.05, lower_is_better: bool = False
) -> Difference:
    """Compare the scores of two methods on the same folds of k-fold by the corrected resampled t test.

    Training sets of different folds overlap, so scores vary less between folds than they would between cohorts. The
    variance of the mean of k differences is therefore taken as (1/k + n_test/n_source) times that of one difference.
    In simulation this is on the cautious side: its 95 % intervals cover 99 to 100 %.

    Parameters
    ----------
    first, second : array-like of float, shape [folds]
        Score of each method on each fold (of each seed), NaN where there is none.
    n_test, n_source : float
        Mean number of test scans of a fold, and of scans that the model learned from. Validation scans count only after
        a refit; not counting those that chose the checkpoint makes the variance larger, which is the cautious side.
    alpha : float
        The interval has level 1 - alpha.
    lower_is_better : bool
        For losses, such as the Brier score.

    Returns
    -------
    Difference

    References
    ----------
    Nadeau & Bengio, Machine Learning 52, 239 (2003); for repeated k-fold Bouckaert & Frank, PAKDD 2004.

    Examples
    --------
    >>> difference = compare_by_corrected_t([0.7, 0.8, 0.9], [0.6, 0.75, 0.75], n_test=10, n_source=20)
    >>> round(difference.mean, 3), round(difference.p, 3)
    (0.1, 0.16)
    """
    differences, n_missing = _paired_differences(first, second)
    k = len(differences)
    mean = float(differences.mean()) if k else float("nan")
    correction = fold_correction(n_test, n_source)
    low, high = t_interval(differences, correction, level=1 - alpha)
    error, p = standard_error(differences, correction), float("nan")
    if k > 1:
        p = float(2 * stdtr(k - 1, -abs(mean) / error)) if error > 0 else float(mean == 0)
    better, worse = int((differences > 0).sum()), int((differences < 0).sum())
    if lower_is_better:
        better, worse = worse, better
    return Difference(k, n_missing, mean, low, high, error, better, worse, p, smallest_p=0.0)


def adjust_holm(p: Values) -> np.ndarray:
    """Adjust p values for the number of comparisons in their family, by Holm's method.

    Rejecting where the adjusted value is at most alpha bounds the probability of any false rejection by alpha, however
    the comparisons depend on each other.

    Parameters
    ----------
    p : array-like of float, shape [comparisons]
        NaN are not counted as comparisons and stay NaN.

    Returns
    -------
    ndarray, shape [comparisons]

    References
    ----------
    Holm, Scandinavian Journal of Statistics 6, 65 (1979).

    Examples
    --------
    >>> adjust_holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    raw = np.asarray(p, dtype=float)
    adjusted = np.full(len(raw), np.nan)
    ascending = np.argsort(raw)[: int((~np.isnan(raw)).sum())]  # NaN sort last
    remaining = np.arange(len(ascending), 0, -1)
    adjusted[ascending] = np.minimum(1.0, np.maximum.accumulate(remaining * raw[ascending]))
    return adjusted

"""Whether one method is better than another: paired differences over sites or folds, corrected for their number.

Sites are the units: scores are averaged over seeds first, since seeds say nothing new of a site. Methods are
compared site by site (a hard site is hard for all), by Wilcoxon's signed-rank test, exact however few sites
there are. Folds of one cohort share most of their training scans, so k-fold has a test of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from scipy import stats

from ..errors import BrioError, nearest
from .metrics import bootstrap_interval

__all__ = [
    "Difference",
    "compare",
    "compare_folds",
    "corrected_resampled_t",
    "holm",
    "paired_difference",
    "signed_rank_p",
    "smallest_p",
]

Values = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Difference:
    """What separates two methods.

    Attributes
    ----------
    n : int
        Pairs that were compared: sites, or folds.
    left_out : int
        Pairs in which a score is missing.
    mean, low, high : float
        Mean of the first method's score less the second's, and its interval.
    better, worse : int
        Pairs in which the first method does better, and worse; the rest are equal.
    p : float
        Two-sided.
    smallest_p : float
        The p that this many pairs would have if all of them agreed.
    """

    n: int
    left_out: int
    mean: float
    low: float
    high: float
    better: int
    worse: int
    p: float
    smallest_p: float


def _pairs(first: Values, second: Values) -> tuple[np.ndarray, int]:
    """Differences of the pairs that have both scores, and how many have not.

    Rounded, so that scores that are equal as fractions are equal here and so are differences of one size.
    """
    differences = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    known = differences[~np.isnan(differences)].round(12)
    return known, len(differences) - len(known)


def smallest_p(n_nonzero: int) -> float:
    """Smallest two-sided p that a signed-rank test of so many differences can reach: all have the same sign.

    Examples
    --------
    >>> smallest_p(5), smallest_p(6)
    (0.0625, 0.03125)
    """
    return min(1.0, 2.0 * 0.5**n_nonzero)


def signed_rank_p(differences: Values) -> float:
    """Two-sided p of Wilcoxon's signed-rank test, exact for any number of sites, also where differences are tied.

    Differences of zero say nothing and are dropped; if all are zero, p is 1. Every sign is as likely as the other under
    the null hypothesis, so the chance of each sum of positive ranks is built up rank by rank.

    Parameters
    ----------
    differences : shape [n], without NaN

    References
    ----------
    Wilcoxon, Biometrics Bulletin 1, 80 (1945).

    Examples
    --------
    >>> signed_rank_p([0.01, 0.03, 0.02, -0.01, 0.05, 0.04])
    0.09375
    """
    signed = np.asarray(differences, dtype=float)
    signed = signed[signed != 0]
    doubled = np.rint(2 * stats.rankdata(np.abs(signed))).astype(int)  # ranks of ties are halves
    chance = np.zeros(doubled.sum() + 1)  # of each sum of positive ranks
    chance[0] = 1.0
    for rank in doubled:
        chance[rank:] += chance[: len(chance) - rank].copy()
        chance /= 2
    found = int(doubled[signed > 0].sum())
    return min(1.0, 2 * float(min(chance[: found + 1].sum(), chance[found:].sum())))


def paired_difference(
    first: Values, second: Values, *, alpha: float = 0.05, lower_is_better: bool = False
) -> Difference:
    """Compare the scores of two methods at the same sites.

    The interval draws sites with replacement (percentiles, level 1 - alpha); it is somewhat narrow for few sites.

    Parameters
    ----------
    first, second : shape [sites]
        A score for each site, NaN where there is none.

    Examples
    --------
    >>> found = paired_difference([0.75, 0.5, 0.875, np.nan], [0.5, 0.5, 0.75, 0.75])
    >>> found.n, found.left_out, found.mean, found.better, found.p
    (3, 1, 0.125, 2, 0.5)
    """
    d, left_out = _pairs(first, second)
    better, worse = int((d > 0).sum()), int((d < 0).sum())
    low, high = bootstrap_interval(d, level=1 - alpha)
    return Difference(
        n=len(d),
        left_out=left_out,
        mean=float(d.mean()) if len(d) else float("nan"),
        low=low,
        high=high,
        better=worse if lower_is_better else better,
        worse=better if lower_is_better else worse,
        p=signed_rank_p(d) if len(d) else float("nan"),
        smallest_p=smallest_p(better + worse),
    )


def corrected_resampled_t(
    first: Values, second: Values, n_test: float, n_train: float, *, alpha: float = 0.05, lower_is_better: bool = False
) -> Difference:
    """Compare the scores of two methods on the same folds of a k-fold protocol, once or with several seeds.

    Training sets of folds overlap, so that scores vary less between folds than they would between cohorts. The variance
    of their mean is therefore taken as (1/k + n_test/n_train) times that of a difference, k the number of pairs.

    Parameters
    ----------
    first, second : shape [folds]
        A score for each fold (of each seed), NaN where there is none.
    n_test, n_train : float
        Scans of a fold that test and that train.

    References
    ----------
    Nadeau & Bengio, Machine Learning 52, 239 (2003); for repeated k-fold Bouckaert & Frank, PAKDD 2004.

    Examples
    --------
    >>> found = corrected_resampled_t([0.7, 0.8, 0.9], [0.6, 0.75, 0.75], n_test=10, n_train=20)
    >>> round(found.mean, 3), round(found.p, 3)
    (0.1, 0.16)
    """
    d, left_out = _pairs(first, second)
    k = len(d)
    mean = float(d.mean()) if k else float("nan")
    low = high = p = float("nan")
    if k > 1:
        error = float(np.sqrt((1 / k + n_test / n_train) * d.var(ddof=1)))
        half = float(stats.t.ppf(1 - alpha / 2, k - 1)) * error
        low, high = mean - half, mean + half
        p = float(2 * stats.t.sf(abs(mean) / error, k - 1)) if error > 0 else float(mean == 0)
    better, worse = int((d > 0).sum()), int((d < 0).sum())
    if lower_is_better:
        better, worse = worse, better
    return Difference(k, left_out, mean, low, high, better, worse, p, smallest_p=0.0)


def holm(p: Values) -> np.ndarray:
    """P values corrected for how many comparisons the family has; NaN are no comparisons and stay.

    Rejecting where the corrected value is at most alpha keeps the chance of any false rejection at alpha,
    however the comparisons depend on each other.

    References
    ----------
    Holm, Scandinavian Journal of Statistics 6, 65 (1979).

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    raw = np.asarray(p, dtype=float)
    corrected = np.full(len(raw), np.nan)
    ascending = np.argsort(raw)[: int((~np.isnan(raw)).sum())]  # NaN sort last
    still_open = np.arange(len(ascending), 0, -1)
    corrected[ascending] = np.minimum(1.0, np.maximum.accumulate(still_open * raw[ascending]))
    return corrected


def compare(
    scores: pd.DataFrame, reference: str | None = None, *, alpha: float = 0.05, lower_is_better: bool = False
) -> pd.DataFrame:
    """Compare methods over sites: all pairs, or all against a reference. The rows are one family for Holm's correction.

    Parameters
    ----------
    scores : DataFrame, [site x method]
        One score for each site and method, averaged over seeds (:func:`brio.results.average_seeds`); NaN where none.
    reference : str, optional
        Differences are then ``method`` less reference.
    alpha : float
        Level of the tests; intervals have level 1 - alpha.
    lower_is_better : bool
        For losses, such as the Brier score.

    Returns
    -------
    DataFrame
        One row a comparison: method, other, n_sites, left_out, mean_difference, low, high, better, worse, p, p_holm,
        smallest_p, and a warning where this many sites cannot reach alpha, whatever they show.

    Examples
    --------
    >>> scores = pd.DataFrame({"a": [0.5, 0.75, 0.625], "b": [0.75, 0.875, 0.75]}, index=["KKI", "NYU", "UM"])
    >>> compare(scores, "a")[["method", "other", "n_sites", "better", "p", "p_holm"]]
      method other  n_sites  better     p  p_holm
    0      b     a        3       3  0.25    0.25
    """

    def test(first: np.ndarray, second: np.ndarray) -> Difference:
        return paired_difference(first, second, alpha=alpha, lower_is_better=lower_is_better)

    return _family(scores, reference, test, "sites", alpha)


def compare_folds(
    scores: pd.DataFrame,
    n_test: float,
    n_train: float,
    reference: str | None = None,
    *,
    alpha: float = 0.05,
    lower_is_better: bool = False,
) -> pd.DataFrame:
    """Compare methods over the folds of k-fold by :func:`corrected_resampled_t`.

    As :func:`compare`; rows of ``scores`` are the folds of each seed, and ``n_folds`` counts them.
    """

    def test(first: np.ndarray, second: np.ndarray) -> Difference:
        return corrected_resampled_t(first, second, n_test, n_train, alpha=alpha, lower_is_better=lower_is_better)

    return _family(scores, reference, test, "folds", alpha)


def _family(
    scores: pd.DataFrame,
    reference: str | None,
    test: Callable[[np.ndarray, np.ndarray], Difference],
    units: str,
    alpha: float,
) -> pd.DataFrame:
    names = [str(name) for name in scores.columns]
    if reference is not None and reference not in names:
        raise BrioError(f"method '{reference}', to compare with, has no scores; {nearest(reference, names)}")
    pairs = list(combinations(names, 2)) if reference is None else [(m, reference) for m in names if m != reference]
    if not pairs:
        raise BrioError(f"only {', '.join(names) or 'nothing'} has scores; a comparison needs two methods")
    values = scores.to_numpy(dtype=float, na_value=np.nan)
    column = {name: values[:, k] for k, name in enumerate(names)}
    found = [test(column[first], column[second]) for first, second in pairs]
    p = np.array([f.p for f in found])
    least = np.array([f.smallest_p for f in found])
    # Holm's corrected values grow with every p of the family: the least they can be is that of the least p
    reachable = holm(np.where(np.isnan(p), np.nan, least))
    return pd.DataFrame(
        {
            "method": [first for first, _ in pairs],
            "other": [second for _, second in pairs],
            f"n_{units}": [f.n for f in found],
            "left_out": [f.left_out for f in found],
            "mean_difference": [f.mean for f in found],
            "low": [f.low for f in found],
            "high": [f.high for f in found],
            "better": [f.better for f in found],
            "worse": [f.worse for f in found],
            "p": p,
            "p_holm": holm(p),
            "smallest_p": least,
            "warning": [_warning(f, float(r), len(found), units, alpha) for f, r in zip(found, reachable, strict=True)],
        }
    )


def _warning(found: Difference, reachable: float, comparisons: int, units: str, alpha: float) -> str:
    """Why a comparison could not have come out, or nothing."""
    if np.isnan(found.p):
        return f"{found.n} {units} in common: nothing to compare"
    if reachable <= alpha:
        return ""
    corrected = f" ({reachable:.2g} after Holm's correction)" if comparisons > 1 else ""
    return (
        f"{found.better + found.worse} {units} that differ cannot show a difference at level {alpha:g}: "
        f"even if all agreed, p would be {found.smallest_p:.2g}{corrected}"
    )

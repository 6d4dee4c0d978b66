"""Comparisons of methods over left-out sites or folds, as families with Holm's correction.

Sites are the units of a comparison. Scores are averaged over seeds first, since a further seed is no further site.
Methods are compared at the same sites, because a hard site is hard for all of them. A pair of methods has one p value
everywhere, that of the corrected t test; the family that it is corrected in is named where it is printed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from ..errors import BrioError, nearest
from ..formatting import format_count
from .intervals import EQUIVALENCE_MARGIN, detectable_difference, fold_correction
from .paired_tests import Difference, adjust_holm, compare_by_corrected_t


def compare_over_sites(
    scores: pd.DataFrame,
    reference: str | None = None,
    *,
    alpha: float = 0.05,
    lower_is_better: bool = False,
    margin: float = EQUIVALENCE_MARGIN,
) -> pd.DataFrame:
    """Compare methods over left-out sites by :func:`compare_by_corrected_t`.

    All comparisons of one call are one family for Holm's correction.

    Shapes: scores [sites, methods].

    Returns one row per comparison: ``method``, ``other``, ``n_sites``, ``left_out``, ``mean_difference``, ``low``,
    ``high``, ``better``, ``worse``, ``p``, ``p_holm``, ``p_level`` (of two one-sided tests for a difference below the
    margin), a ``warning`` (:class:`TooFew`, or empty) if nothing can be tested, and ``detectable`` and
    ``detectable_in_family``: the smallest true difference that the test at level alpha, or at alpha divided by the
    number of comparisons, finds with 80 % power.
    """

    def test(first: np.ndarray, second: np.ndarray) -> Difference:
        return compare_by_corrected_t(first, second, alpha=alpha, lower_is_better=lower_is_better, margin=margin)

    return _compare_family(scores, reference, test, "sites", alpha)


def compare_over_folds(
    scores: pd.DataFrame,
    n_test: float,
    n_source: float,
    reference: str | None = None,
    *,
    alpha: float = 0.05,
    lower_is_better: bool = False,
    margin: float = EQUIVALENCE_MARGIN,
) -> pd.DataFrame:
    """Compare methods over the folds of k-fold by :func:`compare_by_corrected_t`.

    Shapes: scores [folds, methods].

    Returns as :func:`compare_over_sites` returns, with ``n_folds`` in place of ``n_sites``.
    """
    n_folds = scores.index.get_level_values("fold").nunique() if "fold" in scores.index.names else len(scores)
    correction = fold_correction(n_test, n_source, n_folds)

    def test(first: np.ndarray, second: np.ndarray) -> Difference:
        return compare_by_corrected_t(
            first, second, correction, alpha=alpha, lower_is_better=lower_is_better, margin=margin
        )

    return _compare_family(scores, reference, test, "folds", alpha)


def _compare_family(
    scores: pd.DataFrame,
    reference: str | None,
    test: Callable[[np.ndarray, np.ndarray], Difference],
    units: str,
    alpha: float,
) -> pd.DataFrame:
    """Test all pairs of methods, or all against the reference, and adjust their p values as one family."""
    names = [str(name) for name in scores.columns]
    if reference is not None and reference not in names:
        raise BrioError(f"reference method '{reference}' has no scores; {nearest(reference, names)}")
    pairs = list(combinations(names, 2)) if reference is None else [(m, reference) for m in names if m != reference]
    if not pairs:
        raise BrioError(f"only {', '.join(names) or 'nothing'} has scores; a comparison needs two methods")
    values = scores.to_numpy(dtype=float, na_value=np.nan)
    column = {name: values[:, k] for k, name in enumerate(names)}
    differences = [test(column[first], column[second]) for first, second in pairs]
    p = np.array([d.p for d in differences])
    tested = max(1, int((~np.isnan(p)).sum()))
    return pd.DataFrame(
        {
            "method": [first for first, _ in pairs],
            "other": [second for _, second in pairs],
            f"n_{units}": [d.n for d in differences],
            "left_out": [d.n_missing for d in differences],
            "mean_difference": [d.mean for d in differences],
            "low": [d.low for d in differences],
            "high": [d.high for d in differences],
            "better": [d.better for d in differences],
            "worse": [d.worse for d in differences],
            "p": p,
            "p_holm": adjust_holm(p),
            "p_level": [d.p_level for d in differences],
            "warning": ["" if d.error > 0 else TooFew(d.n, units) for d in differences],
            "detectable": [detectable_difference(d.error, d.df, alpha=alpha) for d in differences],
            "detectable_in_family": [detectable_difference(d.error, d.df, alpha=alpha / tested) for d in differences],
        }
    )


@dataclass(frozen=True)
class TooFew:
    """Why nothing was tested: fewer than two units in common, or differences that do not vary."""

    n: int
    units: str

    def __str__(self) -> str:
        one = self.units.removesuffix("s")
        if self.n < 2:
            return f"{format_count(self.n, one)} in common: nothing to compare"
        return f"the difference is the same at every {one}, so its spread is not known and nothing can be tested"

"""How site discrepancy and predictive variation go together over runs.

Every function reads one row a run with the columns ``method`` (or the name of an arm), ``fold``, ``seed``, ``D_site``,
``D_re_pred`` and, for the mismatch, ``validation_auc``: what :func:`brio.diagnostics.run_discrepancies` gives. Rates
are shares, not percentages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from ..errors import BrioError

__all__ = [
    "DELTA_AUC",
    "discordance_interval",
    "discordance_rate",
    "mismatch_rates",
    "mismatches",
    "spearman",
    "spearman_interval",
]

DELTA_AUC = 0.01
"""Tolerance for a preserved AUC; the paper does not give its value."""

_BOTH = ["D_site", "D_re_pred"]


def spearman(rows: pd.DataFrame) -> float:
    """Spearman's rho of D_site and the predictive variation over runs; NaN where one of them does not vary."""
    return _rho([rows[_BOTH].to_numpy(dtype=float)])


def spearman_interval(rows: pd.DataFrame, level: float = 0.95) -> tuple[float, float]:
    """Interval of :func:`spearman`, folds drawn with replacement."""
    return _interval([part[_BOTH].to_numpy(dtype=float) for _, part in rows.groupby("fold")], _rho, level)


def _rho(parts: Sequence[np.ndarray]) -> float:
    """Spearman's rho of the two columns of arrays, one under the other."""
    values = np.concatenate(parts)
    if len(values) < 2 or (values == values[0]).all(0).any():
        return float("nan")
    return float(stats.spearmanr(values[:, 0], values[:, 1]).statistic)


def discordance_rate(rows: pd.DataFrame) -> float:
    """R_discord: share of pairs of methods in a fold and seed where the smaller D_site has the larger variation.

    Pairs that tie in either number do not count; NaN where no pair is left.

    Examples
    --------
    >>> rows = pd.DataFrame({"fold": "A", "seed": 0, "D_site": [1.0, 2.0, 3.0], "D_re_pred": [5.0, 4.0, 6.0]})
    >>> round(discordance_rate(rows), 3)  # the first two disagree, the third agrees with both
    0.333
    """
    return _rate([_discordant(part) for _, part in rows.groupby("fold")])


def discordance_interval(rows: pd.DataFrame, level: float = 0.95) -> tuple[float, float]:
    """Interval of :func:`discordance_rate`, folds drawn with replacement."""
    return _interval([_discordant(part) for _, part in rows.groupby("fold")], _rate, level)


def _discordant(rows: pd.DataFrame) -> np.ndarray:
    """Pairs of methods that are discordant, and all that do not tie."""
    found = np.zeros(2)
    for _, together in rows.groupby(["fold", "seed"]):
        a, b = np.triu_indices(len(together), 1)
        D_site, D_re = together[_BOTH].to_numpy(dtype=float).T
        direction = np.sign(D_site[a] - D_site[b]) * np.sign(D_re[a] - D_re[b])
        found += (direction < 0).sum(), (direction != 0).sum()
    return found


def _rate(counts: Sequence[np.ndarray]) -> float:
    discordant, counted = np.sum(counts, axis=0)
    return float(discordant / counted) if counted else float("nan")


def _interval(
    parts: list[Any], statistic: Callable[[list[Any]], float], level: float, resamples: int = 2000
) -> tuple[float, float]:
    """Percentile interval of a statistic of folds; NaN for fewer than two of them, or where one is not defined."""
    if len(parts) < 2:
        return float("nan"), float("nan")
    draws = np.random.default_rng(0).integers(0, len(parts), (resamples, len(parts)))
    found = [statistic([parts[i] for i in drawn]) for drawn in draws]
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def mismatches(rows: pd.DataFrame, reference: str, delta_auc: float = DELTA_AUC) -> pd.DataFrame:
    """Which runs are mismatches: sites look alike, yet predictions move.

    Parameters
    ----------
    rows : DataFrame
        All runs whose medians are pooled.
    reference : str
        The method whose validation AUC is to be preserved: BRIO w/o QG with lambda_env = 0.
    delta_auc : float
        How far below the reference run of the same fold and seed a validation AUC may lie.

    Returns
    -------
    DataFrame
        The rows with the columns ``mismatch`` (D_site below its median and variation above its median) and
        ``auc_preserved_mismatch``.
    """
    held = rows[rows["method"] == reference]
    if held.duplicated(["fold", "seed"]).any():
        raise BrioError(f"'{reference}' has more than one run in a fold and seed; it cannot be the reference")
    known = held.set_index(["fold", "seed"])["validation_auc"]
    where = pd.MultiIndex.from_frame(rows[["fold", "seed"]])
    lacking = ~where.isin(known.index)
    if lacking.any():
        fold, seed = where[lacking][0]
        raise BrioError(
            f"fold {fold}, seed {seed}: '{reference}', which AUCs are compared with, has no run there; run it as well"
        )
    mismatch = (rows["D_site"] < rows["D_site"].median()) & (rows["D_re_pred"] > rows["D_re_pred"].median())
    slack = 1e-12  # an AUC just at the tolerance counts as preserved, however it was rounded
    preserved = rows["validation_auc"].to_numpy() >= known.loc[where].to_numpy() - delta_auc - slack
    return rows.assign(mismatch=mismatch, auc_preserved_mismatch=mismatch & preserved)


def mismatch_rates(rows: pd.DataFrame, reference: str, delta_auc: float = DELTA_AUC) -> pd.DataFrame:
    """Total and AUC-preserved mismatch rates of each method, both over all its runs.

    Returns
    -------
    DataFrame
        One row a method, in the order of ``rows``: ``method``, ``runs``, ``mismatch_rate``,
        ``auc_preserved_mismatch_rate``; medians are pooled over all rows.
    """
    found = mismatches(rows, reference, delta_auc).groupby("method", sort=False)
    return found.agg(
        runs=("mismatch", "size"),
        mismatch_rate=("mismatch", "mean"),
        auc_preserved_mismatch_rate=("auc_preserved_mismatch", "mean"),
    ).reset_index()

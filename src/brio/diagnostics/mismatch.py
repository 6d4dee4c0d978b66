"""How site discrepancy and predictive variation are related over runs.

Every function reads a table with one row per run, as :func:`brio.diagnostics.measure_discrepancies` returns it:
``method`` (or the name of an arm), ``fold``, ``seed``, ``D_site``, ``D_re_pred`` and, for the mismatch,
``validation_auc``. Rates are shares, not percentages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..errors import BrioError

DELTA_AUC = 0.01
"""Tolerance for a preserved AUC; the paper does not state its value."""

_MEASURES = ["D_site", "D_re_pred"]


def spearman(rows: pd.DataFrame) -> float:
    """Compute Spearman's rho of D_site and the predictive variation over runs; NaN where one of them is constant."""
    return _rho([rows[_MEASURES].to_numpy(dtype=float)])


def spearman_interval(rows: pd.DataFrame, level: float = 0.95) -> tuple[float, float]:
    """Compute the bootstrap interval of :func:`spearman` over folds; NaN for one fold."""
    parts = [part[_MEASURES].to_numpy(dtype=float) for _, part in rows.groupby("fold")]
    return _bootstrap_folds(parts, _rho, level)


def _rho(parts: Sequence[np.ndarray]) -> float:
    """Spearman's rho of the two columns of concatenated arrays."""
    values = np.concatenate(parts)
    if len(values) < 2 or (values == values[0]).all(0).any() or np.isnan(values).any():
        return float("nan")
    return float(np.corrcoef(_rank(values[:, 0]), _rank(values[:, 1]))[1, 0])


def _rank(values: np.ndarray) -> np.ndarray:
    """Ranks from 1, ties share their mean; several times faster than scipy for the few runs of a resample."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def discordance_rate(rows: pd.DataFrame) -> float:
    """Compute R_discord: among pairs of methods, the share in which the smaller D_site has the larger variation.

    Methods are compared within a fold and seed. Pairs that tie in either measure do not count; NaN if no pair is left.
    """
    return _rate([_count_discordant(part) for _, part in rows.groupby("fold")])


def discordance_interval(rows: pd.DataFrame, level: float = 0.95) -> tuple[float, float]:
    """Compute the bootstrap interval of :func:`discordance_rate` over folds; NaN for one fold."""
    return _bootstrap_folds([_count_discordant(part) for _, part in rows.groupby("fold")], _rate, level)


def _count_discordant(rows: pd.DataFrame) -> np.ndarray:
    """Numbers of discordant pairs of methods and of pairs without ties. Shape [2]."""
    counts = np.zeros(2)
    for _, group in rows.groupby(["fold", "seed"]):
        a, b = np.triu_indices(len(group), 1)
        D_site, D_re = group[_MEASURES].to_numpy(dtype=float).T
        direction = np.sign(D_site[a] - D_site[b]) * np.sign(D_re[a] - D_re[b])
        counts += (direction < 0).sum(), (direction != 0).sum()
    return counts


def _rate(counts: Sequence[np.ndarray]) -> float:
    discordant, total = np.sum(counts, axis=0)
    return float(discordant / total) if total else float("nan")


def _bootstrap_folds(
    parts: list[Any], statistic: Callable[[list[Any]], float], level: float, resamples: int = 2000
) -> tuple[float, float]:
    """Percentile bootstrap interval over folds; NaN for fewer than two folds, or if a resample has no value."""
    if len(parts) < 2:
        return float("nan"), float("nan")
    draws = np.random.default_rng(0).integers(0, len(parts), (resamples, len(parts)))
    values = [statistic([parts[i] for i in drawn]) for drawn in draws]
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def mark_mismatches(rows: pd.DataFrame, reference: str, delta_auc: float = DELTA_AUC) -> pd.DataFrame:
    """Mark the runs that are mismatches: their source sites look alike, yet their predictions vary.

    Returns the rows with two further columns: ``mismatch`` (D_site below its median and variation above its median) and
    ``auc_preserved_mismatch``.
    """
    of_reference = rows[rows["method"] == reference]
    if of_reference.duplicated(["fold", "seed"]).any():
        raise BrioError(f"'{reference}' has more than one run in a fold and seed; it cannot be the reference")
    reference_auc = of_reference.set_index(["fold", "seed"])["validation_auc"]
    fold_and_seed = pd.MultiIndex.from_frame(rows[["fold", "seed"]])
    missing = ~fold_and_seed.isin(reference_auc.index)
    if missing.any():
        fold, seed = fold_and_seed[missing][0]
        raise BrioError(f"fold {fold}, seed {seed}: the reference '{reference}' has no run there; run it as well")
    mismatch = (rows["D_site"] < rows["D_site"].median()) & (rows["D_re_pred"] > rows["D_re_pred"].median())
    slack = 1e-12  # an AUC exactly at the tolerance is preserved, however it was rounded
    least = reference_auc.loc[fold_and_seed].to_numpy() - delta_auc - slack
    preserved = rows["validation_auc"].to_numpy() >= least
    return rows.assign(mismatch=mismatch, auc_preserved_mismatch=mismatch & preserved)


def mismatch_rates(rows: pd.DataFrame, reference: str, delta_auc: float = DELTA_AUC) -> pd.DataFrame:
    """Compute the total and the AUC-preserved mismatch rate of each method, both over all its runs.

    Returns one row per method, in the order of ``rows``: ``method``, ``runs``, ``mismatch_rate``,
    ``auc_preserved_mismatch_rate``. Medians are taken over all rows.
    """
    by_method = mark_mismatches(rows, reference, delta_auc).groupby("method", sort=False)
    return by_method.agg(
        runs=("mismatch", "size"),
        mismatch_rate=("mismatch", "mean"),
        auc_preserved_mismatch_rate=("auc_preserved_mismatch", "mean"),
    ).reset_index()

"""How site discrepancy and predictive variation go together over runs.

Every function reads one row a run with the columns ``method`` (or the name of an arm), ``fold``, ``seed``, ``D_site``,
``D_re_pred`` and, for the mismatch, ``validation_auc``: what :func:`brio.diagnostics.run_discrepancies` gives. Rates
are shares, not percentages.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats

from ..errors import BrioError

__all__ = ["DELTA_AUC", "discordance_rate", "mismatch_rates", "mismatches", "spearman"]

DELTA_AUC = 0.01
"""Tolerance for a preserved AUC; the paper does not give its value."""


def spearman(rows: pd.DataFrame) -> float:
    """Spearman's rho of D_site and the predictive variation over runs; NaN where one of them does not vary."""
    if len(rows) < 2 or rows["D_site"].nunique() < 2 or rows["D_re_pred"].nunique() < 2:
        return float("nan")
    return float(stats.spearmanr(rows["D_site"], rows["D_re_pred"]).statistic)


def discordance_rate(rows: pd.DataFrame) -> float:
    """R_discord: share of pairs of methods in a fold and seed where the smaller D_site has the larger variation.

    Pairs that tie in either number do not count; NaN where no pair is left.

    Examples
    --------
    >>> rows = pd.DataFrame({"fold": "A", "seed": 0, "D_site": [1.0, 2.0, 3.0], "D_re_pred": [5.0, 4.0, 6.0]})
    >>> round(discordance_rate(rows), 3)  # the first two disagree, the third agrees with both
    0.333
    """
    discordant = counted = 0
    for _, together in rows.groupby(["fold", "seed"]):
        a, b = np.triu_indices(len(together), 1)
        D_site, D_re = (together[name].to_numpy(dtype=float) for name in ("D_site", "D_re_pred"))
        direction = np.sign(D_site[a] - D_site[b]) * np.sign(D_re[a] - D_re[b])
        discordant += int((direction < 0).sum())
        counted += int((direction != 0).sum())
    return discordant / counted if counted else float("nan")


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

"""From the scores of runs to the score of a site, and from sites to a mean with its interval.

One policy for missing scores holds everywhere. A method has a score at a site if every one of its runs there has one.
Its runs are those of all its seeds; a run without a row counts as a run without a score. Skipping the seeds in which
training diverged would reward a method for diverging, and would compare sites averaged over different numbers of seeds.
(A test site with one class has an AUC under no seed.) Sites without a score do not count towards means. A paired
comparison drops a site at which one of the two methods has no score.

Methods may have different numbers of seeds: each is averaged over its own, and the report states the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ..errors import BrioError
from ..protocol import FoldOverlap, auc, fold_correction, t_interval
from .summary import METRICS, MetricSummary


def unit_columns(protocol: str) -> list[str]:
    """Return the columns that identify one unit of comparison: a site, or a fold of one seed.

    A site holds the same scans under every seed, so seeds are averaged; a numbered fold does not, so every fold of
    every seed counts.
    """
    return ["fold"] if protocol == "loso" else ["seed", "fold"]


def name_units(units: pd.Index) -> list[str]:
    """Return the names of units for people: test sites, or folds with their seeds."""
    return [f"fold {unit[1]} of seed {unit[0]}" if isinstance(unit, tuple) else str(unit) for unit in units]


def average_seeds(
    rows: pd.DataFrame, metric: str = "auc", *, units: Sequence[str] = ("fold",), column: str = "method"
) -> pd.DataFrame:
    """Average the scores of runs over seeds, under the policy of this module.

    Returns methods in the order of the rows; NaN where a unit has no score, or no run of one of the seeds of the
    method.
    """
    duplicates = rows[rows.duplicated([column, "fold", "seed"])]
    if len(duplicates):
        name, fold, seed = duplicates.iloc[0][[column, "fold", "seed"]]
        raise BrioError(
            f"{column} '{name}', fold {fold}, seed {seed} occurs more than once; give methods of several jobs "
            "different names"
        )
    means = {name: _average_runs(own, list(units), metric) for name, own in rows.groupby(column, sort=False)}
    return pd.DataFrame(means).sort_index().rename_axis(columns=column)


def _average_runs(rows: pd.DataFrame, units: list[str], metric: str) -> pd.Series:
    """Mean of each unit of one method that has a score under every seed; NaN for the others."""
    groups = rows.groupby(units)[metric]
    n_runs = 1 if "seed" in units else rows["seed"].nunique()
    return groups.mean().where(groups.count() == n_runs)


def mean_correction(rows: pd.DataFrame, protocol: str) -> FoldOverlap | None:
    """Return what is added to 1/n in the variance of a mean over n units, see :func:`brio.protocol.standard_error`."""
    if protocol == "loso":
        return None
    sizes = rows[["n_test", "n_source", "n_validation"]].mean()
    others = float(sizes["n_source"] + sizes["n_validation"])
    return fold_correction(float(sizes["n_test"]), others, rows["fold"].nunique())


def summarise_scores(
    scores: Sequence[float] | np.ndarray | pd.Series,
    correction: FoldOverlap | None = None,
    limits: tuple[float, float] = (-np.inf, np.inf),
) -> MetricSummary:
    """Summarise the scores of sites; those without one (NaN) do not count.

    Shapes: scores [n_units].
    """
    present = pd.Series(scores, dtype=float).dropna()
    low, high = t_interval(present.to_numpy(), correction, limits=limits)
    return MetricSummary(
        mean=float(present.mean()) if len(present) else None,
        sd=float(present.std(ddof=1)) if len(present) > 1 else None,
        interval=None if np.isnan(low) else (low, high),
        n=len(present),
    )


def summarise_metrics(rows: pd.DataFrame, protocol: str) -> dict[str, MetricSummary]:
    """Summarise every metric of the runs of one method over sites, or over the folds of all seeds under k-fold."""
    units, correction = unit_columns(protocol), mean_correction(rows, protocol)
    return {
        metric: summarise_scores(_average_runs(rows, units, metric), correction, limits=(0.0, 1.0))
        for metric in METRICS
    }


def summarise_ensemble(predictions: pd.DataFrame, protocol: str) -> MetricSummary:
    """Summarise the AUC of an ensemble: the logit of each scan is averaged over the seeds first.

    Under leave-one-site-out, there is one AUC per site. Under k-fold, there is one AUC over all scans, because a scan
    is in a different fold under each seed; ``sd`` and ``interval`` are then None. A logit that is missing under one
    seed (NaN, as of a run that diverged) leaves its site, or the cohort under k-fold, without a score.
    """
    by = ["fold"] if protocol == "loso" else []
    groups = predictions.groupby([*by, "participant_id"])
    scans = groups.agg(label=("label", "first"), logit=("logit", "mean"))
    scans["logit"] = scans["logit"].where(groups["logit"].count() == groups.size())
    return summarise_scores(scans.groupby(by or (lambda scan: 0)).apply(_auc_if_complete), limits=(0.0, 1.0))


def _auc_if_complete(scans: pd.DataFrame) -> float:
    if scans["logit"].isna().any():
        return float("nan")
    return auc(scans["label"].to_numpy(), scans["logit"].to_numpy())

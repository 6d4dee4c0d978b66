"""From the scores of runs to the score of a site, and from sites to a mean with its interval.

One policy for missing scores holds everywhere. A site has a score if every one of its runs has one; else it has none:
leaving out the seeds in which training diverged would reward a method for diverging, and a mean over fewer seeds would
be compared with means over more. (A test site with one class has an AUC under no seed.) Sites without a score do not
count towards means, and paired comparisons drop a site that has none in either method.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ..errors import BrioError
from ..protocol import auc, bootstrap_interval
from .summary import METRICS, MetricSummary

__all__ = ["average_seeds", "score_units", "summarise_ensemble", "summarise_metrics", "summarise_scores"]


def score_units(protocol: str) -> list[str]:
    """Return the columns that name a unit of a comparison.

    A site holds the same scans under every seed, so seeds are averaged; a numbered fold does not, so every fold of
    every seed counts.

    Examples
    --------
    >>> score_units("loso"), score_units("kfold")
    (['fold'], ['seed', 'fold'])
    """
    return ["fold"] if protocol == "loso" else ["seed", "fold"]


def average_seeds(
    rows: pd.DataFrame, metric: str = "auc", *, units: Sequence[str] = ("fold",), column: str = "method"
) -> pd.DataFrame:
    """Average the scores of runs over seeds, under the policy of this module.

    Parameters
    ----------
    rows : DataFrame
        One row per run, as in ``results.csv``.
    metric : str
        Column to average.
    units : names of columns
        What makes a row, see :func:`score_units`.
    column : str
        Column whose values make the columns: methods, or arms.

    Returns
    -------
    DataFrame, [unit x method]
        Methods in the order of the rows; NaN where a unit has no score.

    Raises
    ------
    BrioError
        If a run is there twice.

    Examples
    --------
    >>> rows = pd.DataFrame({"method": ["a", "a", "b"], "fold": "NYU", "seed": [0, 1, 0], "auc": [0.5, 0.75, 0.75]})
    >>> average_seeds(rows).loc["NYU"].to_dict()
    {'a': 0.625, 'b': 0.75}
    """
    twice = rows[rows.duplicated([column, "fold", "seed"])]
    if len(twice):
        name, fold, seed = twice.iloc[0][[column, "fold", "seed"]]
        raise BrioError(
            f"{column} '{name}', fold {fold}, seed {seed} is there twice; give methods of several jobs different names"
        )
    return _mean_of_complete(rows, [*units, column], metric).unstack(column)[list(dict.fromkeys(rows[column]))]


def _mean_of_complete(rows: pd.DataFrame, by: list[str], metric: str) -> pd.Series:
    """Mean of each group in which no value is missing."""
    groups = rows.groupby(by)[metric]
    return groups.mean().where(groups.count() == groups.size())


def summarise_scores(scores: Sequence[float] | np.ndarray | pd.Series) -> MetricSummary:
    """Summarise the scores of sites; those without one (NaN) do not count.

    Examples
    --------
    >>> summarise_scores([0.5, 0.75, float("nan")]).mean
    0.625
    """
    known = pd.Series(scores, dtype=float).dropna()
    low, high = bootstrap_interval(known.to_numpy())
    return MetricSummary(
        mean=float(known.mean()) if len(known) else None,
        sd=float(known.std(ddof=1)) if len(known) > 1 else None,
        interval=None if np.isnan(low) else (low, high),
        n=len(known),
    )


def summarise_metrics(rows: pd.DataFrame, protocol: str) -> dict[str, MetricSummary]:
    """Summarise every metric of the runs of one method over sites, or over the folds of all seeds under k-fold."""
    units = score_units(protocol)
    return {metric: summarise_scores(_mean_of_complete(rows, units, metric)) for metric in METRICS}


def summarise_ensemble(predictions: pd.DataFrame, protocol: str) -> MetricSummary:
    """Summarise the AUC of an ensemble: the logit of each scan is averaged over the seeds first.

    At each site, or over all scans together under k-fold, where another seed deals a scan to another fold.

    Parameters
    ----------
    predictions : DataFrame
        Those of one method, as in ``predictions.csv``.
    protocol : {"loso", "kfold"}
    """
    by = ["fold"] if protocol == "loso" else []
    scans = predictions.groupby([*by, "participant_id"]).agg(label=("label", "first"), logit=("logit", "mean"))
    scores = scans.groupby(by or (lambda scan: 0)).apply(
        lambda part: auc(part["label"].to_numpy(), part["logit"].to_numpy())
    )
    return summarise_scores(scores)

"""Tests over participants at fixed sites, and tests against chance, from the tables of jobs.

Two means of AUC over test sites are estimated. The *mean over sites* gives every site the same weight; the
*pair-weighted* AUC gives it to every pair of a patient and a control of the same site, so that large sites count more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd

from ..protocol import (
    PeopleTest,
    SiteAreas,
    adjust_holm,
    assess_over_people,
    compare_by_corrected_t,
    compare_by_signed_rank,
    detectable_difference,
    equal_weights,
    pair_weights,
)
from .sites import collect_areas, covariance_rows, site_rows
from .summary import MetricSummary

__all__ = [
    "ESTIMANDS",
    "MEAN_OVER_SITES",
    "PAIR_WEIGHTED",
    "assess_auc",
    "compare_over_people",
    "compute_chance_p",
    "summarise_people",
]

MEAN_OVER_SITES, PAIR_WEIGHTED = "mean over sites", "pair-weighted"
"""Names of the two estimands."""

ESTIMANDS: dict[str, Callable[[SiteAreas], np.ndarray]] = {
    MEAN_OVER_SITES: equal_weights,
    PAIR_WEIGHTED: pair_weights,
}
"""Name of an estimand -> the weights of the sites."""

CHANCE = 0.5


def assess_auc(sites: pd.DataFrame, covariances: pd.DataFrame, method: str) -> dict[str, PeopleTest]:
    """Estimate both means of the AUC of a method over test sites, and test them against chance over participants.

    Parameters
    ----------
    sites, covariances : DataFrame
        As in ``sites.csv`` and ``covariances.csv`` of leave-one-site-out jobs.
    method : str

    Returns
    -------
    dict of PeopleTest
        By :data:`ESTIMANDS`, with intervals inside [0, 1]; empty where no site has an AUC.
    """
    areas = collect_areas(sites, covariances, [method])
    if areas is None:
        return {}
    one = np.array([1.0])
    tests = {name: assess_over_people(areas, one, weigh(areas), null=CHANCE) for name, weigh in ESTIMANDS.items()}
    return {
        name: replace(test, low=float(np.maximum(test.low, 0)), high=float(np.minimum(test.high, 1)))
        for name, test in tests.items()
    }


def compare_over_people(
    sites: pd.DataFrame, covariances: pd.DataFrame, reference: str, *, alpha: float = 0.05
) -> pd.DataFrame:
    """Compare the AUC of all methods with that of a reference over participants at fixed sites, by DeLong's z test.

    Parameters
    ----------
    sites, covariances : DataFrame
        As in ``sites.csv`` and ``covariances.csv`` of leave-one-site-out jobs.
    reference : str
    alpha : float
        Level of the tests; intervals have level 1 - alpha.

    Returns
    -------
    DataFrame
        One row per method and estimand, for methods whose covariance with the reference is stored: ``method``,
        ``other``, ``estimand``, ``n_sites``, ``mean_difference``, ``low``, ``high``, ``p``, ``p_holm`` (corrected
        within the estimand), ``detectable`` and ``detectable_in_family``.
    """
    rows, contrast = [], np.array([1.0, -1.0])
    for method in dict.fromkeys(sites["method"]):
        areas = None if method == reference else collect_areas(sites, covariances, [method, reference])
        if areas is None:
            continue
        for estimand, weigh in ESTIMANDS.items():
            test = assess_over_people(areas, contrast, weigh(areas), alpha=alpha)
            row = {"method": method, "other": reference, "estimand": estimand, "n_sites": len(areas.auc)}
            row |= {"mean_difference": test.mean, "low": test.low, "high": test.high, "p": test.p}
            rows.append(row | {"error": test.error, "detectable": test.detectable})
    columns = ["method", "other", "estimand", "n_sites", "mean_difference", "low", "high", "p", "error", "detectable"]
    table = pd.DataFrame(rows, columns=columns)
    by_estimand = table.groupby("estimand")["p"]
    table.insert(8, "p_holm", by_estimand.transform(lambda p: adjust_holm(p.to_numpy())))
    comparisons = by_estimand.transform("count").clip(lower=1)
    table["detectable_in_family"] = [
        detectable_difference(error, alpha=alpha / n) for error, n in zip(table["error"], comparisons, strict=True)
    ]
    return table.drop(columns="error")


def compute_chance_p(scores: pd.Series, rows: pd.DataFrame, protocol: str) -> float | None:
    """Test the AUC of a method against chance over sites (signed-rank test) or folds (corrected resampled t).

    Parameters
    ----------
    scores : Series, shape [units]
        AUC at each site, or in each fold of each seed.
    rows : DataFrame
        Runs of the method, as in ``results.csv``.
    protocol : {"loso", "kfold"}

    Returns
    -------
    float or None
        Two-sided p value; None where there are too few scores.
    """
    chance = np.full(len(scores), CHANCE)
    if protocol == "loso":
        p = compare_by_signed_rank(scores.to_numpy(), chance).p
    else:
        n_other = rows["n_source"].mean() + rows["n_validation"].mean()
        p = compare_by_corrected_t(scores.to_numpy(), chance, rows["n_test"].mean(), n_other).p
    return None if np.isnan(p) else p


def summarise_people(predictions: pd.DataFrame, protocol: str, method: str) -> dict[str, object]:
    """Summarise what predictions say about the AUC over participants at fixed sites.

    Parameters
    ----------
    predictions : DataFrame
        Those of one method, as in ``predictions.csv``.
    protocol : {"loso", "kfold"}
    method : str
        Its name.

    Returns
    -------
    dict
        Fields of :class:`brio.results.MethodSummary`: ``pair_weighted_auc``, ``auc_interval_over_people``,
        ``p_chance_over_people``; empty under k-fold.
    """
    if protocol == "kfold":
        return {}
    sites = site_rows(predictions, protocol)
    tests = assess_auc(sites, covariance_rows(predictions, protocol), method)
    if not tests:
        return {}
    mean, pairs = tests[MEAN_OVER_SITES], tests[PAIR_WEIGHTED]
    return {
        "pair_weighted_auc": MetricSummary(mean=pairs.mean, interval=_interval(pairs), n=int(sites["auc"].count())),
        "auc_interval_over_people": _interval(mean),
        "p_chance_over_people": None if np.isnan(mean.p) else mean.p,
    }


def _interval(test: PeopleTest) -> tuple[float, float] | None:
    return None if np.isnan(test.error) else (test.low, test.high)

"""Intervals over participants at fixed sites, and tests against chance, from the tables of jobs.

Two means of AUC over test sites are estimated. The *mean over sites* gives every site the same weight; the
*pair-weighted* AUC gives it to every pair of a patient and a control of the same site, so that large sites count more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd

from ..protocol import (
    PeopleEstimate,
    SiteAreas,
    assess_over_people,
    compare_by_corrected_t,
    equal_weights,
    pair_weights,
)
from .aggregate import mean_correction
from .sites import collect_areas, covariance_rows, site_rows
from .summary import MetricSummary

MEAN_OVER_SITES, PAIR_WEIGHTED = "mean over sites", "pair-weighted"
"""Names of the two estimands."""

ESTIMANDS: dict[str, Callable[[SiteAreas], np.ndarray]] = {
    MEAN_OVER_SITES: equal_weights,
    PAIR_WEIGHTED: pair_weights,
}
"""Name of an estimand -> the weights of the sites."""

CHANCE = 0.5


def assess_auc(
    sites: pd.DataFrame, covariances: pd.DataFrame, method: str, correction: float | None = None
) -> dict[str, PeopleEstimate]:
    """Estimate both means of the AUC of a method over test sites, with intervals over participants."""
    areas = collect_areas(sites, covariances, [method])
    if areas is None:
        return {}
    one = np.array([1.0])
    means = {
        name: assess_over_people(areas, one, weigh(areas), correction=correction) for name, weigh in ESTIMANDS.items()
    }
    return {
        name: replace(mean, low=float(np.maximum(mean.low, 0)), high=float(np.minimum(mean.high, 1)))
        for name, mean in means.items()
    }


def compare_over_people(
    sites: pd.DataFrame, covariances: pd.DataFrame, reference: str, *, alpha: float = 0.05
) -> pd.DataFrame:
    """Estimate the difference of the AUC of all methods to that of a reference over participants at fixed sites.

    There is no p value: a pair of methods has one, over sites.

    Returns one row per method and estimand, for methods whose covariance with the reference is stored: ``method``,
    ``other``, ``estimand``, ``n_sites``, ``mean_difference``, ``low``, ``high``.
    """
    rows, contrast = [], np.array([1.0, -1.0])
    for method in dict.fromkeys(sites["method"]):
        areas = None if method == reference else collect_areas(sites, covariances, [method, reference])
        if areas is None:
            continue
        for estimand, weigh in ESTIMANDS.items():
            mean = assess_over_people(areas, contrast, weigh(areas), alpha=alpha)
            row = {"method": method, "other": reference, "estimand": estimand, "n_sites": len(areas.auc)}
            rows.append(row | {"mean_difference": mean.mean, "low": mean.low, "high": mean.high})
    columns = ["method", "other", "estimand", "n_sites", "mean_difference", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def compute_chance_p(scores: pd.Series, rows: pd.DataFrame, protocol: str) -> float | None:
    """Test the AUC of a method against chance over left-out sites or folds, by the corrected t test.

    Shapes: scores [units].

    Returns two-sided p value; None where there are too few scores, or they do not vary.
    """
    chance = np.full(len(scores), CHANCE)
    p = compare_by_corrected_t(scores.to_numpy(), chance, mean_correction(rows, protocol)).p
    return None if np.isnan(p) else p


def summarise_people(predictions: pd.DataFrame, protocol: str, method: str) -> dict[str, object]:
    """Summarise what predictions say about the AUC over participants at fixed sites."""
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
    }


def _interval(test: PeopleEstimate) -> tuple[float, float] | None:
    return None if np.isnan(test.error) else (test.low, test.high)

"""Scores of a method within groups of participants: by sex, and by age and motion below or above the median."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import ndtr

from ..protocol import PeopleEstimate
from ..results import GROUP_COLUMNS, PAIR_WEIGHTED, assess_auc, covariance_rows, site_rows
from .evidence import EvidenceArm

SMALLEST_CLASS = 10
"""Groups with fewer participants of a class are counted but not scored."""


@dataclass(frozen=True)
class Subgroup:
    """One group of participants."""

    kind: str  # for example "sex" and "F"
    value: str
    n: tuple[int, int]  # participants of the negative and of the positive class
    auc: float | None = None
    interval: tuple[float, float] | None = None  # 95 % interval over participants at these sites
    sensitivity: float | None = None  # over all participants of the group, margins averaged over seeds
    specificity: float | None = None
    p: float | None = None


def score_subgroups(arm: EvidenceArm, *, skip: tuple[str, ...] = ()) -> list[Subgroup]:
    """Score a leave-one-site-out arm within groups of participants."""
    groups, predictions = arm.job.groups, arm.predictions
    if groups is None or predictions.empty or arm.unit != "site":
        return []
    by_participant = groups.drop_duplicates("participant_id").set_index("participant_id")
    scored = []
    for kind in GROUP_COLUMNS:
        if kind not in by_participant or kind in skip:
            continue
        value = predictions["participant_id"].map(by_participant[kind])
        halves = ((arm.job.cohort_facts or {}).get("halves") or {}).get(kind, [])
        values = [*halves, *sorted(set(value.dropna()) - set(halves))]  # the lower half first
        parts = [_score(predictions[value == one], kind, str(one)) for one in values if (value == one).any()]
        scored += _compare_two(parts) if len(parts) == 2 else [subgroup for subgroup, _ in parts]
    return scored


def _score(predictions: pd.DataFrame, kind: str, value: str) -> tuple[Subgroup, PeopleEstimate | None]:
    people = predictions.groupby("participant_id").agg(label=("label", "first"), margin=("logit", "mean"))
    positive = people["label"] == 1
    n = int((~positive).sum()), int(positive.sum())
    if min(n) < SMALLEST_CLASS:
        return Subgroup(kind, value, n), None
    decision = people["margin"] > 0
    rates = float(decision[positive].mean()), float((~decision)[~positive].mean())
    own = _keep_comparable_sites(predictions).assign(method="own")
    if own.empty:
        return Subgroup(kind, value, n, None, None, *rates), None
    tables = site_rows(own, "loso"), covariance_rows(own, "loso"), "own"
    if not (means := assess_auc(*tables)):
        return Subgroup(kind, value, n, None, None, *rates), None
    mean = means[PAIR_WEIGHTED]
    interval = None if np.isnan(mean.error) else (mean.low, mean.high)
    # what the models share moves both groups alike, so their difference needs no correction for it
    return Subgroup(kind, value, n, mean.mean, interval, *rates), assess_auc(*tables, correction=0.0)[PAIR_WEIGHTED]


def _keep_comparable_sites(predictions: pd.DataFrame) -> pd.DataFrame:
    """Leave out sites where the group has fewer than two participants of a class: their AUC has no known error."""
    people = predictions.drop_duplicates(["fold", "participant_id"])
    fewest = pd.crosstab(people["fold"], people["label"]).reindex(columns=[0, 1], fill_value=0).min(axis=1)
    return predictions[predictions["fold"].map(fewest) >= 2]


def _compare_two(parts: list[tuple[Subgroup, PeopleEstimate | None]]) -> list[Subgroup]:
    """Test whether the AUC of two groups differs: they share no participant, so their errors add up."""
    (first, a), (second, b) = parts
    if a is None or b is None or not np.hypot(a.error, b.error) > 0:
        return [first, second]
    p = float(2 * ndtr(-abs(a.mean - b.mean) / np.hypot(a.error, b.error)))
    return [Subgroup(**{**vars(subgroup), "p": p}) for subgroup in (first, second)]

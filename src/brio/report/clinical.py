"""What an answer of a method means for one person: decisions, predictive values, calibration, what was detectable."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import logit, ndtr, ndtri

from ..errors import BrioError
from ..protocol import degrees_of_freedom, detectable_difference, standard_error
from ..protocol.calibration import roc_band
from ..protocol.recalibration import SiteMean, average_over_sites, fit_recalibration
from ..results import MetricSummary, average_seeds, mean_correction, unit_columns
from .evidence import EvidenceArm

HIGH_SPECIFICITY = 0.9
_CLIP = 1e-12
"""Probabilities are kept this far from 0 and 1, where they have no logit."""


@dataclass(frozen=True)
class OperatingPoint:
    """Sensitivity and specificity at one threshold, mean over sites (or folds)."""

    name: str
    sensitivity: MetricSummary
    specificity: MetricSummary

    @property
    def likelihood_ratios(self) -> tuple[float, float]:
        """By how much a positive and a negative answer multiply the odds; NaN where no such answer is given."""
        sensitivity, specificity = self.sensitivity.mean or 0.0, self.specificity.mean or 0.0
        return _divide_odds(sensitivity, 1 - specificity), _divide_odds(1 - sensitivity, specificity)


@dataclass(frozen=True)
class Confusion:
    """Counts of participants by class and decision."""

    true_positive: int  # participants of the positive class
    false_negative: int
    false_positive: int  # participants of the negative class
    true_negative: int

    @property
    def prevalence(self) -> float:
        """Share of the positive class, to a tenth of a percent, as the page shows it."""
        positive = self.true_positive + self.false_negative
        return round(positive / (positive + self.false_positive + self.true_negative), 3)


@dataclass(frozen=True)
class SiteCalibration:
    """Calibration of probabilities at sites that the method was not trained on."""

    slope: SiteMean
    n_sites: int  # test sites, also those without a slope
    predicted: float  # mean probability of the positive class over all participants, seeds averaged
    n_seeds: int


@dataclass(frozen=True)
class Answers:
    """What is known about the answers of a method."""

    arm: EvidenceArm
    points: list[OperatingPoint]  # at the method's own threshold; then at 90 % specificity, where there is a ROC curve
    confusion: Confusion | None  # None where predictions were not stored
    calibration: SiteCalibration | None  # None under k-fold, and where predictions were not stored
    detectable_auc: float | None
    allowed: float | None  # see balanced_accuracy_allowed


def compute_predictive_values(sensitivity: float, specificity: float, prevalence: float) -> tuple[float, float]:
    """Compute how often a positive and a negative answer are right, by Bayes' rule.

    Returns positive, negative: Predictive values; NaN where no such answer is given.
    """
    true_positive, false_negative = sensitivity * prevalence, (1 - sensitivity) * prevalence
    true_negative, false_positive = specificity * (1 - prevalence), (1 - specificity) * (1 - prevalence)
    return _divide(true_positive, true_positive + false_positive), _divide(
        true_negative, true_negative + false_negative
    )


def _divide_odds(part: float, other: float) -> float:
    if other > 0:
        return part / other
    return float("inf") if part > 0 else float("nan")


def _divide(part: float, whole: float) -> float:
    return part / whole if whole > 0 else float("nan")


def balanced_accuracy_allowed(auc: float) -> float:
    """Compute the balanced accuracy that an AUC allows at the best threshold.

    Margins of both classes are taken as normal with the same variance.
    """
    return float(ndtr(ndtri(auc) / np.sqrt(2)))


def describe_answers(arm: EvidenceArm) -> Answers:
    """Describe what the answers of an arm mean."""
    own = OperatingPoint("its own threshold", arm.summary.sensitivity, arm.summary.specificity)
    points = [own] if own.sensitivity.mean is not None and own.specificity.mean is not None else []
    auc = arm.summary.auc.mean
    return Answers(
        arm=arm,
        points=[*points, *_find_high_specificity(arm)],
        confusion=_count_decisions(arm.predictions) if len(arm.predictions) else None,
        calibration=_describe_calibration(arm.predictions) if arm.unit == "site" and len(arm.predictions) else None,
        detectable_auc=_find_detectable_auc(arm),
        allowed=None if auc is None else balanced_accuracy_allowed(auc),
    )


def _find_high_specificity(arm: EvidenceArm) -> list[OperatingPoint]:
    """Read the mean ROC curve at 90 % specificity, where each site (or fold) has its own threshold."""
    correction = mean_correction(arm.rows, arm.protocol)
    try:
        band = roc_band(arm.predictions, by=unit_columns(arm.protocol), points=51, correction=correction)
    except BrioError:
        return []
    k = int(np.argmin(np.abs(band.false_positive_rate - (1 - HIGH_SPECIFICITY))))
    interval = None if np.isnan(band.low[k]) else (float(band.low[k]), float(band.high[k]))
    sensitivity = MetricSummary(mean=float(band.true_positive_rate[k]), interval=interval, n=band.n_sites)
    specificity = MetricSummary(mean=HIGH_SPECIFICITY, n=band.n_sites)
    return [OperatingPoint("90 % specificity", sensitivity, specificity)]


def _count_decisions(predictions: pd.DataFrame) -> Confusion:
    """Count participants by class and decision; margins are averaged over seeds, so that each counts once.

    A participant whose runs all diverged has no decision.
    """
    people = predictions.groupby("participant_id").agg(label=("label", "first"), margin=("logit", "mean")).dropna()
    label, decision = people["label"] == 1, people["margin"] > 0
    return Confusion(
        true_positive=int((label & decision).sum()),
        false_negative=int((label & ~decision).sum()),
        false_positive=int((~label & decision).sum()),
        true_negative=int((~label & ~decision).sum()),
    )


def _describe_calibration(predictions: pd.DataFrame) -> SiteCalibration:
    """Recalibrate every run at its test site; seeds of a site are averaged, since they see the same participants."""
    rows = []
    for (fold, _), run in predictions.groupby(["fold", "seed"]):
        probability = run["probability"].to_numpy(dtype=float).clip(_CLIP, 1 - _CLIP)
        label = run["label"].to_numpy()
        fit = fit_recalibration(label, logit(probability))
        rows.append({"fold": fold, "slope": fit.slope, "se": fit.slope_se})
    sites = pd.DataFrame(rows).groupby("fold").mean()
    slope = average_over_sites(sites["slope"].to_numpy(), sites["se"].to_numpy())
    people = predictions.groupby("participant_id")["probability"].mean()
    return SiteCalibration(slope, len(sites), float(people.mean()), predictions["seed"].nunique())


def _find_detectable_auc(arm: EvidenceArm) -> float | None:
    scores = average_seeds(arm.rows, units=unit_columns(arm.protocol))[arm.name].dropna()
    if len(scores) < 2:
        return None
    correction = mean_correction(arm.rows, arm.protocol)
    error = standard_error(scores, correction)
    detectable = 0.5 + detectable_difference(error, degrees_of_freedom(scores, correction))
    return detectable if detectable <= 1 else None

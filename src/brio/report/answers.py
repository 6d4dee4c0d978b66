"""What an answer of the best method means for one person: decisions, predictive values, calibration, subgroups."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import logit, ndtr, ndtri

from ..cohort.covariates import ClassNames
from ..formatting import format_count, format_interval, format_number, format_percent, format_points
from ..protocol import PeopleEstimate
from ..protocol.calibration import SiteMean, average_over_sites, fit_recalibration
from ..protocol.statistics import degrees_of_freedom, detectable_difference, standard_error
from ..results import (
    GROUP_COLUMNS,
    PAIR_WEIGHTED,
    MetricSummary,
    assess_auc,
    covariance_rows,
    mean_correction,
    site_rows,
)
from .comparisons import EvidenceArm

STRONG, WEAK = (10.0, 0.1), (2.0, 0.5)
"""Likelihood ratios of a positive and a negative answer that change what is known much, and hardly (Jaeschke et al.
1994)."""
DISAGREEMENT = 0.03
"""A balanced accuracy this far below what the AUC allows is explained."""


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
    def rates(self) -> tuple[float, float]:
        """Mean sensitivity and specificity."""
        return self.sensitivity.mean or 0.0, self.specificity.mean or 0.0

    @property
    def likelihood_ratios(self) -> tuple[float, float]:
        """By how much a positive and a negative answer multiply the odds; NaN where no such answer is given."""
        sensitivity, specificity = self.rates
        odds = (sensitivity, 1 - specificity), (1 - sensitivity, specificity)
        positive, negative = (a / b if b > 0 else math.inf if a > 0 else math.nan for a, b in odds)
        return positive, negative


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
    """Compute how often a positive and a negative answer are right, by Bayes' rule; NaN where none is given."""
    true_positive, false_negative = sensitivity * prevalence, (1 - sensitivity) * prevalence
    true_negative, false_positive = specificity * (1 - prevalence), (1 - specificity) * (1 - prevalence)
    positives, negatives = true_positive + false_positive, true_negative + false_negative
    return (
        true_positive / positives if positives > 0 else math.nan,
        true_negative / negatives if negatives > 0 else math.nan,
    )


def balanced_accuracy_allowed(auc: float) -> float:
    """Compute the balanced accuracy that an AUC allows at the best threshold.

    Margins of both classes are taken as normal with the same variance.
    """
    return float(ndtr(ndtri(auc) / np.sqrt(2)))


def describe_answers(arm: EvidenceArm) -> Answers:
    """Describe what the answers of an arm mean."""
    own = OperatingPoint("its own threshold", arm.summary.sensitivity, arm.summary.specificity)
    points = [own] if own.sensitivity.mean is not None and own.specificity.mean is not None else []
    if (roc := arm.roc) is not None:  # at 90 % specificity each site (or fold) has its own threshold
        k = int(np.argmin(np.abs(roc.false_positive_rate - (1 - HIGH_SPECIFICITY))))
        interval = None if np.isnan(roc.low[k]) else (float(roc.low[k]), float(roc.high[k]))
        sensitivity = MetricSummary(mean=float(roc.true_positive_rate[k]), interval=interval, n=roc.n_sites)
        specificity = MetricSummary(mean=HIGH_SPECIFICITY, n=roc.n_sites)
        points.append(OperatingPoint("90 % specificity", sensitivity, specificity))
    scores, correction = arm.scores, mean_correction(arm.rows, arm.protocol)
    detectable = None
    if len(scores) > 1:
        error = standard_error(scores, correction)
        detectable = 0.5 + detectable_difference(error, degrees_of_freedom(scores, correction))
    auc = arm.summary.auc.mean
    return Answers(
        arm=arm,
        points=points,
        confusion=_count_decisions(arm.predictions) if len(arm.predictions) else None,
        calibration=_describe_calibration(arm.predictions) if arm.unit == "site" and len(arm.predictions) else None,
        detectable_auc=detectable if detectable is not None and detectable <= 1 else None,
        allowed=None if auc is None else balanced_accuracy_allowed(auc),
    )


def _count_decisions(predictions: pd.DataFrame) -> Confusion:
    """Count participants by class and decision; margins are averaged over seeds, so that each counts once.

    A participant whose runs all diverged has no decision.
    """
    people = predictions.groupby("participant_id").agg(label=("label", "first"), margin=("logit", "mean")).dropna()
    label, decision = people["label"] == 1, people["margin"] > 0
    cells = label & decision, label & ~decision, ~label & decision, ~label & ~decision
    return Confusion(*(int(cell.sum()) for cell in cells))


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


@dataclass(frozen=True)
class Usability:
    """Whether answers about one person can be used."""

    answer: str
    reason: str  # one sentence without its full stop
    notes: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """Answer and reason."""
        return f"{self.answer}: {self.reason}."


def judge_usability(answers: Answers | None, classes: ClassNames, smoke_reason: str = "") -> Usability:
    """Judge whether answers about one person can be used.

    No result of a retrospective evaluation makes a method usable: the best answer is "not yet".
    """
    if answers is None:
        return Usability("No", "no method that uses connectomes has an AUC here")
    auc, name = answers.arm.summary.auc, answers.arm.name
    answer = "No"
    if smoke_reason:
        reason = f"this is a smoke run ({smoke_reason}), which supports no claim"
    elif answers.arm.unit == "fold":
        reason = "scans of every site took part in training, so a new hospital was never tested"
    elif auc.interval is None:
        reason = f"one site is too few to say how {name} does at another"
    elif auc.interval[0] <= 0.5:
        reason = f"at new sites {name} is not shown to be better than chance"
    elif not answers.points:
        reason = f"sensitivity and specificity of {name} are not known"
    else:
        positive, negative = answers.points[0].likelihood_ratios
        size = f"{_describe_ratio('positive', positive)}, {_describe_ratio('negative', negative)}"
        if positive >= STRONG[0] and negative <= STRONG[1]:
            answer, reason = "Not yet", f"{size}, which is much, but only a prospective study can confirm it"
        elif positive >= WEAK[0] or negative <= WEAK[1]:
            reason = f"an answer changes what is known about a person too little for a decision ({size})"
        else:  # also where no such answer is given
            reason = f"an answer hardly changes what is known about a person ({size})"
    return Usability(answer, reason, _write_notes(answers, classes))


def _describe_ratio(answer: str, ratio: float) -> str:
    """Say by how much an answer multiplies the odds, or why that has no number."""
    if math.isnan(ratio):
        return f"no answer was {answer}"
    if ratio in (0.0, math.inf):
        always_right = (ratio > 0) == (answer == "positive")
        return f"no {answer} answer was {'wrong' if always_right else 'right'}"
    return f"a {answer} answer multiplies the odds by {format_number(ratio, 1 if ratio >= 1 else 2)}"


def _write_notes(answers: Answers, classes: ClassNames) -> tuple[str, ...]:
    notes = []
    if answers.points and answers.confusion is not None:
        share = answers.confusion.prevalence
        values = compute_predictive_values(*answers.points[0].rates, share)
        if not any(map(math.isnan, values)):  # both answers were given
            notes.append(
                f"Where {format_percent(share)} % are {classes.are_positive}, as in these data, a positive answer is "
                f"right in {format_percent(values[0])} % of cases and a negative one in {format_percent(values[1])} %."
            )
    explanation = explain_balanced_accuracy(answers)
    return (*notes, explanation) if explanation else tuple(notes)


def explain_balanced_accuracy(answers: Answers) -> str:
    """Explain why balanced accuracy lies below what the AUC allows; empty where it does not."""
    summary = answers.arm.summary
    auc, accuracy = summary.auc.mean, summary.balanced_acc.mean
    if auc is None or accuracy is None or answers.allowed is None or answers.allowed - accuracy < DISAGREEMENT:
        return ""
    if summary.auc.interval is None or summary.auc.interval[0] <= 0.5:  # no threshold helps scans in a random order
        return ""
    sensitivity, specificity = summary.sensitivity.mean or 0.0, summary.specificity.mean or 0.0
    text = (
        f"An AUC of {format_percent(auc)} % allows a balanced accuracy of about {format_percent(answers.allowed)} %, "
        f"but decisions reach {format_percent(accuracy)} %: scans of a {answers.arm.unit} are ordered better than its "
        "threshold divides them"
    )
    if abs(sensitivity - specificity) >= 0.1:
        side = "positive" if sensitivity > specificity else "negative"
        text += (
            f" (sensitivity {format_percent(sensitivity)} %, specificity {format_percent(specificity)} %: too many "
            f"{side} answers)"
        )
    return f"{text}." + (" A threshold set at each site would help." if answers.arm.unit == "site" else "")


def describe_site_calibration(answers: Answers, classes: ClassNames) -> str:
    """Say how probabilities hold at sites that the method was not trained on; empty where it is not known."""
    calibration = answers.calibration
    if calibration is None or calibration.slope.n == 0:
        return ""
    slope = calibration.slope
    confusion = answers.confusion
    share = f" (share of {classes.positives}: {format_percent(confusion.prevalence)} %)" if confusion else ""
    averaged = f", {format_count(calibration.n_seeds, 'seed')} averaged" if calibration.n_seeds > 1 else ""
    n_sites = format_count(slope.n, "site")
    if slope.n < calibration.n_sites:
        n_sites = f"{slope.n} of {calibration.n_sites} sites (elsewhere one class, or classes that do not overlap)"
    text = (
        f"{answers.arm.name}{averaged}: mean probability of all participants "
        f"{format_percent(calibration.predicted)} %{share}. Slope, fitted at each test site, mean over "
        f"{n_sites}: {format_number(slope.mean)}"
    )
    if slope.low == slope.low:  # three sites or more
        text += (
            f" (95 % interval {format_interval([slope.low, slope.high], format_number)}; at a new site "
            f"{format_interval([slope.new_low, slope.new_high], format_number)})"
        )
        if slope.high < 1:
            return f"{text}: probabilities are too extreme."
        if slope.low > 1:
            return f"{text}: probabilities are too cautious."
    return f"{text}; 1 is calibrated, below 1 probabilities are too extreme."


def describe_detectable(answers: Answers, differences: dict[str, dict[str, Any]], reference: str) -> list[str]:
    """Say what a test over these sites would have found with 80 % power, or that it could have found nothing."""
    unit, texts = answers.arm.unit, []
    if answers.detectable_auc is not None:
        texts.append(
            f"With {answers.arm.summary.auc.n} {unit}s of this spread, a test finds a mean AUC of "
            f"{format_percent(answers.detectable_auc)} % or more to differ from chance (80 % power)."
        )
    elif answers.arm.summary.auc.n > 1:
        count = format_count(answers.arm.summary.auc.n, unit)
        texts.append(
            f"{count} of this spread are too few to show with 80 % power that any mean AUC differs from chance."
        )
    known = [row["detectable_in_family"] for row in differences.values() if row["detectable_in_family"] > 0]
    if known:
        low, high = (format_points(end).removeprefix("+") for end in (min(known), max(known)))
        size = low if low == high else f"{low} to {high}"
        texts.append(
            f"A difference from {reference} had to be {size} points of AUC to be found, all comparisons counted: a "
            "smaller one may be there."
        )
    return texts


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
        estimates, p = [estimate for _, estimate in parts if estimate is not None], None
        if len(parts) == len(estimates) == 2:
            a, b = estimates
            error = np.hypot(a.error, b.error)  # they share no participant, so their errors add up
            p = float(2 * ndtr(-abs(a.mean - b.mean) / error)) if error > 0 else None
        scored += [replace(subgroup, p=p) for subgroup, _ in parts]
    return scored


def _score(predictions: pd.DataFrame, kind: str, value: str) -> tuple[Subgroup, PeopleEstimate | None]:
    people = predictions.groupby("participant_id").agg(label=("label", "first"), margin=("logit", "mean"))
    positive, decision = people["label"] == 1, people["margin"] > 0
    group = Subgroup(kind, value, (int((~positive).sum()), int(positive.sum())))
    if min(group.n) < SMALLEST_CLASS:
        return group, None
    rates = float(decision[positive].mean()), float((~decision)[~positive].mean())
    group = replace(group, sensitivity=rates[0], specificity=rates[1])
    # sites where the group has fewer than two participants of a class are left out: their AUC has no known error
    placed = predictions.drop_duplicates(["fold", "participant_id"])
    fewest = pd.crosstab(placed["fold"], placed["label"]).reindex(columns=[0, 1], fill_value=0).min(axis=1)
    own = predictions[predictions["fold"].map(fewest) >= 2].assign(method="own")
    if own.empty:
        return group, None
    tables = site_rows(own, "loso"), covariance_rows(own, "loso"), "own"
    if not (means := assess_auc(*tables)):
        return group, None
    mean = means[PAIR_WEIGHTED]
    interval = None if np.isnan(mean.error) else (mean.low, mean.high)
    # what the models share moves both groups alike, so their difference needs no correction for it
    return replace(group, auc=mean.mean, interval=interval), assess_auc(*tables, correction=0.0)[PAIR_WEIGHTED]

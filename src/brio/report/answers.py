"""What a prediction of the best method means for one individual: predictive values, calibration, subgroups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from .. import results
from ..formatting import format_number, state_p
from ..protocol import PeopleEstimate
from ..protocol.calibration import SiteMean, average_recalibration, recalibrate_sites
from ..protocol.statistics import (
    ALPHA,
    FEW_SITES,
    adjust_holm,
    degrees_of_freedom,
    detectable_difference,
    standard_error,
)
from .comparisons import EvidenceArm

STRONG, WEAK = (10.0, 0.1), (2.0, 0.5)
"""Likelihood ratios of a positive and a negative prediction that change the odds much, or hardly (Jaeschke et al.
1994)."""
DISAGREEMENT = 0.03
"""The report explains a balanced accuracy that is this far below the one that the AUC allows."""


HIGH_SPECIFICITY = 0.9


@dataclass(frozen=True)
class Confusion:
    """Counts of participants by class and decision."""

    true_positive: int  # participants of the positive class
    false_negative: int
    false_positive: int  # participants of the negative class
    true_negative: int

    @property
    def of_classes(self) -> tuple[int, int]:
        """Participants of the negative and of the positive class."""
        return self.false_positive + self.true_negative, self.true_positive + self.false_negative

    @property
    def prevalence(self) -> float:
        """Share of the positive class, to a tenth of a percent, as the page shows it."""
        negative, positive = self.of_classes
        return round(positive / (positive + negative), 3)


@dataclass(frozen=True)
class OperatingPoint:
    """Sensitivity and specificity at one threshold, mean over sites (or folds)."""

    name: str
    sensitivity: results.MetricSummary
    specificity: results.MetricSummary

    @property
    def rates(self) -> tuple[float, float]:
        """Mean sensitivity and specificity."""
        return self.sensitivity.mean or 0.0, self.specificity.mean or 0.0

    @property
    def likelihood_ratios(self) -> tuple[float, float]:
        """Factors by which a positive and a negative prediction multiply the odds; NaN without such predictions."""
        sensitivity, specificity = self.rates
        odds = (sensitivity, 1 - specificity), (1 - sensitivity, specificity)
        positive, negative = (a / b if b > 0 else math.inf if a > 0 else math.nan for a, b in odds)
        return positive, negative

    def predictive_values(self, prevalence: float) -> tuple[float, float]:
        """Compute how often positive and negative predictions are correct, by Bayes' rule; NaN without any."""
        sensitivity, specificity = self.rates
        right = sensitivity * prevalence, specificity * (1 - prevalence)
        wrong = (1 - specificity) * (1 - prevalence), (1 - sensitivity) * prevalence
        positive, negative = (a / (a + b) if a + b > 0 else math.nan for a, b in zip(right, wrong, strict=True))
        return positive, negative

    def count_decisions(self, people: int, prevalence: float) -> Confusion:
        """Count the predictions that this many individuals would get."""
        sensitivity, specificity = self.rates
        ill = round(people * prevalence)
        true_positive, true_negative = round(ill * sensitivity), round((people - ill) * specificity)
        return Confusion(true_positive, ill - true_positive, people - ill - true_negative, true_negative)


@dataclass(frozen=True)
class SiteCalibration:
    """Calibration of probabilities at sites that the method was not trained on."""

    slope: SiteMean
    n_sites: int  # test sites, also those without a slope
    predicted: float  # mean probability of the positive class over all participants, seeds averaged
    n_seeds: int


def balanced_accuracy_allowed(auc: float) -> float:
    """Compute the balanced accuracy that an AUC allows at the best threshold.

    Margins of both classes are taken as normal with the same variance.
    """
    return float(ndtr(ndtri(auc) / np.sqrt(2)))


@dataclass(frozen=True, eq=False)
class Answers:
    """What is known about the predictions of a method for individuals."""

    arm: EvidenceArm

    @cached_property
    def points(self) -> list[OperatingPoint]:
        """At the method's own threshold, then at 90% specificity if there is a ROC curve."""
        own = OperatingPoint("the method's own threshold", self.arm.summary.sensitivity, self.arm.summary.specificity)
        points = [own] if own.sensitivity.mean is not None and own.specificity.mean is not None else []
        if (roc := self.arm.roc) is not None:  # at 90% specificity each site (or fold) has its own threshold
            k = int(np.argmin(np.abs(roc.false_positive_rate - (1 - HIGH_SPECIFICITY))))
            interval = None if np.isnan(roc.low[k]) else (float(roc.low[k]), float(roc.high[k]))
            sensitivity = results.MetricSummary(mean=float(roc.true_positive_rate[k]), interval=interval, n=roc.n_sites)
            specificity = results.MetricSummary(mean=HIGH_SPECIFICITY, n=roc.n_sites)
            points.append(OperatingPoint("90% specificity", sensitivity, specificity))
        return points

    @cached_property
    def confusion(self) -> Confusion | None:
        """Decisions on all participants; None where predictions were not stored."""
        return _count_decisions(self.arm.predictions) if len(self.arm.predictions) else None

    @property
    def prevalence(self) -> float:
        """Share of the positive class in these data; one half if unknown."""
        return self.confusion.prevalence if self.confusion else 0.5

    @cached_property
    def calibration(self) -> SiteCalibration | None:
        """Every run recalibrated at its test site; seeds of a site are averaged, since they see the same participants.

        None under k-fold, where predictions were not stored, and where no site has a slope.
        """
        predictions = self.arm.predictions
        if self.arm.unit == "fold" or predictions.empty:
            return None
        sites = recalibrate_sites(predictions)
        slope = average_recalibration(sites, "slope")
        people = predictions.groupby("participant_id")["probability"].mean()
        if slope.n == 0:
            return None
        return SiteCalibration(slope, len(sites), float(people.mean()), predictions["seed"].nunique())

    @property
    def detectable_auc(self) -> float | None:
        """The smallest true mean AUC that a test against chance detects with 80% power; None if there is none."""
        scores, correction = self.arm.scores, results.mean_correction(self.arm.rows, self.arm.protocol)
        if len(scores) < 2:
            return None
        error = standard_error(scores, correction)
        detectable = 0.5 + detectable_difference(error, degrees_of_freedom(scores, correction))
        return detectable if detectable <= 1 else None

    def explain_no_claim(self, smoke: str = "") -> str:
        """Explain why the results support no claim; empty if they may support one."""
        auc, n_fewest = self.arm.summary.auc, min(self.confusion.of_classes) if self.confusion else None
        return results.explain_no_claim(smoke, n_fewest, auc.n, auc.interval, self.arm.unit)

    @property
    def unused_accuracy(self) -> float | None:
        """The balanced accuracy that the AUC allows, if the decisions do not reach it; else None."""
        auc, reached = self.arm.summary.auc, self.arm.summary.balanced_acc.mean
        if auc.mean is None or reached is None or auc.interval is None or auc.interval[0] <= 0.5:
            return None  # no threshold helps scans in a random order
        allowed = balanced_accuracy_allowed(auc.mean)
        return allowed if allowed - reached >= DISAGREEMENT else None


def _count_decisions(predictions: pd.DataFrame) -> Confusion:
    """Count participants by class and decision; margins are averaged over seeds, so that each counts once.

    A participant whose runs all diverged has no decision.
    """
    people = predictions.groupby("participant_id").agg(label=("label", "first"), margin=("margin", "mean")).dropna()
    label, decision = people["label"] == 1, people["margin"] > 0
    cells = label & decision, label & ~decision, ~label & decision, ~label & ~decision
    return Confusion(*(int(cell.sum()) for cell in cells))


class Judgement(NamedTuple):
    """The answer to one of the two questions of the verdict."""

    answer: str
    reason: str  # one sentence without its full stop
    size: str = ""  # numbers on which it rests

    @property
    def sentence(self) -> str:
        """Answer, reason and numbers."""
        return f"{self.answer}: {self.reason}{f' ({self.size})' if self.size else ''}."


def judge_transfer(answers: Answers | None, smoke_reason: str = "", p_values: Sequence[float | None] = ()) -> Judgement:
    """Judge whether the best method is better than chance at sites that it was not trained on.

    ``p_values`` are those of all ranked methods against chance, the best method first. The best of many methods is
    better than chance too often, so its p value is corrected for all of them (Holm).
    """
    if answers is None:
        return Judgement("Not known", "no method that uses connectomes has an AUC")
    if no_claim := answers.explain_no_claim(smoke_reason):
        return Judgement("Not known", no_claim)
    auc, name = answers.arm.summary.auc, answers.arm.title
    if answers.arm.unit == "fold":
        return Judgement("Not tested", "k-fold leaves no site out, so the evaluation says nothing about unseen sites")
    if auc.interval is None or auc.interval[0] <= 0.5:
        few = f"with only {auc.n} sites, " if auc.n <= FEW_SITES else ""
        return Judgement("No", f"{few}{name} was not significantly better than chance at sites it was not trained on")
    corrected = adjust_holm([1.0 if p is None else p for p in p_values])
    if len(corrected) > 1 and corrected[0] > ALPHA:
        best = f"{name}, the best of {len(corrected)} methods,"
        p = f"{state_p(corrected[0])}, corrected for the number of methods"
        return Judgement("No", f"{best} was not significantly better than chance at sites it was not trained on ({p})")
    return Judgement("Yes", f"{name} was significantly better than chance at sites it was not trained on")


def judge_usability(answers: Answers | None, transfer: Judgement) -> Judgement:
    """Judge whether predictions for one individual can be used, after :func:`judge_transfer`.

    No result of a retrospective evaluation makes a method usable: the best answer is "not yet".
    """
    if answers is None or transfer.answer != "Yes":
        return Judgement("Not known" if transfer.answer == "Not known" else "No", transfer.reason)
    if not answers.points:
        return Judgement("No", f"sensitivity and specificity of {answers.arm.title} are unknown")
    positive, negative = answers.points[0].likelihood_ratios
    size = f"{_describe_ratio('positive', positive)} and {_describe_ratio('negative', negative)}"
    if positive >= STRONG[0] and negative <= STRONG[1]:
        reason = "a prediction changes the odds for an individual a lot, but only a prospective study can confirm this"
        return Judgement("Not yet", reason, size)
    if positive >= WEAK[0] or negative <= WEAK[1]:
        reason = "predictions of at least one class change the odds for an individual too little for a decision"
        return Judgement("No", reason, size)
    # also if no such prediction was made
    return Judgement("No", "a prediction hardly changes the odds for an individual", size)


def _describe_ratio(prediction: str, ratio: float) -> str:
    """State the factor by which a prediction multiplies the odds, or why there is none."""
    if math.isnan(ratio):
        return f"no prediction was {prediction}"
    if ratio in (0.0, math.inf):
        always_correct = (ratio > 0) == (prediction == "positive")
        return f"no {prediction} prediction was {'wrong' if always_correct else 'correct'}"
    return f"a {prediction} prediction multiplies the odds by {format_number(ratio, 1 if ratio >= 1 else 2)}"


SMALLEST_CLASS = results.LEAST_PER_CLASS
"""Groups with fewer participants of a class are counted but not scored."""


@dataclass(frozen=True)
class Subgroup:
    """One group of participants."""

    kind: str  # for example "sex" and "F"
    value: str
    counts: Confusion  # over all participants of the group, margins averaged over seeds
    auc: PeopleEstimate | None = None  # pair-weighted, with its interval over participants at these sites
    p: float | None = None

    @property
    def rates(self) -> tuple[float | None, float | None]:
        """Sensitivity and specificity; None in a small group."""
        if min(self.counts.of_classes) < SMALLEST_CLASS:
            return None, None
        negative, positive = self.counts.of_classes
        return self.counts.true_positive / positive, self.counts.true_negative / negative


def score_subgroups(arm: EvidenceArm, *, skip: tuple[str, ...] = ()) -> list[Subgroup]:
    """Score a leave-one-site-out arm within groups of participants."""
    groups, predictions = arm.job.groups, arm.predictions
    if groups is None or predictions.empty or arm.unit != "site":
        return []
    by_participant = groups.drop_duplicates("participant_id").set_index("participant_id")
    scored = []
    for kind in (kind for kind in results.GROUP_COLUMNS if kind in by_participant and kind not in skip):
        value = predictions["participant_id"].map(by_participant[kind])
        halves = ((arm.job.cohort_facts or {}).get("halves") or {}).get(kind, [])
        values = [*halves, *sorted(set(value.dropna()) - set(halves))]  # the lower half first
        parts = {str(one): predictions[value == one] for one in values if (value == one).any()}
        tables = [_tabulate_sites(part) for part in parts.values()]
        # what the models share moves both groups alike, so their difference needs no correction for it
        estimates, alone = ([_estimate_auc(table, correction) for table in tables] for correction in (None, 0.0))
        p = None
        if len(alone) == 2 and alone[0] and alone[1]:
            error = np.hypot(alone[0].error, alone[1].error)  # they share no participant, so their errors add up
            p = float(2 * ndtr(-abs(alone[0].mean - alone[1].mean) / error)) if error > 0 else None
        for (name, part), auc in zip(parts.items(), estimates, strict=True):
            scored.append(Subgroup(kind, name, _count_decisions(part), auc, p))
    return scored


def _tabulate_sites(predictions: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """Make the rows of sites and of covariances of a group; None where it is too small.

    Sites where it has fewer than two participants of a class are left out: their AUC has no known error.
    """
    if min(_count_decisions(predictions).of_classes) < SMALLEST_CLASS:
        return None
    placed = predictions.drop_duplicates(["fold", "participant_id"])
    fewest = pd.crosstab(placed["fold"], placed["label"]).reindex(columns=[0, 1], fill_value=0).min(axis=1)
    own = predictions[predictions["fold"].map(fewest) >= 2].assign(method="own")
    return None if own.empty else (results.site_rows(own, "loso"), results.covariance_rows(own, "loso"))


def _estimate_auc(tables: tuple[pd.DataFrame, pd.DataFrame] | None, correction: float | None) -> PeopleEstimate | None:
    return None if tables is None else results.assess_auc(*tables, "own", correction).get(results.PAIR_WEIGHTED)

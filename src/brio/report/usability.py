"""Whether the answers of a method can be used for one person: fixed rules that read the numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..cohort.class_names import ClassNames
from ..formatting import format_count
from ..results.format import format_interval, format_number, format_percent, format_points
from .clinical import Answers, compute_predictive_values

STRONG, WEAK = (10.0, 0.1), (2.0, 0.5)
"""Likelihood ratios of a positive and a negative answer that change what is known much, and hardly (Jaeschke et al.
1994)."""
DISAGREEMENT = 0.03
"""A balanced accuracy this far below what the AUC allows is explained."""


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
    notes = _write_notes(answers, classes)
    if smoke_reason:
        return Usability("No", f"this is a smoke run ({smoke_reason}), which supports no claim", notes)
    auc, name = answers.arm.summary.auc, answers.arm.name
    if answers.arm.unit == "fold":
        return Usability("No", "scans of every site took part in training, so a new hospital was never tested", notes)
    if auc.interval is None:
        return Usability("No", f"one site is too few to say how {name} does at another", notes)
    if auc.interval[0] <= 0.5:
        return Usability("No", f"at new sites {name} is not shown to be better than chance", notes)
    if not answers.points:
        return Usability("No", f"sensitivity and specificity of {name} are not known", notes)
    positive, negative = answers.points[0].likelihood_ratios
    size = f"{_describe_ratio('positive', positive)}, {_describe_ratio('negative', negative)}"
    if positive >= STRONG[0] and negative <= STRONG[1]:
        return Usability("Not yet", f"{size}, which is much, but only a prospective study can confirm it", notes)
    if not (positive >= WEAK[0] or negative <= WEAK[1]):  # also where no such answer is given
        return Usability("No", f"an answer hardly changes what is known about a person ({size})", notes)
    return Usability("No", f"an answer changes what is known about a person too little for a decision ({size})", notes)


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
        point, share = answers.points[0], answers.confusion.prevalence
        values = compute_predictive_values(point.sensitivity.mean or 0.0, point.specificity.mean or 0.0, share)
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

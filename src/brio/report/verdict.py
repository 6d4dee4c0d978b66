"""What a reader may conclude: the verdict, and whether a clinic could use it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import logit, ndtr, ndtri

from ..cohort.covariates import ClassNames
from ..errors import BrioError
from ..formatting import format_count, state_p
from ..protocol import EQUIVALENCE_MARGIN, degrees_of_freedom, detectable_difference, standard_error
from ..protocol.calibration import SiteMean, average_over_sites, fit_recalibration, roc_band
from ..results import MetricSummary, average_seeds, mean_correction, unit_columns
from ..results.format import format_interval, format_number, format_percent, format_points, join_names, typeset
from .cohort import find_audit_warnings
from .comparisons import ALPHA, LINEAR_METHODS, Comparison
from .evidence import Evidence, EvidenceArm
from .repeat import read_defaults

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


def write_verdict(evidence: Evidence, comparison: Comparison) -> list[str]:
    """Write three sentences: the best method, its difference from the reference, and reasons for caution."""
    parts = [_describe_controls(evidence), _describe_audit(evidence), *_describe_short_training(comparison)]
    caution = f"{'; '.join(parts)}."
    if not comparison.ranked:
        return ["No method that uses connectomes has an AUC here, so there is no ranking.", "No comparison.", caution]
    return [_describe_best(evidence, comparison), _describe_difference(evidence, comparison), caution]


def find_smoke_reason(evidence: Evidence, comparison: Comparison) -> str:
    """Say why the numbers are a smoke run, which is not tested and supports no claim; empty where they are not."""
    if evidence.smoke_reason:
        return evidence.smoke_reason
    summaries = [arm.job.summary for arm in comparison.ranked if arm.job.summary.smoke_run]
    if not summaries:
        return ""
    seeds = min(len(summary.seeds) for summary in summaries)
    folds = min(len(summary.folds) for summary in summaries)
    return f"{format_count(seeds, 'seed')}, {format_count(folds, 'fold')}"


def _describe_best(evidence: Evidence, comparison: Comparison) -> str:
    best = comparison.ranked[0]
    auc = best.summary.auc
    units = format_count(auc.n, best.unit)
    where = "at sites it was not trained on" if best.protocol == "loso" else "on new scans from sites it was trained on"
    interval = f"95 % interval {format_interval(auc.interval)}, " if auc.interval else ""
    n_methods = len({arm.method for arm in comparison.ranked})  # a method may be ranked tuned and untuned
    rank = f", the highest of {n_methods} methods" if n_methods > 1 else ""
    text = f"{best.name} reaches a mean AUC of {format_percent(auc.mean)} % ({interval}{units}) {where}{rank}"
    if auc.interval is not None and auc.interval[0] <= 0.5:
        text += "; the interval includes chance"
    if best.summary.transductive:
        text += "; it used unlabelled scans of the test site"
    smoke = find_smoke_reason(evidence, comparison)
    return f"This is a smoke run ({smoke}), which supports no claim: {text}." if smoke else f"{text}."


def _describe_difference(evidence: Evidence, comparison: Comparison) -> str:
    reference = comparison.reference
    if reference is None or len(comparison.ranked) == 1:
        advice = "" if comparison.has_linear_reference else "; compare it at least with a linear method"
        others = " besides controls" if any(arm.control for arm in evidence.main) else ""
        return f"Only one method{others} was run, so there is no comparison{advice}."
    arm = _choose_compared_arm(comparison, reference)
    row = comparison.differences[arm.name]
    text = "" if comparison.has_linear_reference else "No linear method was run; "
    text += _describe_points(arm.name, reference.name, row["mean_difference"])
    if not np.isnan(row["low"]):
        interval = typeset(format_interval([row["low"], row["high"]], format_points))
        text += f" (95 % interval of the difference {interval})"
    if find_smoke_reason(evidence, comparison):
        return f"{text}; smoke runs are not tested for significance."
    units = format_count(int(row["n"]), arm.unit)
    n_tests = len(comparison.differences)
    corrected = f"corrected for {n_tests} comparisons" if n_tests > 1 else ""
    if row["warning"]:
        return f"{text}; {row['warning']}."
    basis = ", ".join(filter(None, [state_p(row["p_holm"]), f"corrected t test over {units}", corrected]))
    verdict = "a significant difference" if row["p_holm"] <= ALPHA else "not a significant difference"
    level = ""
    if row["p_level"] <= ALPHA:
        level = f"; it is below {100 * EQUIVALENCE_MARGIN:g} points (two one-sided tests, {state_p(row['p_level'])})"
    return f"{text}, {verdict} ({basis}){level}."


def _describe_points(name: str, reference: str, difference: float) -> str:
    points = format_points(abs(difference)).removeprefix("+")
    if points == "0.0":
        return f"{name} and {reference} have the same mean AUC"
    return f"{name} scored {points} points {'higher' if difference > 0 else 'lower'} than {reference} in mean AUC"


def _choose_compared_arm(comparison: Comparison, reference: EvidenceArm) -> EvidenceArm:
    """Return the best arm; where a linear method is best, BRIO, else the best arm that is not linear."""
    best = comparison.ranked[0]
    if best is not reference and best.method not in LINEAR_METHODS:
        return best
    others = [arm for arm in comparison.ranked if arm is not reference]
    networks = [arm for arm in others if arm.method not in LINEAR_METHODS]
    brio = [arm for arm in networks if arm.name == "brio"]
    return (brio or networks or others)[0]


def _describe_controls(evidence: Evidence) -> str:
    controls = evidence.controls
    above = [arm for arm in controls if arm.summary.is_above_chance]
    if above:
        names = join_names([f"{arm.name} ({format_percent(arm.summary.auc.mean)} %)" for arm in above])
        return f"{names} scored above chance without connectomes, so part of any score may not come from the brain"
    if controls:
        names = join_names([arm.name for arm in controls])
        return f"Controls without connectomes ({names}) did not score clearly above chance"
    label = "sex" if evidence.label_is_sex else evidence.label_covariate
    shortcuts = ", ".join(name for name in ("age", "sex", "motion") if name != label)
    which = "No control" if label is None else f"No control that is not given {label}, the label here,"
    return f"{which} was run, so shortcuts through {shortcuts} or scan length cannot be ruled out"


def _describe_short_training(comparison: Comparison) -> list[str]:
    """Name networks that were trained for fewer epochs than they have by default; empty where there are none."""
    short = []
    for arm in comparison.ranked:
        planned, defaults = arm.plan.methods[arm.method], read_defaults(arm.method)
        epochs, usual = planned.settings.get("epochs"), (defaults or {}).get("epochs")
        if planned.tuned is None and epochs is not None and usual is not None and epochs < usual:
            short.append(f"{arm.name} ({epochs} instead of {usual})")
    return [f"too few epochs may keep down the score of {join_names(short, most=3)}"] if short else []


def _describe_audit(evidence: Evidence) -> str:
    job = evidence.audited
    if job is None:
        return "no audit is stored here"
    plan = job.require_plan()
    if plan.audit is None:
        return "the audit's exclusions were not applied"
    n = len(plan.excluded)
    share = f"{n:,} of {format_count(job.summary.n_scans + n, 'scan')}" if n else "no scan"
    text = f"the audit excluded {share}"
    if job.audit is None:
        return f"{text}; its warnings are not stored in this folder"
    warnings = list(find_audit_warnings(job.audit, evidence.classes).values())
    return f"{text} and warns that {join_names(warnings, most=2)}" if warnings else f"{text} and has no warnings"

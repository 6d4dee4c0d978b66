"""What an answer means, laid out for the template and for the script that moves the prevalence."""

from __future__ import annotations

from typing import Any

from ...results.format import format_percent, typeset
from ..clinical import OperatingPoint, compute_predictive_values
from ..contents import ReportContents
from ..usability import describe_detectable, describe_site_calibration

PEOPLE = 1_000


def count_thousand(point: OperatingPoint, prevalence: float) -> dict[str, Any]:
    """Count the answers that a thousand people would get."""
    sensitivity, specificity = point.sensitivity.mean or 0.0, point.specificity.mean or 0.0
    ill = round(PEOPLE * prevalence)
    true_positive, true_negative = round(ill * sensitivity), round((PEOPLE - ill) * specificity)
    positive, negative = compute_predictive_values(sensitivity, specificity, prevalence)
    return {
        "true_positive": true_positive,
        "false_negative": ill - true_positive,
        "false_positive": PEOPLE - ill - true_negative,
        "true_negative": true_negative,
        "positive": positive,
        "negative": negative,
    }


def build_answers(contents: ReportContents) -> dict[str, Any] | None:
    """Build the section on answers.

    Returns None where nothing is ranked. ``points`` is read by the script, ``start`` is what it shows first.
    """
    answers, comparison = contents.answers, contents.comparison
    if answers is None:
        return None
    prevalence = answers.confusion.prevalence if answers.confusion else 0.5
    reference = comparison.reference.name if comparison.reference else ""
    return {
        "name": answers.arm.name,
        "points": [_export_point(point) for point in answers.points],
        "start": prevalence,
        "is_known": answers.confusion is not None,
        "thousand": count_thousand(answers.points[0], prevalence) if answers.points else None,
        "confusion": answers.confusion,
        "calibration": typeset(describe_site_calibration(answers, contents.evidence.classes)),
        "detectable": [] if contents.smoke_reason else describe_detectable(answers, comparison.differences, reference),
        "subgroups": contents.subgroups,
        "auc": answers.arm.summary.auc,
        "figures": _list_figures(answers.points),
    }


def _export_point(point: OperatingPoint) -> dict[str, Any]:
    """Export an operating point; without an interval both ends are its value."""
    exported: dict[str, Any] = {"name": point.name}
    for name, metric in (("sensitivity", point.sensitivity), ("specificity", point.specificity)):
        exported[name] = [metric.mean, *(metric.interval or (metric.mean, metric.mean))]
    return exported


def _list_figures(points: list[OperatingPoint]) -> list[dict[str, Any]]:
    """List what stands at the top of the page beside the AUC."""
    figures: list[dict[str, Any]] = []
    for point in points[:1]:
        figures.append({"name": "sensitivity", "metric": point.sensitivity})
        figures.append({"name": "specificity", "metric": point.specificity})
    for point in points[1:]:
        name = f"sensitivity at {format_percent(point.specificity.mean).removesuffix('.0')} % specificity"
        figures.append({"name": name, "metric": point.sensitivity})
    return figures

"""The sections of the page: their titles, what a reader learns of each while it is folded, and which are there."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...formatting import format_count
from ...results.format import format_number, format_percent
from ..cohort import find_audit_warnings
from ..contents import ReportContents


class PageSection(NamedTuple):
    """A section of the page."""

    title: str  # its heading
    link: str  # what the contents call it
    gist: str = ""  # what stands beside the heading


def list_sections(contents: ReportContents, context: dict[str, Any]) -> dict[str, PageSection]:
    """List the sections of a page in their order, by the id that links point at."""
    unit, summary, studies = context["unit"], context["summary"], context["studies"]
    sections = {
        "answers": PageSection("What an answer means", "An answer") if contents.answers else None,
        "results": PageSection("Results", "Results", _describe_results(contents)) if context["results"] else None,
        "sites": PageSection(f"{unit.capitalize()} by {unit}", f"{unit.capitalize()}s", _describe_range(contents))
        if context["forest"]
        else None,
        "roc": PageSection("ROC curves", "ROC", _describe_roc(contents)) if context["roc"] else None,
        "calibration": PageSection("Calibration", "Calibration", _describe_calibration(contents))
        if context["calibration"]
        else None,
        "cohort": PageSection("Cohort and audit", "Cohort", _describe_cohort(contents)) if summary else None,
        "factors": PageSection("Factors", "Factors", _describe_factors(context["brain"]))
        if context["has_factor_methods"]
        else None,
        "training": PageSection("Training", "Training", f"{contents.evidence.selection_score} by epoch")
        if context["training"] or context["without_curves"]
        else None,
        "studies": PageSection("Studies", "Studies", format_count(len(studies), "study", "studies"))
        if studies
        else None,
        "exclusions": PageSection("Excluded scans", "Exclusions", str(len(context["exclusions"]) or "none"))
        if summary
        else None,
        "configuration": PageSection("Settings", "Settings", format_count(len(context["settings"]), "method"))
        if context["settings"]
        else None,
        "repeat": PageSection("Reproduce", "Reproduce", "commands and versions"),
    }
    return {name: section for name, section in sections.items() if section is not None}


def _describe_results(contents: ReportContents) -> str:
    ranked = contents.comparison.ranked
    if not ranked:
        return ""
    n_methods = len({arm.method for arm in ranked})  # as in the verdict: a method may be ranked tuned and untuned
    rank = f", the highest of {n_methods}" if n_methods > 1 else ""
    return f"{ranked[0].name} {format_percent(ranked[0].summary.auc.mean)} %{rank}"


def _describe_range(contents: ReportContents) -> str:
    if not contents.comparison.ranked:
        return ""
    best = contents.comparison.ranked[0]
    if best.scores.empty:
        return ""
    return f"{best.name} from {format_percent(best.scores.min())} to {format_percent(best.scores.max())} %"


def _describe_roc(contents: ReportContents) -> str:
    points = contents.answers.points[1:] if contents.answers else []
    return f"sensitivity {format_percent(points[0].sensitivity.mean)} % at {points[0].name}" if points else ""


def _describe_calibration(contents: ReportContents) -> str:
    arm = contents.answers.arm if contents.answers else None
    if arm is None or arm.calibration_error is None:
        return ""
    return f"mean error of {arm.name} {format_percent(arm.calibration_error)} %, {arm.unit}s and seeds pooled"


def _describe_cohort(contents: ReportContents) -> str:
    sites = f"{format_count(len(contents.cohort['rows']), 'site')}; " if contents.cohort else ""
    job = contents.evidence.audited
    if job is None or job.audit is None:
        return f"{sites}no audit stored"
    warnings = len(find_audit_warnings(job.audit, contents.evidence.classes))
    return f"{sites}{format_count(warnings, 'warning') if warnings else 'no warnings'}"


def _describe_factors(brain: dict[str, Any] | None) -> str:
    if brain is None or brain["agreement"] is None:
        return ""
    return f"runs agree with an index of {format_number(brain['agreement'])}"

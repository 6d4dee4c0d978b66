"""The page: answers, sections, studies, from a template."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from ...formatting import (
    format_column,
    format_count,
    format_number,
    format_percent,
    typeset,
)
from ...results import StoredStudy
from ...results.files import is_kept, read_file
from ...version import __version__
from ..answers import OperatingPoint, compute_predictive_values, describe_detectable, describe_site_calibration
from ..cohort import list_exclusions
from ..comparisons import EvidenceArm, compare_arms
from ..evidence import Evidence
from ..repeat import describe_settings, wrap_command
from ..verdict import write_verdict
from . import fill_template
from .figures import (
    assign_styles,
    build_calibration,
    build_forest,
    build_result_table,
    build_roc,
    build_training,
    describe_brain,
    read_factors,
    summarise_qualification,
)

if TYPE_CHECKING:
    pass


PEOPLE = 1_000


def count_thousand(point: OperatingPoint, prevalence: float) -> dict[str, Any]:
    """Count the answers that a thousand people would get."""
    sensitivity, specificity = point.rates
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


def build_answers(evidence: Evidence) -> dict[str, Any] | None:
    """Build the section on answers.

    Returns None where nothing is ranked. ``points`` is read by the script, ``start`` is what it shows first.
    """
    answers, comparison = evidence.answers, evidence.comparison
    if answers is None:
        return None
    prevalence = answers.confusion.prevalence if answers.confusion else 0.5
    reference = comparison.reference.name if comparison.reference else ""
    points, figures = [], []  # what stands at the top of the page beside the AUC
    for k, point in enumerate(answers.points):
        exported: dict[str, Any] = {"name": point.name}
        for name, metric in (("sensitivity", point.sensitivity), ("specificity", point.specificity)):
            exported[name] = [metric.mean, *(metric.interval or (metric.mean, metric.mean))]
            if k == 0:
                figures.append({"name": name, "metric": metric})
        points.append(exported)
        if k > 0:
            name = f"sensitivity at {format_percent(point.specificity.mean).removesuffix('.0')} % specificity"
            figures.append({"name": name, "metric": point.sensitivity})
    return {
        "name": answers.arm.name,
        "points": points,
        "start": prevalence,
        "is_known": answers.confusion is not None,
        "thousand": count_thousand(answers.points[0], prevalence) if answers.points else None,
        "confusion": answers.confusion,
        "calibration": typeset(describe_site_calibration(answers, evidence.classes)),
        "detectable": [] if evidence.smoke_reason else describe_detectable(answers, comparison.differences, reference),
        "subgroups": evidence.subgroups,
        "auc": answers.arm.summary.auc,
        "figures": figures,
    }


class PageSection(NamedTuple):
    """A section of the page."""

    title: str  # its heading
    link: str  # what the contents call it
    gist: str = ""  # what stands beside the heading


def list_sections(evidence: Evidence, context: dict[str, Any]) -> dict[str, PageSection]:
    """List the sections of a page in their order, by the id that links point at."""
    unit, summary, brain, answers = context["unit"], context["summary"], context["brain"], evidence.answers
    best = evidence.comparison.ranked[0] if evidence.comparison.ranked else None
    ranking = site_range = sensitivity = error = agreement = ""
    if best is not None:
        # as in the verdict: a method may be ranked tuned and untuned
        n_methods = len({arm.method for arm in evidence.comparison.ranked})
        rank = f", the highest of {n_methods}" if n_methods > 1 else ""
        ranking = f"{best.name} {format_percent(best.summary.auc.mean)} %{rank}"
        if len(best.scores):
            low, high = format_percent(best.scores.min()), format_percent(best.scores.max())
            site_range = f"{best.name} from {low} to {high} %"
        if best.calibration_error is not None:
            share = format_percent(best.calibration_error)
            error = f"mean error of {best.name} {share} %, {best.unit}s and seeds pooled"
    if answers is not None and len(answers.points) > 1:
        point = answers.points[1]
        sensitivity = f"sensitivity {format_percent(point.sensitivity.mean)} % at {point.name}"
    if brain is not None and brain["agreement"] is not None:
        agreement = f"runs agree with an index of {format_number(brain['agreement'])}"
    warnings = evidence.audit_warnings
    audit = "no audit stored" if warnings is None else "no warnings"
    audit = format_count(len(warnings), "warning") if warnings else audit
    sites = f"{format_count(len(evidence.cohort['rows']), 'site')}; " if evidence.cohort else ""
    n_studies = format_count(len(context["studies"]), "study", "studies")
    n_settings = format_count(len(context["settings"]), "method")
    has_training = context["training"] or context["without_curves"]
    sections = (
        ("answers", answers, "What an answer means", "An answer", ""),
        ("results", context["results"], "Results", "Results", ranking),
        ("sites", context["forest"], f"{unit.capitalize()} by {unit}", f"{unit.capitalize()}s", site_range),
        ("roc", context["roc"], "ROC curves", "ROC", sensitivity),
        ("calibration", context["calibration"], "Calibration", "Calibration", error),
        ("cohort", summary, "Cohort and audit", "Cohort", f"{sites}{audit}"),
        ("factors", context["has_factor_methods"], "Factors", "Factors", agreement),
        ("training", has_training, "Training", "Training", f"{evidence.selection_score} by epoch"),
        ("studies", context["studies"], "Studies", "Studies", n_studies),
        ("exclusions", summary, "Excluded scans", "Exclusions", str(len(context["exclusions"]) or "none")),
        ("configuration", context["settings"], "Settings", "Settings", n_settings),
        ("repeat", True, "Reproduce", "Reproduce", "commands and versions"),
    )
    return {name: PageSection(*words) for name, is_there, *words in sections if is_there}


MAX_OPEN_ROWS = 8
"""Longer tables inside the text of a study are folded."""
MAX_TABLE_ROWS = 30
MAX_SVG_BYTES = 200_000


def describe_study(study: StoredStudy) -> dict[str, Any]:
    """Describe a study for the template."""
    record, table = study.record, None
    text = render_markdown(study.finding_alone)
    if study.table is not None and "<table" not in text:
        head = study.table.head(MAX_TABLE_ROWS)
        table = {
            "columns": [str(column) for column in head.columns],
            "rows": list(zip(*(_format_cells(head[column]) for column in head.columns), strict=True)),
        }
    return {
        "name": study.name,
        "title": record.title or study.name,
        "paper": record.paper,
        "smoke": record.smoke,
        "figure": _encode_figure(study.folder),
        "text": text,
        "table": table,
        "n_rows": None if study.table is None else len(study.table),
    }


def _format_cells(column: pd.Series) -> list[dict[str, Any]]:
    """Return the text of the cells of a column, all with the same digits, and the numbers by which they are sorted."""

    def is_number(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and value == value

    texts = map(typeset, format_column(column))
    return [{"text": t, "value": v if is_number(v) else None} for t, v in zip(texts, column.tolist(), strict=True)]


def _encode_figure(folder: Path) -> str | None:
    """Encode the figure of a study as a data URL; scripts inside an image do not run."""
    svg, png = (folder / "figure.svg", "svg+xml"), (folder / "figure.png", "png")
    prefers_png = svg[0].is_file() and svg[0].stat().st_size > MAX_SVG_BYTES
    for path, kind in (png, svg) if prefers_png else (svg, png):
        if is_kept(path):
            return f"data:image/{kind};base64,{base64.b64encode(read_file(path)).decode()}"
    return None


def render_markdown(text: str) -> str:
    """Render Markdown as HTML and fold long tables.

    HTML in the text is escaped, and images, which may need a network, are left out.
    """
    from markdown_it import MarkdownIt

    rendered = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image").render(text)
    return re.sub(r"<table>.*?</table>", lambda match: _wrap_table(match[0]), rendered, flags=re.DOTALL)


def _wrap_table(table: str) -> str:
    scrollable = f'<div class="scroll" tabindex="0" role="region" aria-label="Table">{table}</div>'
    n_rows = table.count("<tr>") - 1
    if n_rows <= MAX_OPEN_ROWS:
        return scrollable
    return f'<details class="printed"><summary>Table, {n_rows} rows</summary>{scrollable}</details>'


MAX_BYTES = 5_000_000
"""Above this size the page is written without the interactive brain."""


def render_page(evidence: Evidence) -> str:
    """Render the report as one HTML page that needs no network and no other file."""
    context = build_context(evidence)
    page = _render(context)
    brain = context["brain"]
    if len(page.encode()) > MAX_BYTES and brain and brain["page"]:
        brain["page"] = None
        brain["missing"] = f"The interactive brain is left out to keep this page under {MAX_BYTES // 1_000_000} MB."
        page = _render(context)
    return page


def _render(context: dict[str, Any]) -> str:
    styles, scripts = ("report.css", "report_media.css"), ("tables.js", "answers.js", "report.js")
    return fill_template("report.html.j2", context, styles, scripts)


def build_context(evidence: Evidence) -> dict[str, Any]:
    """Build the variables of the template."""
    main, facts, comparison = evidence.main, evidence.cohort_facts, evidence.comparison
    other_protocol = [arm for arm in evidence.arms if arm.protocol != evidence.protocol]
    styles = assign_styles([*main, *evidence.varied, *other_protocol], comparison)
    ordered = sorted(main, key=lambda arm: styles[arm.name].key)
    factors = {}  # without ablations: these have no qualification to show
    for arm in ordered:
        settings = arm.plan.methods[arm.method].settings
        if settings.get("variant", "full") == "full" and (runs := read_factors(arm)):
            factors[arm.name] = runs

    def build_panels(build: Callable[[EvidenceArm], dict[str, Any] | None]) -> list[dict[str, Any]]:
        """Build one small chart for each arm that has the data for it."""
        return [{"style": styles[arm.name], **chart} for arm in ordered if (chart := build(arm)) is not None]

    def build_further_table(arms: list[EvidenceArm]) -> dict[str, Any] | None:
        """Build the table of arms that are not main: of the other protocol, or with other settings."""
        further = compare_arms([arm for arm in arms if arm.plain])
        return {"table": build_result_table(arms, further), "comparison": further} if arms else None

    training = build_panels(build_training)
    with_curves = {panel["style"].name for panel in training}
    context = {
        "version": __version__,
        "evidence": evidence,
        "verdict": write_verdict(evidence),
        "comparison": comparison,
        "cohort": evidence.cohort,
        "summary": main[0].job.summary if main else None,
        "classes": evidence.classes,
        "is_smoke_run": bool(evidence.smoke_reason),
        "answers": build_answers(evidence),
        "unit": "site" if evidence.protocol == "loso" else "fold",
        "styles": styles,
        "main_styles": [styles[arm.name] for arm in ordered],
        "n_methods": len({arm.method for arm in ordered}),
        "results": build_result_table(main, comparison, evidence.given_label) if main else None,
        "other_protocol": build_further_table(other_protocol),
        "varied": build_further_table(evidence.varied),
        "forest": build_forest(main, styles, facts) if main else None,
        "roc": build_panels(build_roc),
        "calibration": build_panels(build_calibration),
        "training": training,
        "without_curves": [arm.name for arm in ordered if arm.summary.epochs and arm.name not in with_curves],
        "has_factor_methods": any(arm.summary.family == "BRIO" for arm in main),
        "qualification": {name: summarise_qualification(runs, evidence.protocol) for name, runs in factors.items()},
        "brain": describe_brain(*next(iter(factors.items())), facts) if factors else None,
        "studies": [describe_study(study) for study in evidence.studies],
        "exclusions": list_exclusions(main),
        "exclusions_applied": not main or main[0].plan.audit is not None,
        "settings": [describe_settings(arm) for arm in ordered],
        "commands": [wrap_command(command) for command in evidence.commands],
    }
    return context | {"sections": list_sections(evidence, context)}

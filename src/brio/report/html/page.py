"""The page: answers, sections, studies, from a template."""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from ...errors import escape_controls
from ...formatting import format_count
from ...results import StoredStudy
from ...results.files import is_kept, read_file
from ...results.format import (
    format_column,
    format_interval,
    format_number,
    format_p,
    format_percent,
    format_points,
    join_names,
    typeset,
)
from ...version import __version__
from ..cohort import find_audit_warnings, list_exclusions
from ..comparisons import compare_arms
from ..contents import ReportContents
from ..evidence import EvidenceArm
from ..repeat import describe_settings, wrap_command
from ..verdict import OperatingPoint, compute_predictive_values, describe_detectable, describe_site_calibration
from .figures import (
    ArmStyle,
    RunFactors,
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
    from jinja2 import Environment


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
            "rows": [list(row) for row in zip(*(_format_cells(head[column]) for column in head.columns), strict=True)],
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
    return [
        {"text": typeset(text), "value": value if _is_number(value) else None}
        for text, value in zip(format_column(column), column.tolist(), strict=True)
    ]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


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


def _format_difference_interval(ends: Sequence[float] | None) -> str:
    return typeset(format_interval(ends, format_points))


FILTERS: dict[str, Callable[..., str]] = {
    "percent": lambda share: typeset(format_percent(share)),
    "points": lambda difference: typeset(format_points(difference)),
    "interval": lambda ends: typeset(format_interval(ends)),
    "difference_interval": _format_difference_interval,
    "p_value": lambda p: typeset(format_p(p)),
    "number": lambda value: typeset(format_number(value)),
    "count": format_count,
    "names": join_names,
}
"""Filters of the template: the formats of :mod:`brio.results.format`, with the signs of a printed page."""


def fill_template(name: str, context: dict[str, Any], styles: Sequence[str], scripts: Sequence[str]) -> str:
    """Fill a template with its variables, style sheets and scripts."""
    folder = resources.files("brio.report.html")
    css, script = (
        "\n".join(folder.joinpath(file).read_text(encoding="utf-8") for file in files) for files in (styles, scripts)
    )
    return _make_environment().get_template(name).render(**context, css=css, script=script) + "\n"


@functools.cache
def _make_environment() -> Environment:
    """Make the environment of all templates; it keeps them compiled, which takes longer than to fill them."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("brio.report.html", "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: escape_controls(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= FILTERS
    return environment


MAX_BYTES = 5_000_000
"""Above this size the page is written without the interactive brain."""


def render_page(contents: ReportContents) -> str:
    """Render the report as one HTML page that needs no network and no other file."""
    context = _build_context(contents)
    page = _render(context)
    brain = context["brain"]
    if len(page.encode()) > MAX_BYTES and brain and brain["page"]:
        brain["page"] = None
        brain["missing"] = f"The interactive brain is left out to keep this page under {MAX_BYTES // 1_000_000} MB."
        page = _render(context)
    return page


def _build_context(contents: ReportContents) -> dict[str, Any]:
    """Build the variables of the template."""
    evidence, comparison = contents.evidence, contents.comparison
    main, facts = evidence.main, evidence.cohort_facts
    other_protocol = [arm for arm in evidence.arms if arm.protocol != evidence.protocol]
    styles = assign_styles([*main, *evidence.varied, *other_protocol], comparison)
    ordered = sorted(main, key=lambda arm: styles[arm.name].key)
    factors = _collect_factors(ordered)
    training = _build_panels(ordered, styles, build_training)
    with_curves = {panel["style"].name for panel in training}
    context = {
        "version": __version__,
        "contents": contents,
        "evidence": evidence,
        "comparison": comparison,
        "cohort": contents.cohort,
        "summary": main[0].job.summary if main else None,
        "classes": evidence.classes,
        "is_smoke_run": bool(contents.smoke_reason),
        "answers": build_answers(contents),
        "unit": "site" if evidence.protocol == "loso" else "fold",
        "styles": styles,
        "main_styles": [styles[arm.name] for arm in ordered],
        "n_methods": len({arm.method for arm in ordered}),
        "results": build_result_table(main, comparison, evidence.given_label) if main else None,
        "other_protocol": _build_further_table(other_protocol),
        "varied": _build_further_table(evidence.varied),
        "forest": build_forest(main, styles, facts) if main else None,
        "roc": _build_panels(ordered, styles, build_roc),
        "calibration": _build_panels(ordered, styles, build_calibration),
        "training": training,
        "without_curves": [arm.name for arm in ordered if arm.summary.epochs and arm.name not in with_curves],
        "has_factor_methods": any(arm.summary.family == "BRIO" for arm in main),
        "qualification": {name: summarise_qualification(runs, evidence.protocol) for name, runs in factors.items()},
        "brain": describe_brain(*next(iter(factors.items())), facts) if factors else None,
        "studies": [describe_study(study) for study in evidence.studies],
        "exclusions": list_exclusions(evidence),
        "exclusions_applied": not main or main[0].plan.audit is not None,
        "settings": [describe_settings(arm) for arm in ordered],
        "commands": [wrap_command(command) for command in contents.commands],
    }
    return context | {"sections": list_sections(contents, context)}


def _build_panels(
    arms: Sequence[EvidenceArm],
    styles: dict[str, ArmStyle],
    build: Callable[[EvidenceArm], dict[str, Any] | None],
) -> list[dict[str, Any]]:
    """Build one small chart for each arm that has the data for it."""
    charts = [(styles[arm.name], build(arm)) for arm in arms]
    return [{"style": style, **chart} for style, chart in charts if chart is not None]


def _build_further_table(arms: list[EvidenceArm]) -> dict[str, Any] | None:
    """Build the table of arms that are not main: of the other protocol, or with other settings."""
    if not arms:
        return None
    comparison = compare_arms([arm for arm in arms if arm.plain])
    return {"table": build_result_table(arms, comparison), "comparison": comparison}


def _collect_factors(arms: list[EvidenceArm]) -> dict[str, list[RunFactors]]:
    """Read the factors of the arms that have them, without ablations: these have no qualification to show."""
    factors = {}
    for arm in arms:
        settings = arm.plan.methods[arm.method].settings
        if settings.get("variant", "full") == "full" and (runs := read_factors(arm)):
            factors[arm.name] = runs
    return factors


def _render(context: dict[str, Any]) -> str:
    return fill_template(
        "report.html.j2",
        context,
        styles=("report.css", "report_media.css"),
        scripts=("tables.js", "answers.js", "report.js"),
    )

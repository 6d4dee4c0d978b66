"""The page: answers, sections, studies, from a template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from ...formatting import format_column, typeset
from ...results import StoredStudy
from ...results.files import is_kept, read_file
from ...schemas import to_json
from ..evidence import Evidence
from ..repeat import describe_settings, wrap_command
from ..verdict import describe_validation, write_verdict
from . import fill_template
from .figures import (
    LEAST_AGREEMENT,
    Frame,
    assign_keys,
    build_forest,
    build_result_table,
    build_training,
    build_validation_chart,
    describe_brain,
    read_factors,
    summarise_qualification,
)
from .markdown import encode_image, render_markdown
from .paper import list_references, write_paragraph

MAX_TABLE_ROWS = 30
MAX_SVG_BYTES = 200_000
MAX_BYTES = 5_000_000
"""Above this size the page is written without the interactive brain."""


def describe_study(study: StoredStudy) -> dict[str, Any]:
    """Describe a study for the template."""
    text, table = render_markdown(study.finding_alone), None
    if study.table is not None and "<table" not in text:
        head = study.table.head(MAX_TABLE_ROWS)
        table = {
            "columns": [str(column) for column in head.columns],
            "rows": list(zip(*(_format_cells(head[column]) for column in head.columns), strict=True)),
        }
    return {"stored": study, "figure": _find_figure(study.folder), "text": text, "table": table}


def _format_cells(column: pd.Series) -> list[dict[str, Any]]:
    """Return the text of the cells of a column, all with the same digits, and the numbers by which they are sorted."""

    def is_number(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and value == value

    texts = map(typeset, format_column(column))
    return [{"text": t, "value": v if is_number(v) else None} for t, v in zip(texts, column.tolist(), strict=True)]


def _find_figure(folder: Path) -> str | None:
    """Return the figure of a study as a data URL, if it has one."""
    svg, png = folder / "figure.svg", folder / "figure.png"
    prefers_png = svg.is_file() and svg.stat().st_size > MAX_SVG_BYTES
    stored = filter(is_kept, (png, svg) if prefers_png else (svg, png))
    return next((encode_image(path.name, read_file(path)) for path in stored), None)


def render_page(evidence: Evidence) -> str:
    """Render the report as one HTML page that needs no network and no other file."""
    context = build_context(evidence)
    page, brain = _render(context), context["brain"]
    if len(page.encode()) > MAX_BYTES and brain and brain["page"]:
        brain |= {"page": None, "is_too_large": True}
        page = _render(context)
    return page


def _render(context: dict[str, Any]) -> str:
    styles, scripts = ("report.css", "report_media.css"), ("tables.js", "answers.js", "report.js")
    return fill_template("report.html.j2", context, styles, scripts)


def build_context(evidence: Evidence) -> dict[str, Any]:
    """Build the variables of the template besides the evidence itself."""
    facts = evidence.cohort_facts
    keys = assign_keys([*evidence.main, *evidence.varied, *evidence.other_protocol], evidence.comparison)
    arms = sorted(evidence.main, key=lambda arm: keys[arm.name])
    # without ablations: these have no qualification to show
    complete = [arm for arm in arms if arm.planned.settings.get("variant", "full") == "full"]
    factors = {arm.name: runs for arm in complete if (runs := read_factors(arm))}
    titles = [arm.title for arm in complete if arm.name in factors]
    return {
        "evidence": evidence,
        "verdict": write_verdict(evidence),
        "arms": arms,
        "keys": keys,
        "points": to_json(evidence.answers.points if evidence.answers else []),
        "results": build_result_table(arms, evidence.comparison),
        "varied": build_result_table(evidence.varied),
        "other_protocol": build_result_table(evidence.other_protocol),
        "forest": build_forest(arms, facts) if arms else None,
        "external": build_validation_chart(evidence.validations, keys),
        "new_scans": [describe_validation(one) for one in evidence.validations],
        "frame": Frame(0, 1, 0, 1),
        "training": {arm.name: chart for arm in arms if (chart := build_training(arm)) is not None},
        "qualification": {name: summarise_qualification(runs, evidence.protocol) for name, runs in factors.items()},
        "brain": describe_brain(titles[0], next(iter(factors.values())), facts) if factors else None,
        "studies": [describe_study(study) for study in evidence.studies],
        "settings": [describe_settings(arm) for arm in arms],
        "paragraph": (paragraph := write_paragraph(evidence)),
        "references": list_references(paragraph),
        "commands": [wrap_command(command) for command in evidence.commands],
        "max_bytes": MAX_BYTES,
        "least_agreement": LEAST_AGREEMENT,
    }

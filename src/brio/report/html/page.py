"""The page: answers, sections, studies, from a template."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Mapping, Sequence
from itertools import cycle
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
from .paper import list_references, write_paragraph

MAX_OPEN_ROWS = 8
"""Longer tables inside the text of a study are folded."""
MAX_TABLE_ROWS = 30
MAX_SVG_BYTES = 200_000


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


def encode_image(name: str, content: bytes) -> str:
    """Encode the content of an image file as a data URL; scripts inside an image do not run."""
    kind = "svg+xml" if name.endswith(".svg") else "png"
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def render_markdown(text: str, open_rows: int | None = MAX_OPEN_ROWS, images: Mapping[str, str] | None = None) -> str:
    """Render Markdown as HTML with typographic signs, and fold tables of more than ``open_rows`` rows (None: no table).

    HTML in the text is escaped. An image must be one of ``images``, which have data URLs; without ``images``, an image
    of the text becomes a link, because it may need a network.
    """
    from markdown_it import MarkdownIt

    def show_text(_: Any, tokens: Sequence[Any], k: int, *__: Any) -> str:
        return html.escape(typeset(tokens[k].content))

    def show_image(_: Any, tokens: Sequence[Any], k: int, *__: Any) -> str:
        assert images is not None
        return f'<img src="{images[tokens[k].attrs["src"]]}" alt="{html.escape(tokens[k].content)}">'

    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    markdown.add_render_rule("text", show_text)
    markdown.add_render_rule("image", show_image)
    rendered = (markdown if images is not None else markdown.disable("image")).render(text)
    return re.sub(r"<table>.*?</table>", lambda match: _wrap_table(match[0], open_rows), rendered, flags=re.DOTALL)


def _wrap_table(table: str, open_rows: int | None) -> str:
    """Fold a long table; on narrow screens, where rows are cards, every cell has the heading of its column."""
    headings = cycle(re.sub(r"<[^>]+>", "", heading) for heading in re.findall(r"<th[^>]*>(.*?)</th>", table))
    table = re.sub(r"<td", lambda _: f'<td data-label="{next(headings)}"', table)
    scrollable = f'<div class="scroll cards" tabindex="0" role="region" aria-label="Table">{table}</div>'
    n_rows = table.count("<tr>") - 1
    if open_rows is None or n_rows <= open_rows:
        return scrollable
    return f'<details class="printed"><summary>Table, {n_rows} rows</summary>{scrollable}</details>'


MAX_BYTES = 5_000_000
"""Above this size the page is written without the interactive brain."""


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

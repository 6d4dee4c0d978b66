"""Studies on the page: their text, table and figure."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pandas as pd

from ...results import StoredStudy
from ...results.files import is_kept, read_file
from ...results.format import format_column, typeset

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

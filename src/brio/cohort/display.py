"""Render a short summary as a self-contained HTML table, for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
import pandas as pd

MOST_ROWS = 40
"""Rows of a table that are shown; the rest is counted."""


def format_range(low: float, high: float, unit: str) -> str:
    """Format a range of numbers with its unit."""
    return f"{low:g} {unit}" if low == high else f"{low:g} to {high:g} {unit}"


def format_lengths(n_frames: np.ndarray, connectomes: bool = False) -> str:
    """Format the range of the lengths of scans.

    Shapes: n_frames [N].
    """
    if connectomes:
        return "connectomes without frames"
    return format_range(int(n_frames.min()), int(n_frames.max()), "frames") if len(n_frames) else "no frames"


def format_repetition_times(participants: pd.DataFrame) -> str:
    """Format the range of the repetition times in a participants table; ``unknown`` where it states none."""
    if "tr" not in participants:
        return "unknown"
    tr = pd.to_numeric(participants["tr"], errors="coerce").dropna()
    return format_range(float(tr.min()), float(tr.max()), "s") if len(tr) else "unknown"


def name_class_columns(classes: tuple[str, str]) -> tuple[str, str]:
    """Name both classes with their labels."""
    zero, one = classes
    return ("controls (0)", "patients (1)") if (zero, one) == ("0", "1") else (f"{zero} (0)", f"{one} (1)")


def render_summary(
    title: str,
    facts: Sequence[tuple[str, str]],
    columns: Sequence[str] = (),
    rows: Sequence[Sequence[object]] = (),
) -> str:
    """Render a title, a list of facts and a table as HTML."""
    lines = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in facts
    )
    html = f"<div><strong>{escape(title)}</strong><table><tbody>{lines}</tbody></table>"
    if columns:
        head = "".join(
            f'<th style="text-align:{"right" if k else "left"}">{escape(name)}</th>' for k, name in enumerate(columns)
        )
        body = "".join(f"<tr>{_render_cells(row)}</tr>" for row in rows[:MOST_ROWS])
        if len(rows) > MOST_ROWS:
            body += f'<tr><td colspan="{len(columns)}">and {len(rows) - MOST_ROWS} more</td></tr>'
        html += f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return html + "</div>"


def _render_cells(row: Sequence[object]) -> str:
    return "".join(
        f'<td style="text-align:{"right" if k else "left"}">{escape(str(cell))}</td>' for k, cell in enumerate(row)
    )

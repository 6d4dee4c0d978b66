"""How numbers, intervals, p values, counts, times and Markdown tables are written, everywhere in the package.

Text is plain ASCII for terminals, csv and Markdown; :func:`typeset` adds the typographic minus and dash.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pandas as pd

from .errors import escape_controls

MISSING = "-"
SMALLEST_P = 0.001


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NA or NaN."""
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def format_p(p: float | None) -> str:
    """Format a p value: three decimals below 0.1, two above, and no digits below 0.001."""
    if p is None or is_missing(p):
        return MISSING
    return f"< {SMALLEST_P}" if p < SMALLEST_P else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def state_p(p: float | None) -> str:
    """Format a p value for a sentence."""
    if p is None or is_missing(p):
        return "no test"
    return f"p {format_p(p)}" if p < SMALLEST_P else f"p = {format_p(p)}"


def format_count(n: int, one: str, many: str = "") -> str:
    """Write a count with its noun, with separated thousands."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def format_time(seconds: float) -> str:
    """Write a duration in readable units."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def format_number(value: float | None, digits: int = 2) -> str:
    """Write a number with some decimals."""
    return MISSING if is_missing(value) else f"{value:z.{digits}f}"


def format_percent(share: float | None, digits: int = 1) -> str:
    """Write a share in percent."""
    return MISSING if share is None or is_missing(share) else format_number(100 * share, digits)


def format_whole(share: float | None) -> str:
    """Write a share in whole percent."""
    return format_percent(share, 0)


def format_signed(difference: float | None, digits: int = 1) -> str:
    """Write a difference with its sign; a value that rounds to zero has none."""
    if is_missing(difference):
        return MISSING
    text = f"{difference:+z.{digits}f}"
    return text if float(text) else text[1:]


def format_points(difference: float | None, digits: int = 1) -> str:
    """Write a difference of shares in percentage points, with its sign."""
    return MISSING if difference is None or is_missing(difference) else format_signed(100 * difference, digits)


UNKNOWN_INTERVAL = "unknown: too wide"


def format_detectable(difference: float | None) -> str:
    """Write a smallest detectable difference of shares in percentage points."""
    return "above 100" if difference is not None and difference > 1 else format_points(difference).removeprefix("+")


def format_interval(
    ends: Sequence[float] | None, write: Callable[[float], str] = format_percent, whole: float = 1.0
) -> str:
    """Write both ends of an interval; one as wide as ``whole`` (1 for shares, 100 for percent) is uninformative."""
    if ends is None or any(is_missing(end) for end in ends):
        return MISSING
    low, high = ends
    return UNKNOWN_INTERVAL if high - low >= whole else f"{write(low)} to {write(high)}"


def bracket_interval(
    ends: Sequence[float] | None, write: Callable[[float], str] = format_percent, whole: float = 1.0
) -> str:
    """Write both ends of an interval in brackets, to follow a number; empty if an end is missing."""
    interval = format_interval(ends, write, whole)
    return "" if interval == MISSING else f" ({interval})"


def format_range(low: float, high: float, digits: int = 0) -> str:
    """Write a range, or a single value if both ends are equal."""
    a, b = f"{low:.{digits}f}", f"{high:.{digits}f}"
    return a if a == b else f"{a}–{b}"


def join_names(names: Iterable[str], most: int = 6) -> str:
    """Join names for a sentence; in a long list, the remaining names are counted."""
    every = list(names)
    if len(every) > most:
        return f"{', '.join(every[:most])} and {len(every) - most} more"
    return " and ".join([", ".join(every[:-1]), every[-1]] if len(every) > 1 else every)


def disarm_html(text: str) -> str:
    """Escape control characters, and HTML tags and entities in Markdown; ``p < 0.05`` and Markdown are kept."""
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", re.sub(r"&(?=#?\w+;)", "&amp;", escape_controls(text)))


def escape_markdown(name: object) -> str:
    r"""Escape a name that comes from data, so that Markdown and HTML in it have no effect."""
    return escape_marks(disarm_html(" ".join(str(name).split())))


def escape_marks(text: str) -> str:
    """Escape the markup of Markdown in a text, but not HTML, which :func:`format_table` escapes."""
    return re.sub(r"([\\|*`\[\]])", r"\\\1", text)


def format_code(name: object) -> str:
    """Write a name that comes from data as code in Markdown."""
    return "`" + disarm_html(" ".join(str(name).split()).replace("`", "'")) + "`"


def format_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""Write a table in Markdown; bars and HTML inside cells are escaped."""
    lines = [[_escape_cell(cell) for cell in row] for row in (header, ["---"] * len(header), *rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _escape_cell(cell: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", disarm_html(re.sub(r"\s*[\r\n]+\s*", " ", cell)))


def format_frame(table: pd.DataFrame) -> str:
    """Write a data frame in Markdown, with suitable numbers of digits and a dash for missing values.

    Columns of percentages (any value of 5 or more) have one decimal, other columns three significant digits; columns
    ``p`` and ``p Holm`` are written by :func:`format_p`.
    """
    columns = [format_column(table[name]) for name in table.columns]
    return format_table([str(name) for name in table.columns], list(zip(*columns, strict=True)))


def format_column(column: pd.Series) -> list[str]:
    """Write the cells of a column with the digits of :func:`format_frame`."""
    numbers = pd.to_numeric(column, errors="coerce").dropna().abs()
    pattern = "{:z.1f}" if (numbers >= 5).any() else "{:z.3g}"  # z: what rounds to zero is not negative

    def write(value: Any) -> str:
        if is_missing(value):
            return MISSING
        if not isinstance(value, float):
            return str(value)
        return format_p(value) if column.name in ("p", "p Holm") else pattern.format(value)

    return [write(value) for value in column]


def typeset(text: str) -> str:
    """Replace the hyphen of a formatted number by a minus sign, and a missing value by a dash."""
    return "–" if text == MISSING else tie_units(re.sub(r"(?<![\w.)])-(?=\d)", "−", text))


def tie_units(text: str) -> str:
    """Keep a p value on one line with non-breaking spaces."""
    return re.sub(r"\bp ([=<]) (?=[\d.])", "p\u00a0\\1\u00a0", text)

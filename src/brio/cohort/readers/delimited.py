"""Split lines of delimited text into cells, and tell decimal commas from others. A quoted cell ends in its own line."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from pathlib import Path

from ...errors import BrioError

_WITH_COMMA = re.compile(r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?")
_SEPARATOR = re.compile(r'"?sep=.?"?\s*', re.IGNORECASE)
"""First line by which a file tells Excel its separator."""
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})*")


def split_text(text: str) -> list[str]:
    """Split text into lines. A first line that tells Excel the separator (``sep=;``) is emptied."""
    lines = text.split("\n")
    return ["", *lines[1:]] if _SEPARATOR.fullmatch(lines[0]) else lines


def split_line(path: Path, number: int, line: str, delimiter: str | None) -> list[str]:
    """Split a line into cells without the blanks around them.

    A quote that is not closed in its line is an error: read on, it would swallow the rows that follow.
    """
    if delimiter is None:
        return line.split()
    if '"' not in line and len(line) < csv.field_size_limit():
        return [cell.strip() for cell in line.split(delimiter)]
    try:
        cells = next(csv.reader([line], delimiter=delimiter, strict=True))
    except csv.Error as error:
        if "limit" in str(error):
            problem = f"a cell of more than {csv.field_size_limit():,} characters"
        else:
            problem = "a quote that is not closed in this line, or text beside a quoted cell"
        raise BrioError(f"{path}: line {number} has {problem}; correct it") from error
    return [cell.strip() for cell in cells]


def has_decimal_commas(cells: Iterable[str], delimiter: str | None) -> bool:
    """Return whether cells are numbers with decimal commas, as spreadsheets write them in many languages.

    Cells that may as well have thousands separators (``1,250``) count only between semicolons, which are there because
    the comma is in use.
    """
    cells = list(cells)
    if not any("," in cell for cell in cells) or not all(map(_WITH_COMMA.fullmatch, cells)):
        return False
    return delimiter == ";" or not all(map(_THOUSANDS.fullmatch, cells))

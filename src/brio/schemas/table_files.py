"""Parse a table of a csv or tsv file: rows of one length, columns that are there once, values of declared types.

The columns of a table are declared by a frozen dataclass whose fields are the columns of one row, with the domains of
:mod:`brio.schemas.stored_values`. Columns that it does not have are read as they are.
"""

from __future__ import annotations

import csv
import io
import typing
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..errors import REPEAT_JOB, file_error, find_control
from .file_content import decode
from .records import get_hints, show_value, unfold
from .stored_values import StoredDomain

MAX_TABLE_BYTES = 64 << 20
"""Of a table without participants."""
MAX_PARTICIPANT_TABLE_BYTES = 4 << 30
"""Of a table with a row for each participant, or for each participant and run."""
MAX_LINE = 1 << 20

_PANDAS = tuple(int(part) for part in pd.__version__.split(".")[:2])
_EXACT_NUMBERS: dict[str, Any] = {"float_precision": "round_trip"} if _PANDAS < (3, 1) else {}
"""Numbers come back exactly as they were written; pandas 3.1 does so by itself and deprecates the option."""


def parse_table(
    content: bytes,
    path: Path,
    row: type | None = None,
    required: Sequence[str] = (),
    *,
    text_columns: Sequence[str] = (),
    remedy: str = REPEAT_JOB,
) -> pd.DataFrame:
    """Parse a csv file: text stays text, numbers are exact, empty cells missing.

    Returns at least one row where ``row`` is given.
    """
    text = check_rows(content, path, ",", remedy)
    texts = [] if row is None else list_text_columns(row)
    try:
        table = pd.read_csv(
            io.StringIO(text),
            dtype=dict.fromkeys((*texts, *text_columns), str),
            na_values=[""],
            keep_default_na=False,
            index_col=False,
            low_memory=False,
            **_EXACT_NUMBERS,
        )
    except (ValueError, OverflowError) as error:
        raise file_error(path, f"cannot be read ({error})", remedy) from error
    return check_columns(table, path, row, required, remedy)


def list_text_columns(row: type) -> list[str]:
    """List the columns that a dataclass declares as text."""
    return [name for name, hint in get_hints(row).items() if unfold(hint)[0] is str]


def check_columns(
    table: pd.DataFrame, path: Path, row: type | None, required: Sequence[str] = (), remedy: str = REPEAT_JOB
) -> pd.DataFrame:
    """Check the columns of a table that was read."""
    for column in required:
        if column not in table:
            raise file_error(path, f"has no column '{column}'", remedy)
    if row is None:
        return table
    if table.empty:
        raise file_error(path, "has no rows", remedy)
    for name, hint in get_hints(row).items():
        if name in table:
            table[name] = _check_column(table[name], *unfold(hint), path, remedy)
    return table


def check_rows(content: bytes, path: Path, separator: str, remedy: str = REPEAT_JOB) -> str:
    """Decode the content of a table, and check that all rows have as many cells as the header."""
    text = decode(content, path, remedy).removeprefix("\ufeff")
    if not text.strip():
        raise file_error(path, "is empty", remedy)
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if control := find_control(line, "\t\r"):
            raise file_error(path, f"line {number} holds the control character {control}", remedy)
        if len(line) > MAX_LINE:
            raise file_error(path, f"line {number} has {len(line):,} characters", remedy)
    if '"' in text or "\r" in text:
        rows = _split_quoted(text, separator, path, remedy)
    else:
        rows = [(number, line.count(separator) + 1) for number, line in enumerate(lines, start=1) if line.strip()]
    n_columns = rows[0][1]
    for number, n_cells in rows:
        if n_cells != n_columns:
            cells = "cell" if n_cells == 1 else "cells"
            raise file_error(path, f"line {number} has {n_cells} {cells}, the header has {n_columns}", remedy)
    header = next(csv.reader(io.StringIO(text.lstrip("\r\n"), newline=""), delimiter=separator))
    name, count = Counter(header).most_common(1)[0]
    if count > 1:
        raise file_error(path, f"has the column {show_value(name)} twice", remedy)
    return text


def _split_quoted(text: str, separator: str, path: Path, remedy: str) -> list[tuple[int, int]]:
    """Return the line and the number of cells of each row of a table with quotes, which may hold line breaks."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        return [(reader.line_num, len(cells)) for cells in reader if cells]
    except csv.Error as error:
        raise file_error(path, f"line {reader.line_num} cannot be read ({error})", remedy) from None


def _check_column(
    column: pd.Series, kind: Any, domains: tuple[Any, ...], optional: bool, path: Path, remedy: str
) -> pd.Series:
    """Check a column against its declaration; whole numbers that every row has become int64."""
    filled = column.notna().to_numpy()
    optional |= kind is str and not domains  # empty text is written as an empty cell
    words = next((d.words for d in domains if isinstance(d, StoredDomain)), _WORDS.get(kind, ""))
    fits = filled.copy() if not optional else np.ones(len(column), dtype=bool)
    if kind in (int, float):
        boolean = pd.api.types.is_bool_dtype(column)
        numbers = pd.to_numeric(column, errors="coerce").astype(float)
        known = np.isfinite(numbers.to_numpy()) & (not boolean)
        if kind is int:
            known &= (numbers % 1 == 0).to_numpy() & (numbers.abs() < 2.0**63).to_numpy()
        fits &= known | ~filled
    for domain in domains:
        if isinstance(domain, StoredDomain):
            checked = filled & fits
            values = (numbers if kind in (int, float) else column)[checked]
            fits[checked] &= np.fromiter(map(domain.fits, values), dtype=bool, count=len(values))
    if not fits.all():
        k = int(np.flatnonzero(~fits)[0])
        shown = show_value(str(column.iloc[k])) if filled[k] else "empty"
        problem = f"column '{column.name}' is {shown} in row {k + 1}, {words} is expected"
        raise file_error(path, problem, remedy)
    if kind is int and not optional:
        return column.astype(np.int64)
    if kind in (int, float) and not pd.api.types.is_numeric_dtype(column):  # a number of many digits is read as text
        return numbers
    return column


_WORDS: dict[Any, str] = {str: "text", int: "a whole number", float: "a number", typing.Any: "a value"}

"""Read time series from delimited text: tsv, csv, txt and the 1D format of AFNI."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np

from ...errors import BrioError
from .delimited import has_decimal_commas, split_line, split_text
from .input_files import read_text_file
from .other_columns import find_row_counters, is_nameless

MISSING = frozenset({"", "na", "n/a"})
"""Spellings of a missing value, besides those that ``float`` accepts (nan, NaN)."""

ROW_NAMES = "if the first are row names of R, write the file again with write.table(..., row.names=FALSE)"
"""What to do about a header that is one cell shorter than the rows."""

_WHOLE = re.compile(r"[+-]?\d+(\.0*)?")

Line = tuple[int, str]
"""Number of a line in its file, from 1, and its text."""


def read_text(path: Path) -> tuple[np.ndarray, tuple[str, ...] | None, tuple[tuple[int, str], ...]]:
    """Read a text file whose rows are frames and whose columns are ROIs.

    A header is a first row without any number, a first row of consecutive numbers (0, 1, 2, ... or 1, 2, 3, ..., which
    are not taken as names), perhaps after an empty cell or a word, a first row of codes (2001, 2002, 2101, ...:
    different whole numbers above a row that has none), or a leading ``#`` line with one name per column
    (``#2001  #2002``). Other lines that start with ``#`` are comments. Missing values are nan, inf, na, n/a or empty
    cells. Decimal commas are read where they cannot be anything else, see
    :func:`~brio.cohort.readers.delimited.has_decimal_commas`. A column that the header does not name is left out if it
    counts the rows, as the index of pandas does.

    Shapes: returns frames [T, P].
    """
    comments, body = _read_lines(path)
    if not body:
        raise BrioError(f"{path}: holds no frames; each row must be one frame, each column one ROI")
    delimiter = _find_delimiter(path, body[min(1, len(body) - 1)][1])
    first = split_line(path, *body[0], delimiter)
    columns, header = None, None
    second = split_line(path, *body[1], delimiter) if len(body) > 1 else []
    named = _is_header(first) or _is_row_of_codes(first, second)
    if named and not has_decimal_commas(_drop_missing(first), delimiter):
        header, body = first, body[1:]
        if not body:
            raise BrioError(f"{path}: has a header but holds no frames")
        cells = split_line(path, *body[0], delimiter)
        if len(cells) == len(header) + 1:
            raise BrioError(f"{path}: line {body[0][0]} has {len(cells)} cells, the header {len(header)}; {ROW_NAMES}")
        _check_width(path, len(header), cells, body[0][0])
        if not header[0] and _parse_number(cells[0]) is None:  # names of the rows
            raise _name_missing_header(path, 0)
    elif comments:
        columns = _read_comment_header(path, comments, delimiter, len(first))
    frames = _parse_frames(path, _replace_decimal_commas(path, body, delimiter), delimiter)
    return (frames, columns, ()) if header is None else _apply_header(path, header, frames)


def _apply_header(
    path: Path, header: list[str], frames: np.ndarray
) -> tuple[np.ndarray, tuple[str, ...] | None, tuple[tuple[int, str], ...]]:
    """Name the columns by the header, and leave out those that it does not name if they count the rows."""
    after_index = _is_after_index(header)
    nameless = {0} if after_index else {i for i, name in enumerate(header) if is_nameless(name)}
    counters = sorted(nameless.intersection(find_row_counters(frames).tolist())) if nameless else []
    if after_index and not counters:
        raise _name_missing_header(path, 0)
    left_out = tuple((i + 1, header[i]) for i in counters)
    if counters:
        kept = np.delete(np.arange(len(header)), counters)
        header, frames = [header[i] for i in kept], frames[:, kept]
    return frames, None if _is_consecutive(header) else _clean_names(path, header), left_out


def _read_lines(path: Path) -> tuple[list[Line], list[Line]]:
    """Read the comment lines before the first row, and the rows."""
    comments: list[Line] = []
    body: list[Line] = []
    for number, line in enumerate(split_text(read_text_file(path)), start=1):
        if line.startswith("#"):
            if not body:
                comments.append((number, line))
        elif line.replace("\t", ".").strip():  # a row of tabs alone is a row of missing values
            body.append((number, line))
    return comments, body


def _find_delimiter(path: Path, row: str) -> str | None:
    """Find the character between the cells of the second row, which holds numbers; None means any run of blanks."""
    candidates = "\t;," if path.suffix.lower() in (".tsv", ".csv") else ";,"
    delimiter = next((c for c in candidates if c in row), None)
    blanks = delimiter == "," and len(row.split()) > 1 and has_decimal_commas(row.split(), None)
    return None if blanks else delimiter


def _drop_missing(cells: list[str]) -> list[str]:
    return [cell for cell in cells if cell.lower() not in (*MISSING, "nan")]


def _replace_decimal_commas(path: Path, body: list[Line], delimiter: str | None) -> list[Line]:
    """Write decimal points for decimal commas, in rows without a header."""
    if delimiter == "," or not any("," in text for _, text in body):
        return body
    cells = (cell for line in body for cell in _drop_missing(split_line(path, *line, delimiter)))
    return [(n, text.replace(",", ".")) for n, text in body] if has_decimal_commas(cells, delimiter) else body


def _parse_number(cell: str) -> float | None:
    if cell.lower() in MISSING:
        return math.nan
    try:
        return None if "_" in cell else float(cell)  # Python reads 1_0 as ten, other programs do not
    except ValueError:
        return None


def _is_consecutive(cells: list[str]) -> bool:
    """Return whether cells are 0, 1, 2, ... or 1, 2, 3, ...; pandas may write them as 0.0, 1.0, 2.0, ..."""
    whole = [cell.removesuffix(".0") for cell in cells]
    return len(cells) > 2 and any(whole == [str(i + base) for i in range(len(cells))] for base in (0, 1))


def _is_row_of_codes(first: list[str], second: list[str]) -> bool:
    """Return whether a row names columns by codes: different whole numbers above a row that has none."""
    codes = {cell.removesuffix(".0") for cell in first}
    are_whole = all(code.isdecimal() for code in codes) and not any(_WHOLE.fullmatch(cell) for cell in second)
    return len(first) > 2 and len(codes) == len(first) and are_whole and len(_drop_missing(second)) > 0


def _is_after_index(cells: list[str]) -> bool:
    """Return whether a header numbers the columns after the first, which has another name or none."""
    return _is_consecutive(cells[1:]) and (not cells[0] or _parse_number(cells[0]) is None)


def _is_header(cells: list[str]) -> bool:
    if _is_consecutive(cells) or _is_after_index(cells):
        return True
    values = [_parse_number(c) for c in cells]
    return None in values and not any(v is not None and math.isfinite(v) for v in values)


def _clean_names(path: Path, header: list[str]) -> tuple[str, ...]:
    names = tuple(c.lstrip("#").strip() for c in header)
    if "" in names:
        raise _name_missing_header(path, names.index(""))
    return names


def _name_missing_header(path: Path, column: int) -> BrioError:
    return BrioError(
        f"{path}: column {column + 1} has no name in the header; remove the column if it holds numbers or names of the "
        "rows (pandas: to_csv(index=False), R: row.names=FALSE)"
    )


def _read_comment_header(path: Path, comments: list[Line], delimiter: str | None, width: int) -> tuple[str, ...] | None:
    for number, line in reversed(comments):
        cells = split_line(path, number, line.lstrip("#").strip(), delimiter)
        if len(cells) == width:
            return _clean_names(path, cells)
        if len(cells) > 1 and all(c.startswith("#") for c in cells[1:]):
            raise BrioError(f"{path}: the header in line {number} names {len(cells)} columns, the rows have {width}")
    return None


def _check_width(path: Path, width: int, cells: list[str], number: int) -> None:
    if len(cells) != width:
        raise BrioError(
            f"{path}: line {number} has {len(cells)} cells where {width} were expected; the file may be cut short"
        )


def _parse_frames(path: Path, body: list[Line], delimiter: str | None) -> np.ndarray:
    try:
        frames = np.loadtxt([line for _, line in body], delimiter=delimiter, comments=None, ndmin=2)
    except ValueError:
        frames = None
    if frames is None or np.isinf(frames).any():
        # words for missing values, or an error whose line and column are worth naming: parse cell by cell
        width = len(split_line(path, *body[0], delimiter))
        frames = np.array([_parse_row(path, line, delimiter, width) for line in body])
    return frames


def _parse_row(path: Path, line: Line, delimiter: str | None, width: int) -> list[float]:
    number, text = line
    cells = split_line(path, number, text, delimiter)
    _check_width(path, width, cells, number)
    values = [_parse_number(c) for c in cells]
    if None in values:
        column = values.index(None)
        remedy = ""
        if "," in cells[column]:
            remedy = "; write a decimal point, and nothing between thousands"
        elif column == 0:  # of scans to predict, every file is taken for one
            remedy = "; if this is the participants table, name it with --participants"
        raise BrioError(f"{path}: line {number}, column {column + 1}: '{cells[column][:40]}' is not a number{remedy}")
    for column, (cell, value) in enumerate(zip(cells, values, strict=True), start=1):
        if value is not None and math.isinf(value) and any(c.isdigit() for c in cell):  # 1e400, and not the word inf
            raise BrioError(f"{path}: line {number}, column {column}: {cell[:40]} is too large for a signal")
    return [v for v in values if v is not None]

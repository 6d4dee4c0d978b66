"""Names and values that the tables of a cohort may hold."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from ..errors import BrioError, escape_controls, find_control

_FORMULA = re.compile(r"\s*[=+\-@][=+\-@\s]*[^=+\-@\s]")


def is_formula(value: object) -> bool:
    """Return whether a spreadsheet would read a text as a formula, also after blanks or with full-width characters."""
    if not isinstance(value, str):
        return False
    try:
        float(value)
    except ValueError:  # full-width characters count as the usual ones, and what shows nothing does not
        plain = (c for c in unicodedata.normalize("NFKC", value) if c.isspace() or not find_control(c))
        return _FORMULA.match("".join(plain)) is not None
    return False


def refuse_unsafe_names(names: Iterable[object], where: str) -> None:
    """Raise an error if a name is a formula, has a control character, or bytes that are not UTF-8."""
    for name in names:
        written = str(name).encode("utf-8", "backslashreplace").decode()
        if written != str(name):
            raise BrioError(f"{where}: '{written[:40]}' is not valid UTF-8; rename it")
        if control := find_control(str(name)):
            shown = escape_controls(str(name), keep="")[:40]
            raise BrioError(f"{where}: '{shown}' contains the invisible control character {control}; remove it")
        if is_formula(name):
            text = str(name).strip()
            why = f"begins with '{text[0]}', so spreadsheets treat it as a formula"
            raise BrioError(f"{where}: '{text[:40]}' {why}; change it")


def refuse_unsafe_cells(table: pd.DataFrame, where: str) -> None:
    """Raise an error if a column name or a text in a table is a formula or has a control character."""
    refuse_unsafe_names(table.columns, f"{where}, the name of a column")
    for column in table.columns:
        if not pd.api.types.is_numeric_dtype(table[column]):
            refuse_unsafe_names(dict.fromkeys(table[column].tolist()), f"{where}, column '{column}'")


LISTED_NAMES, NAME_LENGTH = 8, 80  # names of a long list that a message shows, and letters of a long name


def shorten_list(names: Sequence[str], most: int = LISTED_NAMES, separator: str = ", ") -> str:
    """Join names, shortening long ones; after ``most`` names, count the rest."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    shown = (name if len(name) <= NAME_LENGTH else f"{name[:NAME_LENGTH]}..." for name in names[:most])
    return separator.join(shown) + rest


MISSING = "n/a"  # how a table of a cohort folder writes a missing value

EXACT_DIGITS = 15  # whole numbers of so many digits are exact as floating-point numbers, which a column with gaps holds

MEASURES = ("age", "mean_fd", "tr")  # columns that hold quantities, never codes


def convert_column(column: pd.Series) -> pd.Series:
    """Convert text to whole numbers if possible, or else to numbers; otherwise leave it as text with gaps."""
    missing = column.isin(["", MISSING])
    values = [_parse_number(text) for text in column[~missing]]
    if None in values or any(map(_is_code, column[~missing])):
        return column.mask(missing)
    if not missing.any() and all(isinstance(v, int) for v in values):
        return pd.Series(values, index=column.index, dtype=np.int64)
    numbers = np.full(len(column), np.nan)
    numbers[~missing] = np.asarray(values, dtype=float)
    return pd.Series(numbers, index=column.index)


def _is_code(text: str) -> bool:
    """Return whether digits are a name: they begin with a zero, or are more than a number can hold exactly."""
    digits = text.lstrip("+-")
    return digits.isdecimal() and ((len(digits) > 1 and digits[0] == "0") or len(digits) > EXACT_DIGITS)


def _parse_number(text: str) -> int | float | None:
    """Parse a cell; None where it is no number. Python reads 1_0 as ten, other programs do not."""
    for kind in () if "_" in text else (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def check_numbers(table: pd.DataFrame, where: str, text_columns: Iterable[str]) -> None:
    """Refuse impossible numbers: infinite ones, and quantities that are too large.

    A column is checked if all its values are numbers. Text may be anything, and so may codes of many digits, except in
    the columns of quantities.
    """
    for column in table.columns.difference(["participant_id", *text_columns]):
        values = table[column].to_numpy(dtype=object)
        rows = [row for row in np.flatnonzero(pd.notna(values)) if values[row] not in ("", MISSING)]
        numbers = [_parse_number(str(values[row])) for row in rows]
        largest = 10**EXACT_DIGITS if column in MEASURES else math.inf
        odd = [abs(n) >= largest if isinstance(n, int) else n is not None and math.isinf(n) for n in numbers]
        if None not in numbers and True in odd:
            row = rows[odd.index(True)]
            cell = f"{str(values[row])[:40]} in row {row + 1} (participant {table['participant_id'].iloc[row]})"
            remedy = "correct the cell, leave it empty, or remove the column"
            raise BrioError(f"{where}: column '{column}' is {cell}, which is out of range; {remedy}")

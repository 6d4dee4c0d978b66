"""Names that a spreadsheet would execute, or that steer a terminal, are refused where they enter.

Participants, sites, classes, ROIs and covariates end up in csv files that people open in spreadsheets, and a cell that
begins with ``=``, ``+``, ``-`` or ``@`` is a formula there. Refusing such a name keeps every file exact: nothing has to
be escaped when it is written or undone when it is read. Numbers such as ``-1`` are no formulas. Control characters show
nothing, and so let a name pass for another.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

import pandas as pd

from ..errors import BrioError, escape_controls, find_control

_FORMULA = re.compile(r"\s*[=+\-@][=+\-@\s]*[^=+\-@\s]")


def is_formula(value: object) -> bool:
    """Return whether a spreadsheet would read a text as a formula; marks count in every width, and behind blanks."""
    if not isinstance(value, str) or not _FORMULA.match(_plain(value)):
        return False
    try:
        float(value)
    except ValueError:
        return True
    return False


def _plain(text: str) -> str:
    """Write full-width characters as the usual ones, and leave out what shows nothing."""
    return "".join(c for c in unicodedata.normalize("NFKC", text) if c.isspace() or not find_control(c))


def refuse_unsafe_names(names: Iterable[object], where: str) -> None:
    """Raise an error if a name is a formula, has a control character, or bytes that are not UTF-8."""
    for name in names:
        written = str(name).encode("utf-8", "backslashreplace").decode()
        if written != str(name):
            raise BrioError(f"{where}: '{written[:40]}' is not valid UTF-8; rename it")
        if control := find_control(str(name)):
            shown = escape_controls(str(name), keep="")[:40]
            raise BrioError(f"{where}: '{shown}' has the control character {control}, which shows nothing; remove it")
        if is_formula(name):
            text = str(name).strip()
            raise BrioError(
                f"{where}: '{text[:40]}' begins with '{text[0]}', which spreadsheets execute as a formula when they "
                "open the results; rename it"
            )


def refuse_unsafe_cells(table: pd.DataFrame, where: str) -> None:
    """Raise an error if a column name or a text in a table is a formula or has a control character."""
    refuse_unsafe_names(table.columns, f"{where}, name of a column")
    for column in table.columns:
        if not pd.api.types.is_numeric_dtype(table[column]):
            refuse_unsafe_names(pd.unique(table[column].dropna()), f"{where}, column '{column}'")

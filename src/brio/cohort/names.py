"""Names that a spreadsheet would execute are refused where they enter.

Participants, sites, classes, ROIs and covariates end up in csv files that people open in spreadsheets, and a cell that
begins with ``=``, ``+``, ``-`` or ``@`` is a formula there. Refusing such a name keeps every file exact: nothing has to
be escaped when it is written or undone when it is read. Numbers such as ``-1`` are no formulas.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import pandas as pd

from ..errors import BrioError

__all__ = ["is_formula", "refuse_formula_cells", "refuse_formulas"]

_FORMULA = re.compile(r"\s*[=+\-@][=+\-@\s]*[^=+\-@\s]")


def is_formula(value: object) -> bool:
    """Return whether a spreadsheet would read a text as a formula.

    Examples
    --------
    >>> [is_formula(text) for text in ("=1+1", "@SUM(A1)", "-2+3", "-1", "+0.5e3", "--", "a=b", None)]
    [True, True, True, False, False, False, False, False]
    """
    if not isinstance(value, str) or not _FORMULA.match(value):
        return False
    try:
        float(value)
    except ValueError:
        return True
    return False


def refuse_formulas(names: Iterable[object], where: str) -> None:
    """Raise an error if a name is a formula, or has bytes that are not UTF-8, which no file of brio can hold.

    Parameters
    ----------
    names : iterable
    where : str
        What has these names, for the message.

    Raises
    ------
    BrioError
        Naming the first one.
    """
    for name in names:
        written = str(name).encode("utf-8", "backslashreplace").decode()
        if written != str(name):
            raise BrioError(f"{where}: '{written[:40]}' is not valid UTF-8; rename it")
        if is_formula(name):
            text = str(name).strip()
            raise BrioError(
                f"{where}: '{text[:40]}' begins with '{text[0]}', which spreadsheets execute as a formula when they "
                "open the results; rename it"
            )


def refuse_formula_cells(table: pd.DataFrame, where: str) -> None:
    """Raise an error if a column name or a text in a table is a formula.

    Parameters
    ----------
    table : DataFrame
    where : str
        File or argument that holds the table.

    Raises
    ------
    BrioError
        Naming the column.
    """
    refuse_formulas(table.columns, f"{where}, name of a column")
    for column in table.columns:
        if not pd.api.types.is_numeric_dtype(table[column]):
            refuse_formulas(pd.unique(table[column].dropna()), f"{where}, column '{column}'")

"""Select the rows of a table that fulfil an expression."""

from __future__ import annotations

import ast
import re

import numpy as np
import pandas as pd

from ..errors import BrioError, find_control, nearest
from .values import convert_column

LONGEST_EXPRESSION = 1000  # characters
# What an expression may be made of: nothing that calls, reads attributes or computes.
_CONDITIONS = (ast.Expression, ast.BoolOp, ast.boolop, ast.Not, ast.UnaryOp, ast.USub, ast.Compare, ast.cmpop)
_ALLOWED = (*_CONDITIONS, ast.Name, ast.List, ast.Tuple, ast.Load, ast.Constant)
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_FORMS = (
    "write comparisons such as \"age >= 18 and site in ['A', 'B']\" (== for equal, text in quotes, and column names "
    "that are not a single word in `backticks`)"
)
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'|`([^`]*)`")  # texts, and names of columns in backticks


def find_fulfilling(table: pd.DataFrame, expression: str, where: str) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Find the rows that fulfil an expression, the rows that lack a compared value, and the compared columns.

    The parts of the expression are checked before pandas evaluates it, so that no code can be executed. Rows that lack
    a compared value do not fulfil the expression.

    Shapes: returns [N], [N] and names of columns.
    """
    columns: dict[str, str] = {}  # by their names in the expression, without backticks

    def number_name(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        columns[number := f"in_backticks_{len(columns)}"] = match[1]
        return f" {number} "

    option, text = f"--where '{expression[:LONGEST_EXPRESSION]}'", _QUOTED.sub(number_name, expression).strip()
    unreadable = BrioError(f"{option} cannot be read; {_FORMS}")
    try:
        tree = ast.parse("" if len(text) > LONGEST_EXPRESSION or find_control(text) else text, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise unreadable from None
    for node in ast.walk(tree):
        is_plain = not isinstance(node, ast.Constant) or type(node.value) in (int, float, str)
        if not (isinstance(node, _ALLOWED) and is_plain):
            raise BrioError(f"{option} may contain only comparisons; {_FORMS}")
        if isinstance(node, ast.Name):
            name = columns.setdefault(node.id, node.id)
            if name not in table or not name:
                known = nearest(name, filter(None, map(str, table.columns)))
                raise BrioError(f"{where}: there is no column '{name}', which --where compares; {known}")
    values = {name: table[column].astype(object).where(table[column].notna(), "") for name, column in columns.items()}
    compared = pd.DataFrame(values).astype(str).apply(convert_column)
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            _check_kinds(node, compared, columns, option)
    missing = compared.isna().any(axis=1).to_numpy()
    try:
        fulfilled = compared[~missing].eval(ast.unparse(tree), engine="python")
    except Exception:  # what pandas makes of a comparison that means nothing
        raise unreadable from None
    if not columns or not pd.api.types.is_bool_dtype(fulfilled):
        raise unreadable
    found = np.zeros(len(table), dtype=bool)
    found[~missing] = fulfilled
    return found, missing, [*columns.values()]


def _check_kinds(node: ast.Compare, compared: pd.DataFrame, columns: dict[str, str], option: str) -> None:
    """Refuse a comparison of texts with numbers, which would be false for all rows, and of which text is larger."""
    texts, has_numbers = list[str](), False
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            texts.append(f"the text '{part.value}'")
        elif isinstance(part, ast.Name) and not pd.api.types.is_numeric_dtype(values := compared[part.id]):
            words = values[pd.to_numeric(values, errors="coerce").isna()].dropna()
            texts.append(
                f"the text in column '{columns[part.id]}'{f' (such as {words.iloc[0]!r})' if len(words) else ''}"
            )
        else:
            has_numbers |= isinstance(part, ast.Constant | ast.Name)
    if texts and has_numbers:
        in_column = next((text for text in texts if text.startswith("the text in column")), None)
        remedy = "compare a column of numbers with numbers, without quotes"
        if in_column:
            remedy = (
                "compare it with text in quotes (== or in), or correct the column if it should contain only numbers"
            )
        raise BrioError(f"{option} compares {in_column or texts[0]} with a number; {remedy}")
    if texts and any(isinstance(sign, _ORDERS) for sign in node.ops):
        raise BrioError(f"{option} compares {texts[0]} by < or >; compare text with == or in")

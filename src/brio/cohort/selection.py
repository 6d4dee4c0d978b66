"""Rows of a table that fulfil an expression."""

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
_EQUALITIES = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)
_FORMS = "write comparisons such as \"age >= 18 and site in ['A', 'B']\", joined by and, or, not"
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'|`([^`]*)`")  # texts, and names of columns in backticks


def find_fulfilling(table: pd.DataFrame, expression: str, where: str) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Find the rows that fulfil an expression, those without a value in a column that it compares, and these columns.

    Its parts are checked before pandas evaluates it, so that nothing can be executed. Rows without a value are not
    among those that fulfil it.

    Shapes: returns [N], [N] and names of columns.
    """
    names: list[str] = []  # in backticks

    def number_name(match: re.Match[str]) -> str:
        names.extend(match.groups() if match[1] is not None else ())
        return match[0] if match[1] is None else f" in_backticks_{len(names) - 1} "

    option, text = f"--where '{expression[:LONGEST_EXPRESSION]}'", _QUOTED.sub(number_name, expression).strip()
    unreadable = BrioError(f"{option} cannot be read; {_FORMS} (equal is ==, texts stand in quotes)")
    try:
        tree = ast.parse("" if len(text) > LONGEST_EXPRESSION or find_control(text) else text, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise unreadable from None
    columns = {f"in_backticks_{i}": name for i, name in enumerate(names)}
    for node in ast.walk(tree):
        is_plain = not isinstance(node, ast.Constant) or type(node.value) in (int, float, str)
        if not (isinstance(node, _ALLOWED) and is_plain):
            raise BrioError(f"{option} holds more than comparisons ({type(node).__name__}); {_FORMS}")
        if isinstance(node, ast.Name):
            name = columns.setdefault(node.id, node.id)
            if name not in table or not name:
                known = nearest(name, filter(None, map(str, table.columns)))
                raise BrioError(f"{where}: there is no column '{name}', which --where compares; {known}")
    values = {name: table[column].astype(object).where(table[column].notna(), "") for name, column in columns.items()}
    compared = pd.DataFrame(values).astype(str).apply(convert_column)
    for node in ast.walk(tree):
        _check_kinds(node, compared, option)
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


def _check_kinds(node: ast.AST, compared: pd.DataFrame, option: str) -> None:
    """Refuse a comparison of texts with numbers, which would be false for all rows, and of which text is larger."""
    if not isinstance(node, ast.Compare):
        return
    are_texts = {
        str(part.value): isinstance(part.value, str) for part in ast.walk(node) if isinstance(part, ast.Constant)
    }
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            are_texts[part.id] = not pd.api.types.is_numeric_dtype(compared[part.id])
    if len({*are_texts.values()}) > 1 or (any(are_texts.values()) and not isinstance(node.ops[0], _EQUALITIES)):
        text = next(name for name, is_text in are_texts.items() if is_text)
        problem = f"compares '{text}', a text, by order or with a number"
        raise BrioError(f"{option} {problem}; put quotes around texts alone, and compare them by == or in")

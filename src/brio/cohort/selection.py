"""Select the rows of a table that fulfil an expression."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from ..errors import BrioError, find_control, nearest
from .values import ColumnValues, means_sex, parse_number

LONGEST_EXPRESSION = 1000  # characters
# What an expression may be made of: nothing that calls, reads attributes or computes.
_CONDITIONS = (ast.Expression, ast.BoolOp, ast.boolop, ast.Not, ast.UnaryOp, ast.USub, ast.Compare, ast.cmpop)
_ALLOWED = (*_CONDITIONS, ast.Name, ast.List, ast.Tuple, ast.Load, ast.Constant)
_ORDERS: dict[type, Any] = {ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge}
_SIGNS: dict[type, Any] = _ORDERS | {ast.Eq: operator.eq, ast.NotEq: operator.ne}
_LISTS = (ast.In, ast.NotIn)
_ANY = (ast.Eq, ast.In)  # true for rows that have one of the values; their opposites for the others
_TURNED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE, ast.Eq: ast.Eq, ast.NotEq: ast.NotEq}
_FORMS = (
    "write comparisons such as \"age >= 18 and site in ['A', 'B']\" (== for equal, text in quotes, and column names "
    "that are not a single word in `backticks`)"
)
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'|`([^`]*)`")  # texts, and names of columns in backticks


def find_fulfilling(
    table: pd.DataFrame, expression: str, where: str, sex_columns: Collection[str | None] = ()
) -> tuple[np.ndarray, np.ndarray, list[str], list[str]]:
    """Find the rows that fulfil an expression, the rows that lack a compared value, the compared columns, and warnings.

    An expression joins comparisons of a column with a value, a list of values or another column by ``and``, ``or`` and
    ``not``; ``10 < age <= 20`` is two. Texts are found in their column by :meth:`ColumnValues.find`. Rows that lack a
    compared value do not fulfil the expression.

    Shapes: returns [N], [N], names of columns and sentences.
    """
    columns: dict[str, str] = {}  # by their names in the expression, without backticks

    def number_name(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        columns[number := f"in_backticks_{len(columns)}"] = match[1]
        return f" {number} "

    option, text = f"--where '{expression[:LONGEST_EXPRESSION]}'", _QUOTED.sub(number_name, expression).strip()
    try:
        tree = ast.parse("" if len(text) > LONGEST_EXPRESSION or find_control(text) else text, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise BrioError(f"{option} cannot be read; {_FORMS}") from None
    for node in ast.walk(tree):
        is_plain = not isinstance(node, ast.Constant) or type(node.value) in (int, float, str)
        if not (isinstance(node, _ALLOWED) and is_plain):
            raise BrioError(f"{option} may contain only comparisons; {_FORMS}")
        if isinstance(node, ast.Name):
            name = columns.setdefault(node.id, node.id)
            if name not in table or not name:
                known = nearest(name, filter(None, map(str, table.columns)))
                raise BrioError(f"{where}: there is no column '{name}', which --where compares; {known}")
    read = {
        key: ColumnValues(table[name], f"{where}: column '{name}'", means_sex(name) or name in sex_columns)
        for key, name in columns.items()
    }
    conditions = _Conditions(option, text, columns, read)
    fulfilled = conditions.decide(tree.body)
    missing = np.logical_or.reduce([[value is None for value in one.values] for one in read.values()])
    return fulfilled & ~missing, missing, [*columns.values()], conditions.warnings


@dataclass(eq=False)
class _Conditions:
    """The conditions of an expression, with the columns and their values by their names in it."""

    option: str  # for messages
    text: str
    columns: dict[str, str]
    read: dict[str, ColumnValues]
    warnings: list[str] = field(default_factory=list)

    def refuse(self, hint: str = "") -> BrioError:
        return BrioError(f"{self.option} cannot be read; {hint}{_FORMS}")

    def decide(self, node: ast.expr) -> np.ndarray:
        """Find the rows for which a condition is true. Shape [N], bool."""
        match node:
            case ast.BoolOp(op=sign, values=parts):
                join = np.logical_and if isinstance(sign, ast.And) else np.logical_or
                return np.asarray(join.reduce([*map(self.decide, parts)]))
            case ast.UnaryOp(op=ast.Not(), operand=part):
                return ~self.decide(part)
            case ast.Compare(left=ast.Name(id=name), ops=[sign], comparators=[value]):
                return self.compare(name, type(sign), value)
            case ast.Compare(left=value, ops=[sign], comparators=[ast.Name(id=name)]) if type(sign) in _TURNED:
                return self.compare(name, _TURNED[type(sign)], value)
            case ast.Compare(left=low, ops=[one, other], comparators=[ast.Name(id=name), high]):
                are_values = not isinstance(low, ast.Name) and not isinstance(high, ast.Name)
                if are_values and {type(one), type(other)} <= {*_ORDERS}:
                    return self.compare(name, _TURNED[type(one)], low) & self.compare(name, type(other), high)
            case ast.Compare(ops=[ast.In() | ast.NotIn()]):
                raise self.refuse("write COLUMN in ['A', 'B']; ")
        is_odd = isinstance(node, ast.Compare)
        raise self.refuse("compare a column with values, and join comparisons by and, or, not; " if is_odd else "")

    def compare(self, name: str, sign: type, other: ast.expr) -> np.ndarray:
        """Compare a column with a value, a list of values or another column of numbers. Shape [N], bool."""
        column = self.read[name]
        if isinstance(other, ast.Name):
            if sign in _SIGNS and column.are_numbers and self.read[other.id].are_numbers:
                return np.asarray(_SIGNS[sign](column.read_numbers(), self.read[other.id].read_numbers()))
            raise self.refuse("two columns can only be compared if both contain numbers; ")
        parts = other.elts if isinstance(other, ast.List | ast.Tuple) else [other]
        if not parts or sign not in (_SIGNS if parts == [other] else _LISTS):
            raise self.refuse("write COLUMN in ['A', 'B'] for one of several values, and == for one value; ")
        values = [*map(self.read_constant, parts)]
        texts = [value for value in values if isinstance(value, str)]
        if texts and (column.are_numbers or len(texts) < len(values)):
            remedy = "compare a column of numbers with numbers, without quotes"
            raise BrioError(f"{self.option} compares the text '{texts[0]}' with a number; {remedy}")
        if texts and sign in _ORDERS:
            raise BrioError(f"{self.option} compares the text '{texts[0]}' by < or >; compare text with == or in")
        if column.spellings and not column.are_numbers and not texts:
            word = max(filter(None, column.texts), key=lambda text: parse_number(text) is None)
            problem = f"compares the text in column '{self.columns[name]}' (such as '{word}') with a number"
            remedy = "text in quotes (== or in), or correct the column if it should contain only numbers"
            raise BrioError(f"{self.option} {problem}; compare it with {remedy}")
        if sign in _ORDERS:
            return np.asarray(_ORDERS[sign](column.read_numbers(), values[0]))
        if texts:
            found = self.find_texts(column, texts, sign)
            hits = np.array([value in found for value in column.values])
        else:
            hits = np.isin(column.read_numbers(), values)
        return hits if sign in _ANY else ~hits

    def read_constant(self, node: ast.expr) -> float | str:
        """Read a number or a text."""
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant() as number) | (ast.Constant() as number):
                written = ast.get_source_segment(self.text, number) or ""  # Python takes 1_4 and 0x10 as well
                if parse_number(written) is None:
                    raise self.refuse(f"{written} is not a number; ")
                return float(written) if number is node else -float(written)
        raise self.refuse("compare a column with numbers, or with text in quotes; ")

    def find_texts(self, column: ColumnValues, texts: list[str], sign: type) -> list[str]:
        """Find texts among the values of a column; warn of one that is not there, and refuse if none of them is."""
        absent = [text for text in texts if column.find(text) is None] if column.spellings else []
        problems = [f"{column.where} has no value '{text}'; {column.suggest(text)}" for text in absent]
        if len(absent) == len(texts) and sign in _ANY:
            raise BrioError(f"{self.option}: {problems[0]}")
        self.warnings += [f"--where: {problem}" for problem in problems]
        return [value for text in texts if (value := column.find(text)) is not None]

"""Recognise the columns of a participants table that have a meaning for brio, however they are spelt."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from ...errors import BrioError
from ..cohort import Cohort
from ..covariates import COVARIATE_COLUMNS
from ..folder import find_filled

COVARIATES = (*sorted(COVARIATE_COLUMNS.values()), "tr")
"""Columns that some methods need."""
_OTHER_SPELLINGS = {"fdmean": "mean_fd"}
_SIMPLE = {name.replace("_", ""): name for name in COVARIATES} | _OTHER_SPELLINGS
"""Column for each spelling, in lower case and without signs."""


def find_column(columns: Sequence[str], name: str, path: Path) -> str:
    """Find a column by its name, else by its name in other capitals."""
    spellings = [column for column in columns if column.lower() == name]
    if name in spellings or not spellings:
        return name
    if len(spellings) > 1:
        raise _describe_clash(path, spellings, name)
    return spellings[0]


def find_covariates(columns: Sequence[str], path: Path, taken: Collection[str] = ()) -> dict[str, str]:
    """Find the columns that some methods need under another spelling: capitals, and signs between words."""
    spellings: dict[str, list[str]] = {}
    for column in columns:
        name = _SIMPLE.get("".join(c for c in column.lower() if c.isalnum()))
        if name is not None and name not in columns and column not in taken:
            spellings.setdefault(name, []).append(column)
    for name, same in spellings.items():
        if len(same) > 1:
            raise _describe_clash(path, same, name)
    return {same[0]: name for name, same in spellings.items()}


def _describe_clash(path: Path, spellings: list[str], name: str) -> BrioError:
    first, second = spellings[:2]
    return BrioError(
        f"{path}: the columns '{first}' and '{second}' would both be read as '{name}'; rename the right one to '{name}'"
    )


def summarise_columns(cohort: Cohort) -> str:
    """Summarise in one line which of the columns that some methods need were found, and under which name."""
    renamed = cohort.provenance.get("renamed_columns", {})
    found = [name for name in COVARIATES if find_filled(cohort.participants, name).any()]
    missing = [name for name in COVARIATES if name not in found]
    named = [f"{name} (column '{renamed[name]}')" if name in renamed else name for name in found]
    parts = [", ".join(named)] if named else []
    parts += [f"not found: {', '.join(missing)}"] if missing else []
    return f"columns that some methods need: {'; '.join(parts)}"

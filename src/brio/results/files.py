"""Names of the files of a job, and how they are read and written.

Every file is written atomically: a reader, or a process that is killed, sees the old file or the new one.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from ..cohort.readers.assembly import refuse_existing
from ..errors import REPEAT_JOB, BrioError, file_error
from ..schemas import MAX_JSON_BYTES, MAX_TABLE_BYTES, parse_json, parse_table, read_bounded

__all__ = [
    "create_whole_folder",
    "file_error",
    "read_csv",
    "read_json",
    "write_atomically",
    "write_csv",
    "write_json",
]

SITES, COVARIANCES = "sites.csv", "covariances.csv"
PLAN, SUMMARY, RESULTS, PREDICTIONS = "plan.json", "summary.json", "results.csv", "predictions.csv"
AUDIT, EXCLUSIONS, COHORT_FACTS = "audit.json", "exclusions.tsv", "facts.json"
GROUPS = "groups.csv"
TUNING, CONFIGURATIONS, SEARCH = "tuning.json", "configurations.csv", "search"
RUNS, RECORD, WEIGHTS = "runs", "run.json", "weights.safetensors"
CHECKPOINTS = "checkpoints"
STUDY, TABLE, FINDING = "study.json", "table.csv", "finding.md"
FINDING_OF_0_1 = "found.md"
LOCK = ".lock"
PARTIAL = ".partial"
"""Ending of files and folders that are being written."""

TEXT_COLUMNS = (
    *("cohort", "method", "protocol", "fold", "test_sites", "validation_sites", "device", "note"),
    *("participant_id", "site", "arm", "roi", "other"),
)
"""Columns that are text even where every value looks like a number: ``0050002`` is a participant, ``1`` a fold."""


def write_atomically(path: Path, text: str) -> None:
    """Write a text file under another name and rename it when it is whole."""
    partial = path.with_name(path.name + PARTIAL)
    with partial.open("w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


@contextmanager
def create_whole_folder(folder: Path) -> Iterator[Path]:
    """Create a folder whole or not at all.

    Yields a folder beside it under a name of its own, which gets its name at the end of the block. If the block fails,
    nothing is left.

    Raises
    ------
    BrioError
        If ``folder`` exists, or cannot be written.
    """
    refuse_existing(folder)
    partial = folder.with_name(f"{folder.name}.{uuid.uuid4().hex[:8]}{PARTIAL}")
    try:
        partial.mkdir(parents=True)
        yield partial
        os.rename(partial, folder)
    except OSError as error:
        raise BrioError(f"{folder}: cannot be written ({error})") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_json(path: Path, document: dict[str, Any], indent: int = 1) -> None:
    """Write a JSON object.

    Parameters
    ----------
    path : Path
    document : dict
    indent : int
        Spaces by which a level is indented.
    """
    write_atomically(path, json.dumps(document, indent=indent) + "\n")


def read_json(path: Path, remedy: str = REPEAT_JOB) -> dict[str, Any]:
    """Read a JSON object.

    Raises
    ------
    BrioError
        If the file cannot be read or holds something else.
    """
    return parse_json(read_bounded(path, MAX_JSON_BYTES, remedy), path, remedy)


def write_csv(path: Path, table: pd.DataFrame, float_format: str | None = None) -> None:
    """Write a table.

    Parameters
    ----------
    path : Path
    table : DataFrame
    float_format : str, optional
        Of numbers, such as ``%.6g``; by default they have all their digits.
    """
    write_atomically(path, table.to_csv(index=False, lineterminator="\n", float_format=float_format))


def read_csv(
    path: Path,
    row: type | None = None,
    columns: Sequence[str] = (),
    *,
    text_columns: Sequence[str] = (),
    max_bytes: int = MAX_TABLE_BYTES,
) -> pd.DataFrame:
    """Read a table of a job or a study: text stays text, numbers are exact, empty cells missing.

    Parameters
    ----------
    path : Path
    row : dataclass, optional
        Declares columns, see :func:`brio.schemas.parse_table`.
    columns : names
        Columns that must be there.
    text_columns : names
        Columns of this file that are text, besides those that are text in every file.
    max_bytes : int
        A larger file is not read.

    Raises
    ------
    BrioError
        If the file cannot be read, lacks a column, or holds a value that does not fit its column.
    """
    content = read_bounded(path, max_bytes)
    return parse_table(content, path, row, columns, text_columns=(*TEXT_COLUMNS, *text_columns))

"""Names of the files of a job, and how they are read and written.

Files are written by :mod:`brio.storage`, with their hashes in ``SHA256SUMS``, which are checked when they are read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from .. import storage
from ..errors import REPEAT_JOB, BrioError
from ..schemas import (
    MAX_JSON_BYTES,
    MAX_PARTICIPANT_TABLE_BYTES,
    MAX_TABLE_BYTES,
    parse_json,
    parse_table,
    read_bounded,
    to_json,
)
from ..storage import write_atomically

SITES, COVARIANCES = "sites.csv", "covariances.csv"
PLAN, SUMMARY, RESULTS, PREDICTIONS = "plan.json", "summary.json", "results.csv", "predictions.csv"
AUDIT, EXCLUSIONS, COHORT_FACTS = "audit.json", "exclusions.tsv", "facts.json"
GROUPS = "groups.csv"
TUNING, CONFIGURATIONS, SEARCH = "tuning.json", "configurations.csv", "search"
MEMBERS, EVALUATION = "members", "evaluation"
"""Folders of the two jobs that a model is made of."""
RUNS, RECORD, WEIGHTS = "runs", "run.json", "weights.safetensors"
CHECKPOINTS, SHARED_PLAN = "checkpoints", "shared-plan"
STUDY, TABLE, FINDING = "study.json", "table.csv", "finding.md"
PLAN_AGAIN = f"remove {PLAN} and run the command of the job again; finished runs are kept"
"""Remedy where the plan or the hashes of a job are damaged."""

TEXT_COLUMNS = (
    *("cohort", "method", "protocol", "fold", "test_sites", "validation_sites", "device", "note"),
    *("participant_id", "site", "arm", "roi", "other"),
)
"""Columns that are text even where every value looks like a number: ``0050002`` is a participant, ``1`` a fold."""


def read_file(path: Path, remedy: str = REPEAT_JOB, max_bytes: int = MAX_PARTICIPANT_TABLE_BYTES) -> bytes:
    """Read a file of a job or a study, and check its hash."""
    content = read_bounded(path, max_bytes, remedy)
    storage.check_stored(path, remedy, content)
    return content


def is_kept(path: Path, remedy: str = REPEAT_JOB) -> bool:
    """Return whether an optional file of a job or a study is there; raise an error if it was removed."""
    return storage.is_kept(path, remedy)


def require_folder(folder: Path) -> None:
    """Raise :class:`BrioError` if a folder of results does not exist; otherwise the error would name a file in it."""
    if not folder.is_dir():
        raise BrioError(
            f"{folder}: this folder does not exist; give the --out folder of 'brio run', 'brio tune' or 'brio study'"
        )


def format_json(record: Any, indent: int = 1) -> str:
    """Return the text of a JSON file that holds a record, or an object."""
    return json.dumps(to_json(record), indent=indent) + "\n"


def read_json(path: Path, remedy: str = REPEAT_JOB) -> dict[str, Any]:
    """Read a JSON object."""
    return parse_json(read_file(path, remedy, MAX_JSON_BYTES), path, remedy)


def format_csv(table: pd.DataFrame, float_format: str | None = None) -> str:
    """Return the text of a table."""
    return table.to_csv(index=False, lineterminator="\n", float_format=float_format)


def write_csv(path: Path, table: pd.DataFrame, float_format: str | None = None) -> None:
    """Write a table without recording its hash."""
    write_atomically(path, format_csv(table, float_format))


def read_csv(
    path: Path, row: type | None = None, max_bytes: int = MAX_TABLE_BYTES, remedy: str = REPEAT_JOB
) -> pd.DataFrame:
    """Read a table of a job or a study: text stays text, numbers are exact, empty cells missing."""
    content = read_file(path, remedy, max_bytes)
    return parse_table(content, path, row, TEXT_COLUMNS, remedy=remedy)

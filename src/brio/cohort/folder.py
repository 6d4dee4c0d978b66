"""Define the files of a cohort folder: their names, and the text of the tables.

A cohort folder holds ``frames.npy`` (all scans end to end), ``participants.tsv``, ``atlas.tsv``, ``cohort.json``
(name, class names, provenance and fingerprint) and ``SHA256SUMS``.
"""

from __future__ import annotations

import io
from dataclasses import MISSING as MISSING_DEFAULT
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd

from ..errors import BrioError, file_error
from ..schemas import (
    MAX_JSON_BYTES,
    MAX_PARTICIPANT_TABLE_BYTES,
    Hex,
    Name,
    StoredPositiveCount,
    check_columns,
    check_rows,
    from_json,
    parse_json,
    read_bounded,
)
from ..schemas.records import show_value
from ..schemas.stored_values import Range
from ..schemas.table_files import list_text_columns
from .names import refuse_unsafe_cells, refuse_unsafe_names
from .sessions import SCAN_ID, name_repeated_scans
from .table_values import MISSING, check_numbers, convert_column

FORMAT = 1
"""Version of the folder layout."""
FRAMES, PARTICIPANTS, ATLAS, HEADER = "frames.npy", "participants.tsv", "atlas.tsv", "cohort.json"
REQUIRED_COLUMNS = ("participant_id", "site", "label")
TEXT_COLUMNS = ("participant_id", "site", "session", SCAN_ID)
"""Columns of the participants table that stay as they are written."""
_OTHER_FOLDERS = {"model.json": "a model of 'brio fit'", "plan.json": "a folder of results of 'brio run'"}
IMPORT_AGAIN = "import the cohort again"


@dataclass(frozen=True)
class CohortHeader:
    """What ``cohort.json`` holds, besides its format."""

    name: str
    atlas: str
    classes: tuple[str, str]
    provenance: dict[str, Any]
    tables: Hex
    fingerprint: Hex


@dataclass(frozen=True)
class ParticipantRow:
    """Columns of ``participants.tsv`` that brio reads in every cohort; scans to predict may lack site and label."""

    participant_id: Name
    n_frames: StoredPositiveCount
    site: str = ""
    session: str = ""
    brio_scan_id: Name = ""
    label: Annotated[int, Range("0 or 1", 0, 1)] | None = None


@dataclass(frozen=True)
class RoiRow:
    """Column of a table of ROIs that all have."""

    name: str


def check_participants(table: pd.DataFrame, where: str, labels_required: bool = True) -> pd.DataFrame:
    """Check a participants table and convert its required columns to plain types."""
    required = REQUIRED_COLUMNS if labels_required else ("participant_id",)
    for column in required:
        if column not in table.columns:
            raise BrioError(
                f"{where}: column '{column}' is missing; the table has the columns {', '.join(map(str, table.columns))}"
            )
    refuse_unsafe_cells(table, where)
    table = table.copy()
    for column in table.columns.intersection(["participant_id", "site"]):
        empty = table[column].isna() | (table[column].astype(str).str.strip() == "")
        if empty.any() and column in required:
            raise BrioError(f"{where}: column '{column}' is empty in row {int(np.flatnonzero(empty)[0]) + 1}")
        table[column] = table[column].astype(str).mask(empty, "")
    if "label" in table:
        table["label"] = _convert_labels(table, where, labels_required)
    table = name_repeated_scans(table, where)
    check_numbers(table, where, TEXT_COLUMNS)
    for column in table.columns.intersection(["age", "mean_fd"]):
        codes = np.flatnonzero(pd.to_numeric(table[column], errors="coerce") <= -99)  # -99, -999, -9999
        if len(codes):
            participant, value = table["participant_id"].iloc[codes[0]], table[column].iloc[codes[0]]
            raise BrioError(
                f"{where}: {column} of participant {participant} is {value}, which seems to be a code for a missing "
                "value; leave the cell empty"
            )
    return table.drop(columns=[c for c in ("site", "label") if c in table and not find_filled(table, c).any()])


def _convert_labels(table: pd.DataFrame, where: str, labels_required: bool) -> pd.Series:
    """Convert the column of labels to whole numbers, with NA for gaps where gaps are allowed."""
    labels = pd.to_numeric(table["label"], errors="coerce")
    invalid = ~labels.isin([0, 1])
    if not labels_required:
        invalid &= find_filled(table, "label")
    if invalid.any():
        row = int(np.flatnonzero(invalid)[0])
        raise BrioError(
            f"{where}: participant {table['participant_id'].iloc[row]} has label "
            f"'{table['label'].iloc[row]}'; labels must be 0 (control) or 1 (patient)"
        )
    if labels_required and labels.nunique() != 2:
        raise BrioError(f"{where}: column 'label' holds one class only; two classes are needed")
    return labels.astype("Int64" if labels.isna().any() else np.int64)


def find_filled(table: pd.DataFrame, column: str) -> np.ndarray:
    """Find the rows that have a value in a column.

    Shapes: returns [N].
    """
    if column not in table:
        return np.zeros(len(table), dtype=bool)
    values = table[column].to_numpy(dtype=object)  # called often, and pandas takes ten times as long
    filled = np.asarray(pd.notna(values))
    filled[filled] = values[filled] != ""
    return filled


def require_filled(table: pd.DataFrame, column: str, cohort: str) -> pd.Series:
    """Return a column of a participants table that must have a value in every row."""
    empty = ~find_filled(table, column)
    if empty.any() or column not in table:
        count = "the scans" if empty.all() else f"{int(empty.sum())} of {len(empty)} scans"
        first = "" if empty.all() else f" (the first is {table['participant_id'][empty].iloc[0]})"
        raise BrioError(
            f"cohort '{cohort}': {count} have no {column}{first}; such scans can be predicted, but learning and the "
            f"audit need the {column} of every scan: add it to the participants table and import again"
        )
    return table[column]


def locate_scans(n_frames: np.ndarray) -> np.ndarray:
    """Compute where each scan starts in the frames.

    Shapes: n_frames [N]; returns [N].
    """
    return np.concatenate([[0], np.cumsum(n_frames)[:-1]]).astype(np.int64)


def format_table(table: pd.DataFrame) -> str:
    """Format a table as the tab-separated text that a cohort folder stores.

    The fingerprint covers this text, so it must never change for a given table.
    """
    return table.to_csv(sep="\t", index=False, na_rep=MISSING, lineterminator="\n")


def read_table(path: Path, row: type, remedy: str = IMPORT_AGAIN) -> pd.DataFrame:
    """Read a table that :func:`format_table` wrote."""
    text = check_rows(read_bounded(path, MAX_PARTICIPANT_TABLE_BYTES, remedy), path, "\t", remedy)
    table = pd.read_csv(io.StringIO(text), sep="\t", dtype=str, keep_default_na=False, index_col=False)
    refuse_unsafe_cells(table, str(path))
    for column in table.columns.difference(list_text_columns(row)):
        table[column] = convert_column(table[column])
        if table[column].dtype.kind == "f" and np.isinf(table[column]).any():
            raise file_error(path, f"column {show_value(column)} holds a number out of range", remedy)
    required = [f.name for f in fields(row) if f.default is MISSING_DEFAULT]
    return check_columns(table, path, row, required, remedy)


def name_other_folder(folder: Path) -> str:
    """Say which folder of brio that is no cohort this is; empty where it is none."""
    return next((kind for name, kind in _OTHER_FOLDERS.items() if (folder / name).is_file()), "")


def read_header(folder: Path) -> dict[str, Any]:
    """Read and check ``cohort.json``."""
    path = folder / HEADER
    if not path.is_file():
        kind = name_other_folder(folder)
        if kind:
            raise BrioError(f"{folder}: is {kind}, not a cohort folder; give a folder that 'brio import' wrote")
        raise BrioError(f"{folder}: not a cohort folder ({HEADER} is missing); make one with 'brio import'")
    header = parse_json(read_bounded(path, MAX_JSON_BYTES, IMPORT_AGAIN), path, IMPORT_AGAIN)
    if header.get("format") != FORMAT:
        version = show_value(header.get("format"))
        raise BrioError(f"{path}: format {version}, this version reads {FORMAT}; {IMPORT_AGAIN}")
    from_json(CohortHeader, header, path, IMPORT_AGAIN)
    named = [header["name"], header["atlas"], *header["classes"]]
    refuse_unsafe_names(named, f"{path}, name of the cohort, its atlas or a class")
    return header

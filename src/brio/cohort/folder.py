"""The folder of a cohort: its files, their hash, written scan by scan."""

from __future__ import annotations

import hashlib
import io
import json
from contextlib import ExitStack
from dataclasses import MISSING as MISSING_DEFAULT
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
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
from ..storage import SUMS, NewFile, check_stored, create_whole_folder, write_new, write_sums
from .atlas import Atlas
from .scans import SCAN_ID, convert_frames, name_repeated_scans
from .values import MISSING, check_numbers, convert_column, refuse_unsafe_cells, refuse_unsafe_names

FORMAT = 1  # version of the folder layout
FRAMES, PARTICIPANTS, ATLAS, HEADER = "frames.npy", "participants.tsv", "atlas.tsv", "cohort.json"
REQUIRED_COLUMNS = ("participant_id", "site", "label")
# Columns of the participants table that stay as they are written.
TEXT_COLUMNS = ("participant_id", "site", "session", SCAN_ID)
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


HASH_CHUNK_BYTES = 64 << 20


def hash_content(frames: np.ndarray, participants: str, atlas: str, classes: tuple[str, str]) -> str:
    """Compute the fingerprint of a cohort: SHA-256 of its frames, both tables and the class names.

    Shapes: frames [sum of T_i, P].
    """
    head = f"{frames.shape} {frames.dtype.str}\n{participants}\n{atlas}\n{json.dumps(list(classes))}"
    digest = hashlib.sha256(head.encode())
    rows = max(1, HASH_CHUNK_BYTES // max(1, frames.shape[1] * frames.itemsize))
    for start in range(0, len(frames), rows):
        digest.update(np.ascontiguousarray(frames[start : start + rows]).data)
    return digest.hexdigest()


def hash_tables(folder: Path) -> str:
    """Compute the hash of both tables of a folder, which is cheap enough to check on every load."""
    return hashlib.sha256((folder / PARTICIPANTS).read_bytes() + (folder / ATLAS).read_bytes()).hexdigest()


def check_tables(folder: Path, header: dict[str, Any]) -> None:
    """Check that all files of a cohort folder are there, and the hashes of all but the frames; takes no time."""
    for part in (FRAMES, PARTICIPANTS, ATLAS):
        if not (folder / part).is_file():
            raise BrioError(f"{folder}: {part} is missing; {IMPORT_AGAIN}")
    if "hashes" in header or (folder / SUMS).is_file():
        for part in (HEADER, PARTICIPANTS, ATLAS):
            check_stored(folder / part, IMPORT_AGAIN, lambda: True)
    if hash_tables(folder) != header["tables"]:
        raise BrioError(f"{folder}: {PARTICIPANTS} or {ATLAS} changed since the cohort was written; import it again")


def check_frames_hash(folder: Path) -> None:
    """Check the hash of the frames of a cohort folder, where it has one; reads all of them."""
    if (folder / SUMS).is_file():
        check_stored(folder / FRAMES, IMPORT_AGAIN, lambda: True)


class CohortWriter:
    """Context manager that writes scans one by one to a new cohort folder.

    Scans go to a folder beside ``out`` under a name of its own. Leaving the block without an error checks the
    participants, computes the fingerprint and the hashes, and renames the folder to ``out``. An error removes it. One
    scan is in memory at a time.
    """

    def __init__(
        self,
        out: str | Path,
        name: str,
        atlas: Atlas,
        classes: tuple[str, str] = ("0", "1"),
        provenance: dict[str, Any] | None = None,
        labels_required: bool = True,
    ) -> None:
        refuse_unsafe_names([name, atlas.name, *classes], "name of the cohort, its atlas or a class")
        self.out = Path(out)
        self.name = name
        self.atlas = atlas
        self.classes = classes
        self.provenance = provenance or {}
        self.labels_required = labels_required
        self._rows: list[dict[str, Any]] = []
        self._length = 0

    def __enter__(self) -> CohortWriter:
        with ExitStack() as stack:
            self._partial = stack.enter_context(create_whole_folder(self.out))
            self._file = NewFile(self._partial / FRAMES, self.out / FRAMES)
            stack.callback(self._file.close)
            self._write_npy_header()
            self._stack = stack.pop_all()
        return self

    def add(self, scan: np.ndarray, participant: dict[str, Any]) -> None:
        """Append one scan.

        Shapes: scan [T, P].
        """
        participant_id = participant.get("participant_id", f"row {len(self._rows) + 1}")
        frames = convert_frames(scan, f"participant {participant_id}")
        if frames.shape[1] != len(self.atlas):
            raise BrioError(
                f"participant {participant_id}: scan of shape {frames.shape}, "
                f"but atlas '{self.atlas.name}' has {len(self.atlas)} ROIs"
            )
        if not np.isfinite(frames).any():
            raise BrioError(f"participant {participant_id}: the scan holds no finite value")
        self._file.write(np.ascontiguousarray(frames, dtype="<f4").data)
        self._rows.append({**participant, "n_frames": len(frames)})
        self._length += len(frames)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._stack.__exit__(kind, error, trace)
            return
        with self._stack:
            self._finish()

    def _write_npy_header(self) -> None:
        # numpy leaves room in the header for the first axis to grow, so it can be rewritten in place
        np.lib.format.write_array_header_1_0(
            self._file, {"descr": "<f4", "fortran_order": False, "shape": (self._length, len(self.atlas))}
        )

    def _finish(self) -> None:
        if not self._rows:
            raise BrioError(f"{self.out}: there is no scan to write")
        self._file.rewind()
        self._write_npy_header()
        self._file.sync()
        source = str(self.provenance.get("source") or self.out)  # an error is about the input
        table = check_participants(pd.DataFrame(self._rows), source, self.labels_required)
        for name, part in ((PARTICIPANTS, table), (ATLAS, self.atlas.rois)):
            write_new(self._partial / name, format_table(part))
        frames = np.load(self._partial / FRAMES, mmap_mode="r", allow_pickle=False)
        header = {
            "format": FORMAT,
            "name": self.name,
            "atlas": self.atlas.name,
            "classes": list(self.classes),
            "n_scans": len(table),
            "n_rois": len(self.atlas),
            "provenance": self.provenance,
            "tables": hash_tables(self._partial),
            "fingerprint": hash_content(frames, format_table(table), format_table(self.atlas.rois), self.classes),
            "hashes": SUMS,
        }
        write_new(self._partial / HEADER, json.dumps(header, indent=2) + "\n")
        write_sums(self._partial, (HEADER, PARTICIPANTS, ATLAS, FRAMES))

"""Read REST-meta-MDD as DPABI writes it: ``ROISignals_S<site>-<group>-<number>.mat``, all atlases side by side."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...errors import BrioError, nearest
from ..cohort import Cohort
from .assembly import ImportOptions, Skipped, canonicalise_atlas_name, check_source, describe_import, write_scans
from .participants import (
    TextTable,
    describe_skipped,
    extract_covariates,
    find_covariates,
    find_table,
    read_participants,
)
from .series import Series, find_series, read_series

ATLAS_COLUMNS = {
    "aal116": (1, 116),
    "ho-cortical": (117, 212),
    "ho-subcortical": (213, 228),
    "cc200": (229, 428),
    "zalesky980": (429, 1408),
    "dosenbach160": (1409, 1568),
    "power264": (1570, 1833),
}
"""First and last column of each atlas, counted from 1; column 1569 is the global signal."""

MIN_COLUMNS = 1833
"""Columns of a file since DPARSF 4.3; later versions append further atlases."""
OLDER_COLUMNS = (1568, 1569)
"""Columns of a file before the global signal was added, and before Power264 was added (DPARSF 4.2). Any other count
below ``MIN_COLUMNS`` comes from a custom list of ROIs."""

PREFIX = "ROISignals_"
NAME = re.compile(r"S(?P<site>\d+)-(?P<group>\d+)-\d+", re.IGNORECASE)
LABELS = {"1": 1, "2": 0}  # group: 1 MDD, 2 HC
ID_COLUMNS = ("participant_id", "id", "subid", "subject_id", "subject")


def read_dpabi(src: str | Path, out: str | Path, options: ImportOptions) -> Cohort:
    """Import the ROI signals of REST-meta-MDD."""
    src = check_source(src, options)
    atlas_name = canonicalise_atlas_name(options.atlas or "").lower()
    if atlas_name not in ATLAS_COLUMNS:
        raise BrioError(f"the files of DPABI have no atlas '{options.atlas}', {nearest(atlas_name, ATLAS_COLUMNS)}")
    if options.id_column is not None and options.participants is None:
        raise BrioError("--id-column names a column of a participants table: give the table with --participants")
    files, skipped, unlabelled = _find_files(src, options.labels_required)
    table = None if options.participants is None else read_participants(find_table(src, options.participants))
    covariates, without_covariates, renamed = _match_covariates(table, files, skipped, options.id_column)
    rows = [{"participant_id": p} | _parse_name(p) | covariates.get(p, {}) for p in files]
    stated = {"atlas": atlas_name, "participants": options.participants and Path(options.participants)}
    stated |= {"id_column": options.id_column}
    provenance = describe_import("dpabi", src, stated, len(files), skipped, unlabelled, renamed)
    if without_covariates:
        provenance["without_covariates"] = without_covariates
    return write_scans(
        out,
        _read_scans(zip(rows, files.values(), strict=True), atlas_name),
        options,
        atlas=atlas_name,
        name=f"rest-meta-mdd-{atlas_name}",
        classes=("HC", "MDD"),
        provenance=provenance,
    )


def is_dpabi_file(path: Path) -> bool:
    """Return whether a file is named as in this layout."""
    return path.name.startswith(PREFIX) and path.suffix.lower() in (".mat", ".txt")


def _parse_name(participant: str) -> dict[str, Any]:
    """Read site and label of a participant in its name; nothing where the name has another form."""
    match = NAME.fullmatch(participant)
    return {} if match is None else {"site": f"S{match['site']}", "label": LABELS.get(match["group"])}


def _find_files(src: Path, labels_required: bool) -> tuple[dict[str, Path], list[Skipped], list[Skipped]]:
    """Find the file of each participant, those skipped and those read without label.

    A txt file beside a mat file of the same name is a copy.
    """
    candidates = [path for path in find_series(src) if is_dpabi_file(path)]
    if not candidates:
        raise BrioError(f"{src}: no file named ROISignals_*.mat or ROISignals_*.txt below it")
    originals = {p.with_suffix("") for p in candidates if p.suffix.lower() == ".mat"}
    files: dict[str, Path] = {}
    skipped: list[Skipped] = []
    unlabelled: list[Skipped] = []
    for path in candidates:
        if path.suffix.lower() == ".txt" and path.with_suffix("") in originals:
            continue
        participant = path.stem.removeprefix(PREFIX)
        label = _parse_name(participant)
        if not label:
            reason = "the file's name is not ROISignals_S<site>-<group>-<number>"
        elif label["label"] is None:
            reason = "the group in the file's name is neither 1 (MDD) nor 2 (HC)"
        else:
            reason = None
        if reason is not None and labels_required:
            skipped.append(describe_skipped(participant if label else path.stem, reason))
            continue
        if participant in files:
            raise BrioError(f"{path}: participant {participant} is also at {files[participant]}; import one folder")
        files[participant] = path
        if reason is not None:
            unlabelled.append(describe_skipped(participant, reason))
    return files, skipped, unlabelled


def _match_covariates(
    table: TextTable | None, files: dict[str, Any], skipped: list[Skipped], id_column: str | None
) -> tuple[dict[str, dict[str, str | None]], list[str], dict[str, str]]:
    """Match covariates to participants. Rows without a file are added to ``skipped``.

    Returns covariates, participants without any, and the column of the table for each that is spelt otherwise.
    """
    if table is None:
        return {}, [], {}
    column = id_column or next((c for c in table.columns if c.lower() in ID_COLUMNS), None)
    if column is None:
        raise BrioError(
            f"{table.path}: no column of identifiers ({', '.join(ID_COLUMNS)}); it has {', '.join(table.columns)}; "
            "--id-column can name another"
        )
    rows = dict(zip(table.read_ids(column, option="--id-column"), table.rows, strict=True))
    skipped += [describe_skipped(p, "no file ROISignals_<ID>") for p in rows if p not in files]
    names = find_covariates(table.columns, table.path, taken=[column])
    covariates = {participant: extract_covariates(row, {column}, names) for participant, row in rows.items()}
    renamed = {ours: theirs for theirs, ours in names.items()}
    return covariates, [participant for participant in files if participant not in rows], renamed


def _read_scans(
    scans: Iterator[tuple[dict[str, Any], Path]], atlas: str
) -> Iterator[tuple[dict[str, Any], Path, Series]]:
    """Read the columns of one atlas from each file."""
    first, last = ATLAS_COLUMNS[atlas]
    for row, path in scans:
        frames = read_series(path, variable="ROISignals").frames
        n_columns = frames.shape[1]
        if n_columns < last or (n_columns < MIN_COLUMNS and n_columns not in OLDER_COLUMNS):
            raise BrioError(
                f"{path}: has {n_columns} columns, {atlas} is in columns {first} to {last} of the {MIN_COLUMNS} that "
                "DPARSF 4.3 writes; extract the signals again with a current version"
            )
        yield row, path, Series(frames[:, first - 1 : last])

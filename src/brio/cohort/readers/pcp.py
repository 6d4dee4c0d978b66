"""ABIDE as the Preprocessed Connectomes Project lays it out: a phenotypic csv and ``<FILE_ID>_rois_<atlas>.1D``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...errors import BrioError
from ..cohort import Cohort
from .assembly import canonical, choose, describe, source_folder, write_scans
from .participants import Table, read_participants, skip
from .series import Series, find_series, read_series

__all__ = ["read_pcp"]

NAME = re.compile(r"(?P<file_id>.+)_rois_(?P<atlas>[A-Za-z0-9]+)\.1D", re.IGNORECASE)
NO_SCAN = "no_filename"
LABELS = {"1": 1, "2": 0}  # DX_GROUP: 1 autism, 2 control
COVARIATES = {
    "age": "AGE_AT_SCAN",
    "sex": "SEX",
    "mean_fd": "func_mean_fd",
    "fiq": "FIQ",
    "viq": "VIQ",
    "piq": "PIQ",
    "handedness": "HANDEDNESS_CATEGORY",
    "eye_status": "EYE_STATUS_AT_SCAN",
}
CODES = {"sex": {"1": "M", "2": "F"}, "eye_status": {"1": "open", "2": "closed"}}


def read_pcp(
    src: str | Path,
    out: str | Path,
    *,
    atlas: str | None = None,
    participants: str | Path | None = None,
    name: str | None = None,
) -> Cohort:
    """Import ABIDE of the Preprocessed Connectomes Project.

    Parameters
    ----------
    src : str or Path
        Folder with ``{FILE_ID}_rois_{atlas}.1D`` anywhere below.
    out : str or Path
        The cohort folder to write.
    atlas : str, optional
        ``aal`` (also ``aal116``), ``cc200``, or any other in the names; may be left out where there is one only.
        The header of each file is checked against the bundled table of AAL and CC200, and permuted columns are
        put in its order.
    participants : str or Path, optional
        The phenotypic csv; by default the one ``*henotypic*.csv`` below ``src``.
    name : str, optional
        Name of the cohort.

    Returns
    -------
    Cohort
        ``DX_GROUP`` 1 is label 1 (ASD), 2 is label 0 (TD).
    """
    src = source_folder(src)
    files = [(m, path) for path in find_series(src) if (m := NAME.fullmatch(path.name))]
    if not files:
        raise BrioError(f"{src}: no file named <FILE_ID>_rois_<atlas>.1D below it")
    label = choose((m["atlas"] for m, _ in files), atlas, src)
    by_id: dict[str, Path] = {}
    for match, path in files:
        if match["atlas"] == label:
            other = by_id.setdefault(match["file_id"], path)
            if other != path:
                raise BrioError(f"{path}: also at {other}; point at one pipeline's folder and pass --participants")
    table = read_participants(_phenotypic(src, participants))
    scans, skipped = _match(table, by_id, f"no file *_rois_{label}.1D")
    known = canonical(label)
    options = {"atlas": label, "participants": participants and Path(participants)}
    return write_scans(
        out,
        _read(scans),
        atlas=known,
        name=name or f"abide-{known}",
        classes=("TD", "ASD"),
        provenance=describe("pcp", src, options, len(scans), skipped),
        strictness="names",
    )


def _phenotypic(src: Path, named: str | Path | None) -> Path:
    if named is not None:
        if not Path(named).is_file():
            raise BrioError(f"{named}: no such phenotypic table")
        return Path(named)
    found = sorted(src.glob("*henotypic*.csv")) or sorted(src.rglob("*henotypic*.csv"))
    if len(found) != 1:
        what = f"{found[0].name} and {found[1].name} are both there" if found else "no *henotypic*.csv below it"
        raise BrioError(f"{src}: {what}; say which table with --participants")
    return found[0]


def _match(
    table: Table, by_id: dict[str, Path], no_file: str
) -> tuple[list[tuple[dict[str, Any], Path]], list[dict[str, str]]]:
    """Rows with their files, in the order of the table, and what has no counterpart."""
    for column in ("FILE_ID", "SITE_ID", "DX_GROUP"):
        table.require(column)
    scans: list[tuple[dict[str, Any], Path]] = []
    skipped = []
    seen: set[str] = set()
    for number, row in enumerate(table.rows, start=1):
        file_id = row["FILE_ID"]
        if file_id is None or file_id == NO_SCAN:
            skipped.append(
                skip(row.get("SUB_ID") or f"row {number}", f"the release has no scan (FILE_ID is {NO_SCAN})")
            )
            continue
        if file_id in seen:
            raise BrioError(f"{table.path}: participant {file_id} appears more than once in FILE_ID; keep one row")
        seen.add(file_id)
        if file_id not in by_id:
            skipped.append(skip(file_id, no_file))
        else:
            scans.append((_person(row, file_id, table.path), by_id[file_id]))
    skipped += [skip(file_id, f"no row in {table.path.name}") for file_id in sorted(set(by_id) - seen)]
    return scans, skipped


def _person(row: dict[str, str | None], file_id: str, path: Path) -> dict[str, Any]:
    label = LABELS.get(row["DX_GROUP"] or "")
    if label is None:
        raise BrioError(
            f"{path}: participant {file_id} has DX_GROUP '{row['DX_GROUP']}'; 1 (autism) or 2 (control) is needed"
        )
    person: dict[str, Any] = {"participant_id": file_id, "site": row["SITE_ID"], "label": label}
    for ours, theirs in COVARIATES.items():
        value = row.get(theirs)
        if value is not None and value.removesuffix(".0") == "-9999":  # how the release writes a missing value
            value = None
        if ours in CODES:
            value = CODES[ours].get(value or "")
        person[ours] = value
    return person


def _read(scans: list[tuple[dict[str, Any], Path]]) -> Iterator[tuple[dict[str, Any], Path, Series]]:
    for person, path in scans:
        yield person, path, read_series(path)

"""Read ABIDE of the Preprocessed Connectomes Project: a phenotypic csv and files ``<FILE_ID>_rois_<atlas>.1D``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...errors import BrioError
from ..cohort import Cohort
from .assembly import (
    Skipped,
    canonicalise_atlas_name,
    check_source_folder,
    choose_atlas_label,
    describe_import,
    write_scans,
)
from .participants import TextTable, describe_skipped, read_participants
from .series import Series, find_series, read_series

__all__ = ["read_pcp"]

NAME = re.compile(r"(?P<file_id>.+)_rois_(?P<atlas>[A-Za-z0-9]+)\.1D", re.IGNORECASE)
NO_SCAN = "no_filename"
"""FILE_ID of participants without a scan in the release."""
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
"""Column of the release for each covariate."""
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
        Folder with files ``{FILE_ID}_rois_{atlas}.1D``, in any subfolder.
    out : str or Path
        Cohort folder to write.
    atlas : str, optional
        ``aal`` (also ``aal116``), ``cc200``, or any other in the file names; required if there are several. For AAL
        and CC200 the header of each file is checked against the bundled table, and the columns are brought into its
        order.
    participants : str or Path, optional
        The phenotypic csv; by default the only ``*henotypic*.csv`` below ``src``.
    name : str, optional
        Name of the cohort; ``abide-<atlas>`` by default.

    Returns
    -------
    Cohort
        ``DX_GROUP`` 1 is label 1 (ASD), 2 is label 0 (TD).
    """
    src = check_source_folder(src)
    files = [(m, path) for path in find_series(src) if (m := NAME.fullmatch(path.name))]
    if not files:
        raise BrioError(f"{src}: no file named <FILE_ID>_rois_<atlas>.1D below it")
    label = choose_atlas_label((m["atlas"] for m, _ in files), atlas, src)
    by_id: dict[str, Path] = {}
    for match, path in files:
        if match["atlas"] == label:
            other = by_id.setdefault(match["file_id"], path)
            if other != path:
                raise BrioError(f"{path}: also at {other}; import the folder of one pipeline and give --participants")
    table = read_participants(_find_phenotypic(src, participants))
    scans, skipped = _match_files(table, by_id, f"no file *_rois_{label}.1D")
    atlas_name = canonicalise_atlas_name(label)
    options = {"atlas": label, "participants": participants and Path(participants)}
    return write_scans(
        out,
        _read_scans(scans),
        atlas=atlas_name,
        name=name or f"abide-{atlas_name}",
        classes=("TD", "ASD"),
        provenance=describe_import("pcp", src, options, len(scans), skipped),
        strictness="names",
    )


def _find_phenotypic(src: Path, requested: str | Path | None) -> Path:
    if requested is not None:
        if not Path(requested).is_file():
            raise BrioError(f"{requested}: no such phenotypic table")
        return Path(requested)
    paths = sorted(src.glob("*henotypic*.csv")) or sorted(src.rglob("*henotypic*.csv"))
    if len(paths) != 1:
        problem = f"{paths[0].name} and {paths[1].name} are both there" if paths else "no *henotypic*.csv below it"
        raise BrioError(f"{src}: {problem}; name the table with --participants")
    return paths[0]


def _match_files(
    table: TextTable, by_id: dict[str, Path], no_file: str
) -> tuple[list[tuple[dict[str, Any], Path]], list[Skipped]]:
    """Match rows with their files, in the order of the table, and list what has no counterpart."""
    for column in ("FILE_ID", "SITE_ID", "DX_GROUP"):
        table.require_column(column)
    scans: list[tuple[dict[str, Any], Path]] = []
    skipped: list[Skipped] = []
    seen: set[str] = set()
    for number, row in enumerate(table.rows, start=1):
        file_id = row["FILE_ID"]
        if file_id is None or file_id == NO_SCAN:
            skipped.append(
                describe_skipped(
                    row.get("SUB_ID") or f"row {number}", f"the release has no scan (FILE_ID is {NO_SCAN})"
                )
            )
            continue
        if file_id in seen:
            raise BrioError(f"{table.path}: participant {file_id} appears more than once in FILE_ID; keep one row")
        seen.add(file_id)
        if file_id not in by_id:
            skipped.append(describe_skipped(file_id, no_file))
        else:
            scans.append((_convert_row(row, file_id, table.path), by_id[file_id]))
    skipped += [describe_skipped(file_id, f"no row in {table.path.name}") for file_id in sorted(set(by_id) - seen)]
    return scans, skipped


def _convert_row(row: dict[str, str | None], file_id: str, path: Path) -> dict[str, Any]:
    """Convert a row of the phenotypic table to one of the participants table."""
    label = LABELS.get(row["DX_GROUP"] or "")
    if label is None:
        raise BrioError(
            f"{path}: participant {file_id} has DX_GROUP '{row['DX_GROUP']}'; 1 (autism) or 2 (control) is needed"
        )
    values: dict[str, Any] = {"participant_id": file_id, "site": row["SITE_ID"], "label": label}
    for ours, theirs in COVARIATES.items():
        value = row.get(theirs)
        if value is not None and value.removesuffix(".0") == "-9999":  # how the release writes a missing value
            value = None
        if ours in CODES:
            value = CODES[ours].get(value or "")
        values[ours] = value
    return values


def _read_scans(scans: list[tuple[dict[str, Any], Path]]) -> Iterator[tuple[dict[str, Any], Path, Series]]:
    for row, path in scans:
        yield row, path, read_series(path)

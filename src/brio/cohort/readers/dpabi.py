"""REST-meta-MDD as DPABI writes it: ``ROISignals_S<site>-<group>-<number>.mat`` with all atlases side by side."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...errors import BrioError, nearest
from ..cohort import Cohort
from .assembly import canonical, describe, source_folder, write_scans
from .participants import Table, covariates, find_table, read_participants, skip
from .series import Series, find_series, read_series

__all__ = ["COLUMNS", "read_dpabi"]

COLUMNS = {
    "aal116": (1, 116),
    "ho-cortical": (117, 212),
    "ho-subcortical": (213, 228),
    "cc200": (229, 428),
    "zalesky980": (429, 1408),
    "dosenbach160": (1409, 1568),
    "power264": (1570, 1833),
}
"""First and last column of each atlas, counted from 1; column 1569 is the global signal."""

RELEASED = 1833
"""Columns since DPARSF 4.3; later versions append further atlases."""
EARLIER = (1568, 1569)
"""Columns before Power264 (DPARSF 4.2) and before the global signal; other counts are the user's own ROI list."""

NAME = re.compile(r"ROISignals_(?P<id>S(?P<site>\d+)-(?P<group>\d+)-\d+)", re.IGNORECASE)
LABELS = {"1": 1, "2": 0}  # group: 1 MDD, 2 HC
ID_COLUMNS = ("participant_id", "id", "subid", "subject_id", "subject")


def read_dpabi(
    src: str | Path,
    out: str | Path,
    *,
    atlas: str,
    participants: str | Path | None = None,
    name: str | None = None,
) -> Cohort:
    """Import ROI signals of REST-meta-MDD.

    Parameters
    ----------
    src : str or Path
        Folder with ``ROISignals_S<site>-<group>-<number>.mat`` (or ``.txt``) anywhere below. The site and the label
        are in the name: group 1 is MDD (label 1), group 2 HC (label 0).
    out : str or Path
        The cohort folder to write.
    atlas : str
        Which columns to take: aal116, ho-cortical, ho-subcortical, cc200, zalesky980, dosenbach160 or power264.
    participants : str or Path, optional
        A csv or tsv table of covariates with a column ``ID`` (or participant_id, SubID, subject).
    name : str, optional
        Name of the cohort.
    """
    src = source_folder(src)
    known = canonical(atlas).lower()
    if known not in COLUMNS:
        raise BrioError(f"no columns are known for atlas '{atlas}' in DPABI's files, {nearest(known, COLUMNS)}")
    files, skipped = _find(src)
    table = None if participants is None else read_participants(find_table(src, participants))
    extra, without = _covariates(table, files, skipped)
    people = [
        {"participant_id": who, "site": f"S{match['site']}", "label": LABELS[match["group"]]} | extra.get(who, {})
        for who, (match, _) in files.items()
    ]
    options = {"atlas": known, "participants": participants and Path(participants)}
    provenance = describe("dpabi", src, options, len(files), skipped)
    if without:
        provenance["without_covariates"] = without
    return write_scans(
        out,
        _read(zip(people, (path for _, path in files.values()), strict=True), known),
        atlas=known,
        name=name or f"rest-meta-mdd-{known}",
        classes=("HC", "MDD"),
        provenance=provenance,
    )


def _find(src: Path) -> tuple[dict[str, tuple[re.Match[str], Path]], list[dict[str, str]]]:
    """Files by participant; the txt beside a mat of the same name is its copy."""
    candidates = [
        p for p in find_series(src) if p.name.startswith("ROISignals_") and p.suffix.lower() in (".mat", ".txt")
    ]
    if not candidates:
        raise BrioError(f"{src}: no file named ROISignals_*.mat or ROISignals_*.txt below it")
    originals = {p.with_suffix("") for p in candidates if p.suffix.lower() == ".mat"}
    files: dict[str, tuple[re.Match[str], Path]] = {}
    skipped = []
    for path in candidates:
        if path.suffix.lower() == ".txt" and path.with_suffix("") in originals:
            continue
        match = NAME.fullmatch(path.stem)
        if match is None:
            skipped.append(skip(path.stem, "the file's name is not ROISignals_S<site>-<group>-<number>"))
        elif match["group"] not in LABELS:
            skipped.append(skip(match["id"], "the group in the file's name is neither 1 (MDD) nor 2 (HC)"))
        elif match["id"] in files:
            raise BrioError(
                f"{path}: participant {match['id']} is also at {files[match['id']][1]}; point at one folder"
            )
        else:
            files[match["id"]] = (match, path)
    return files, skipped


def _covariates(
    table: Table | None, files: dict[str, Any], skipped: list[dict[str, str]]
) -> tuple[dict[str, dict[str, str | None]], list[str]]:
    """Covariates by participant, and the participants that have none; rows without a file go to ``skipped``."""
    if table is None:
        return {}, []
    column = next((c for c in table.columns if c.lower() in ID_COLUMNS), None)
    if column is None:
        raise BrioError(
            f"{table.path}: no column of identifiers ({', '.join(ID_COLUMNS)}); it has {', '.join(table.columns)}"
        )
    rows = dict(zip(table.ids(column), table.rows, strict=True))
    skipped += [skip(who, "no file ROISignals_<ID>") for who in rows if who not in files]
    return {who: covariates(row, {column}) for who, row in rows.items()}, [who for who in files if who not in rows]


def _read(scans: Iterator[tuple[dict[str, Any], Path]], atlas: str) -> Iterator[tuple[dict[str, Any], Path, Series]]:
    first, last = COLUMNS[atlas]
    for person, path in scans:
        frames = read_series(path, variable="ROISignals").frames
        n = frames.shape[1]
        if n < last or (n < RELEASED and n not in EARLIER):
            raise BrioError(
                f"{path}: has {n} columns, {atlas} is in columns {first} to {last} of the {RELEASED} that DPARSF 4.3 "
                "writes; extract the signals again with a current version"
            )
        yield person, path, Series(frames[:, first - 1 : last])

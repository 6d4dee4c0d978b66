"""A participants table and one file a scan: the layout of everyone who has no layout."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ...errors import BrioError
from ..cohort import Cohort
from .assembly import canonical, describe, source_folder, write_scans
from .participants import find_table, read_roster, skip
from .series import Series, find_series, read_series, series_stem

__all__ = ["read_files"]


def read_files(
    src: str | Path,
    out: str | Path,
    *,
    atlas: str | None = None,
    participants: str | Path | None = None,
    site_column: str | None = None,
    label_column: str | None = None,
    patient: str | None = None,
    control: str | None = None,
    name: str | None = None,
) -> Cohort:
    """Import a table of participants and one time-series file a participant.

    Parameters
    ----------
    src : str or Path
        Folder with the files: npy, npz, csv, tsv, txt, mat, 1D or ptseries.nii, rows are frames. The file of a
        participant is the one that the column ``file`` of the table names (relative to ``src``); without such a
        column the one anywhere below whose name is the participant_id, or starts with it and goes on with a
        character that is neither letter nor digit.
    out : str or Path
        The cohort folder to write.
    atlas : str, optional
        Name of the parcellation; ROI names and coordinates come along for ``aal116`` and ``cc200``.
    participants : str or Path, optional
        The table (tsv or csv, column ``participant_id``); by default participants.tsv or .csv in ``src``.
    site_column, label_column : str, optional
        Columns of the site and the label, ``site`` and ``label`` by default.
    patient, control : str, optional
        Values of the label column for 1 and 0; needed unless the column holds 0 and 1.
    name : str, optional
        Name of the cohort.
    """
    src = source_folder(src)
    path = find_table(src, participants)
    roster = read_roster(path, site_column=site_column, label_column=label_column, patient=patient, control=control)
    if any("file" in row for row in roster.rows):
        scans, skipped = _by_column(roster.rows, src)
    else:
        files = [f for f in find_series(src) if f.resolve() != path.resolve()]
        scans, skipped = _by_name(roster.rows, files, {s["participant_id"] for s in roster.skipped}, path.name)
    known = None if atlas is None else canonical(atlas)
    options = {
        "atlas": known,
        "participants": path,
        "site_column": site_column,
        "label_column": label_column,
        "patient": patient,
        "control": control,
    }
    return write_scans(
        out,
        _read(scans),
        atlas=known or "unknown",
        name=name or src.resolve().name,
        classes=roster.classes,
        provenance=describe("table", src, options, len(scans), roster.skipped + skipped),
        strictness="count",
    )


Scans = list[tuple[dict[str, Any], Path]]


def _by_column(rows: list[dict[str, Any]], src: Path) -> tuple[Scans, list[dict[str, str]]]:
    scans: Scans = []
    skipped = []
    owner: dict[Path, str] = {}
    for row in rows:
        person = {k: v for k, v in row.items() if k != "file"}
        who, file = row["participant_id"], row["file"]
        if file is None:
            skipped.append(skip(who, "no file in column 'file'"))
        elif not (src / file).is_file():
            skipped.append(skip(who, "the file that column 'file' names is not there", file=file))
        elif (other := owner.setdefault((src / file).resolve(), who)) != who:
            raise BrioError(f"{src / file}: column 'file' names it for both {other} and {who}")
        else:
            scans.append((person, src / file))
    return scans, skipped


def _by_name(
    rows: list[dict[str, Any]], files: list[Path], left_out: set[str], table: str
) -> tuple[Scans, list[dict[str, str]]]:
    """Match files to rows; ``left_out`` are participants whose row was skipped, so that their files are no surprise."""
    exact, starting = defaultdict(list), defaultdict(list)
    for file in files:
        stem = series_stem(file)
        exact[stem].append(file)
        for start in _starts(stem):
            starting[start].append(file)
    scans: Scans = []
    skipped = []
    owner: dict[Path, str] = {}
    for row in rows:
        who = row["participant_id"]
        found = exact.get(who) or starting.get(who) or []
        if len(found) > 1:
            raise BrioError(
                f"participant {who}: {found[0]} and {found[1]} both match; name one in a column 'file' of {table}"
            )
        if not found:
            skipped.append(skip(who, "no file whose name starts with the participant_id"))
        elif found[0] in owner:
            raise BrioError(
                f"{found[0]}: matches both {owner[found[0]]} and {who}; name the files in a column 'file' of {table}"
            )
        else:
            owner[found[0]] = who
            scans.append((row, found[0]))
    taken = set(owner.values())
    for file in files:
        names = {series_stem(file), *_starts(series_stem(file))}
        if file in owner or names & left_out:
            continue
        if names & taken:
            skipped.append(
                skip(max(names & taken), "another file is named exactly after the participant", file=file.name)
            )
        else:
            skipped.append(skip(series_stem(file), f"no row in {table}", file=file.name))
    return scans, skipped


def _starts(stem: str) -> Iterable[str]:
    """Every start of a name that ends where a word ends, so that ``p1`` is not taken for ``p10``."""
    return (stem[:i] for i in range(1, len(stem)) if not stem[i].isalnum())


def _read(scans: Scans) -> Iterator[tuple[dict[str, Any], Path, Series]]:
    for person, path in scans:
        yield person, path, read_series(path)

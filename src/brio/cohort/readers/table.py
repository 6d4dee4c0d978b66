"""Read a participants table and one time-series file per participant: the layout for data without a standard one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ...errors import BrioError
from ..cohort import Cohort
from .assembly import Skipped, canonicalise_atlas_name, check_source, describe_import, write_scans
from .labels import ClassValues
from .participants import Roster, describe_skipped, find_roster
from .rois import RoiChoice
from .series import Series, find_series, get_series_stem, read_series
from .to_predict import ScansToPredict

__all__ = ["read_files"]


def read_files(
    src: str | Path,
    out: str | Path,
    to_predict: ScansToPredict | None = None,
    rois: RoiChoice | None = None,
    *,
    atlas: str | None = None,
    participants: str | Path | None = None,
    site_column: str | None = None,
    label_column: str | None = None,
    patient: ClassValues = None,
    control: ClassValues = None,
    name: str | None = None,
) -> Cohort:
    """Import a participants table and one time-series file per participant.

    Parameters
    ----------
    src : str or Path
        Folder with the files: npy, npz, csv, tsv, txt, mat, 1D or ptseries.nii, with frames in rows. The column
        ``file`` of the table names the file of each participant, relative to ``src``. Without such a column the file
        is found by its name, in any subfolder: the participant_id, alone or followed by a character that is neither a
        letter nor a digit.
    out : str or Path
        Cohort folder to write.
    to_predict : ScansToPredict, optional
        Read scans to be predicted: ``src`` may be one file, and no table is needed. Without one, every file is a scan,
        and its participant_id is the name of the file without suffix.
    rois : RoiChoice, optional
        Table of the ROIs, and ROIs to drop.
    atlas : str, optional
        Name of the parcellation; names and coordinates of the ROIs are bundled for ``aal116`` and ``cc200``.
    participants : str or Path, optional
        The table (tsv or csv, column ``participant_id``); by default participants.tsv or .csv in ``src``.
    site_column, label_column : str, optional
        Columns of the site and the label, ``site`` and ``label`` by default.
    patient, control : str or sequence of str, optional
        Values of the label column for 1 and 0; required unless the column holds 0 and 1. Several values make one
        class, and the column is then kept.
    name : str, optional
        Name of the cohort; that of the folder by default.

    Returns
    -------
    Cohort
    """
    src = check_source(src, to_predict)
    columns = {"site_column": site_column, "label_column": label_column, "patient": patient, "control": control}
    path, roster = find_roster(src, participants, to_predict is None, **columns) or (None, Roster([]))
    skipped: list[Skipped] = []
    if path is None:
        scans = _name_by_file(find_series(src))
    elif any("file" in row for row in roster.rows):
        scans, skipped = _match_by_column(roster.rows, src if src.is_dir() else src.parent)
        if src.is_file():
            scans = [(row, file) for row, file in scans if file.resolve() == src.resolve()]
    else:
        files = [f for f in find_series(src) if f.resolve() != path.resolve()]
        scans, skipped = _match_by_name(
            roster.rows, files, {entry["participant_id"] for entry in roster.skipped}, path.name
        )
    atlas_name = None if atlas is None else canonicalise_atlas_name(atlas)
    options = {"atlas": atlas_name, "participants": path, **columns}
    return write_scans(
        out,
        _read_scans(scans),
        atlas=atlas_name or "unknown",
        name=name or src.resolve().name,
        classes=roster.classes,
        provenance=describe_import("table", src, options, len(scans), roster.skipped + skipped, roster.unlabelled),
        strictness="count",
        to_predict=to_predict,
        rois=rois,
    )


Scans = list[tuple[dict[str, Any], Path]]


def _name_by_file(files: list[Path]) -> Scans:
    """Make a participant of each file, called by its name without suffix."""
    owner: dict[str, Path] = {}
    for file in files:
        other = owner.setdefault(get_series_stem(file), file)
        if other is not file:
            raise BrioError(
                f"{file}: has the name of {other}, so that both would be participant '{get_series_stem(file)}'; "
                "rename one of them"
            )
    return [({"participant_id": participant}, file) for participant, file in owner.items()]


def _match_by_column(rows: list[dict[str, Any]], src: Path) -> tuple[Scans, list[Skipped]]:
    """Match rows with the files that their column ``file`` names."""
    scans: Scans = []
    skipped: list[Skipped] = []
    owner: dict[Path, str] = {}
    for row in rows:
        participant, file = row["participant_id"], row["file"]
        if file is None:
            skipped.append(describe_skipped(participant, "no file in column 'file'"))
        elif not (src / file).is_file():
            skipped.append(describe_skipped(participant, "the file that column 'file' names is not there", file=file))
        elif (other := owner.setdefault((src / file).resolve(), participant)) != participant:
            raise BrioError(f"{src / file}: column 'file' names it for both {other} and {participant}")
        else:
            scans.append(({column: value for column, value in row.items() if column != "file"}, src / file))
    return scans, skipped


def _match_by_name(
    rows: list[dict[str, Any]], files: list[Path], skipped_ids: set[str], table: str
) -> tuple[Scans, list[Skipped]]:
    """Match rows with files by name; files of participants in ``skipped_ids`` are not reported as unmatched."""
    by_stem, by_prefix = defaultdict(list), defaultdict(list)
    for file in files:
        stem = get_series_stem(file)
        by_stem[stem].append(file)
        for prefix in _list_prefixes(stem):
            by_prefix[prefix].append(file)
    scans: Scans = []
    skipped: list[Skipped] = []
    owner: dict[Path, str] = {}
    for row in rows:
        participant = row["participant_id"]
        candidates = by_stem.get(participant) or by_prefix.get(participant) or []
        if len(candidates) > 1:
            raise BrioError(
                f"participant {participant}: {candidates[0]} and {candidates[1]} both match; "
                f"name one in a column 'file' of {table}"
            )
        if not candidates:
            skipped.append(describe_skipped(participant, "no file whose name starts with the participant_id"))
        elif candidates[0] in owner:
            raise BrioError(
                f"{candidates[0]}: matches both {owner[candidates[0]]} and {participant}; "
                f"name the files in a column 'file' of {table}"
            )
        else:
            owner[candidates[0]] = participant
            scans.append((row, candidates[0]))
    matched = set(owner.values())
    for file in files:
        stem = get_series_stem(file)
        names = {stem, *_list_prefixes(stem)}
        if file in owner or names & skipped_ids:
            continue
        if names & matched:
            reason = "another file is named exactly after the participant"
            skipped.append(describe_skipped(max(names & matched), reason, file=file.name))
        else:
            skipped.append(describe_skipped(stem, f"no row in {table}", file=file.name))
    return scans, skipped


def _list_prefixes(stem: str) -> Iterable[str]:
    """List the starts of a name that end where a word ends, so that ``p1`` does not match ``p10``."""
    return (stem[:i] for i in range(1, len(stem)) if not stem[i].isalnum())


def _read_scans(scans: Scans) -> Iterator[tuple[dict[str, Any], Path, Series]]:
    for row, path in scans:
        yield row, path, read_series(path)

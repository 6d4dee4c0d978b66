"""Read a participants table and one time-series file per participant: the layout for data without a standard one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ...errors import BrioError
from ..cohort import Cohort
from ..given_fc import is_fc
from ..sessions import name_scan
from .assembly import Skipped, canonicalise_atlas_name, check_source, describe_import, write_scans
from .input_files import is_regular
from .labels import ClassValues
from .participants import Roster, describe_skipped, find_roster
from .rois import RoiChoice
from .series import Series, find_series, get_series_stem, read_series
from .sessions import check_sessions_option, choose_sessions, read_chosen
from .to_predict import ScansToPredict

__all__ = ["import_files", "read_files"]


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
    session_column: str | None = None,
    sessions: str | None = None,
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
    session_column : str, optional
        Column that tells apart the scans of a participant with several rows, ``session`` by default. Without a column
        ``file``, the file of such a scan starts with the participant_id and the session, as ``p1_2`` or ``p1_ses-2``.
    sessions : {"first", "join", "average", "all"}, optional
        What becomes of participants with several rows, in the order of the table: see
        :func:`~brio.cohort.readers.sessions.choose_sessions`. Required if there are any; scans to predict are all read
        by default.
    name : str, optional
        Name of the cohort; that of the folder by default.

    Returns
    -------
    Cohort
    """
    options = {"atlas": atlas, "session_column": session_column, "sessions": sessions, "name": name}
    columns = {"site_column": site_column, "label_column": label_column, "patient": patient, "control": control}
    return import_files("table", src, out, to_predict, rois, participants, columns, options, _read_file)


def import_files(
    kind: str,
    src: str | Path,
    out: str | Path,
    to_predict: ScansToPredict | None,
    rois: RoiChoice | None,
    participants: str | Path | None,
    columns: dict[str, Any],
    options: dict[str, Any],
    read: Callable[[Path], tuple[Path, Series]],
) -> Cohort:
    """Import a participants table and one file per participant, whatever the files hold.

    Parameters
    ----------
    kind : str
        The reader.
    src, out, to_predict, rois, participants
        As for :func:`read_files`.
    columns : dict
        ``site_column``, ``label_column``, ``patient`` and ``control``.
    options : dict
        ``atlas``, ``session_column``, ``sessions``, ``name``, and others of the reader for the provenance.
    read : function
        Reads a file: its path and its series.

    Returns
    -------
    Cohort
    """
    src = check_source(src, to_predict)
    atlas, session_column, sessions, name = (options.pop(k) for k in ("atlas", "session_column", "sessions", "name"))
    check_sessions_option(sessions)
    found = find_roster(src, participants, to_predict is None, session_column=session_column or "session", **columns)
    path, roster = found or (None, Roster([]))
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
    chosen, further = choose_sessions(scans, sessions or (None if to_predict is None else "all"))
    stated = {"atlas": atlas_name, "participants": path, **columns}
    stated |= {"session_column": session_column, "sessions": sessions, **options}
    n_files = sum(len(files) for _, files in chosen)
    skipped = roster.skipped + skipped + further
    return write_scans(
        out,
        read_chosen(chosen, read, sessions),
        atlas=atlas_name or "unknown",
        name=name or src.resolve().name,
        classes=roster.classes,
        provenance=describe_import(kind, src, stated, n_files, skipped, roster.unlabelled),
        strictness="count",
        connectomes=kind == "fc",
        to_predict=to_predict,
        rois=rois,
    )


Scans = list[tuple[dict[str, Any], Path]]


def _name_row(row: dict[str, Any], repeated: Counter[str]) -> str:
    """Name a row in messages: the participant, with the session where there are several rows."""
    participant = row["participant_id"]
    return f"{participant} (session {row.get('session')})" if repeated[participant] > 1 else participant


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
    n_rows = Counter(row["participant_id"] for row in rows)
    for row in rows:
        participant, file, name = row["participant_id"], row["file"], _name_row(row, n_rows)
        if file is None:
            skipped.append(describe_skipped(participant, "no file in column 'file'"))
        elif not is_regular(src / file):
            skipped.append(describe_skipped(participant, "the file that column 'file' names is not there", file=file))
        elif (other := owner.setdefault((src / file).resolve(), name)) != name:
            raise BrioError(f"{src / file}: column 'file' names it for both {other} and {name}")
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
    n_rows = Counter(row["participant_id"] for row in rows)
    for row in rows:
        participant, name = row["participant_id"], _name_row(row, n_rows)
        starts = _list_starts(row) if n_rows[participant] > 1 else [participant]
        candidates = next((found for start in starts if (found := by_stem.get(start) or by_prefix.get(start))), [])
        if len(candidates) > 1:
            raise BrioError(
                f"participant {name}: {candidates[0]} and {candidates[1]} both match; "
                f"name one in a column 'file' of {table}"
            )
        if not candidates:
            wanted = "the participant_id" if len(starts) == 1 else "participant_id and session"
            skipped.append(describe_skipped(participant, f"no file whose name starts with {wanted}"))
        elif candidates[0] in owner:
            raise BrioError(
                f"{candidates[0]}: matches both {owner[candidates[0]]} and {name}; "
                f"name the files in a column 'file' of {table}"
            )
        else:
            owner[candidates[0]] = name
            scans.append((row, candidates[0]))
    matched = {row["participant_id"] for row, _ in scans}
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


def _list_starts(row: dict[str, Any]) -> list[str]:
    """List how the name of the file of one session may start."""
    participant, session = row["participant_id"], str(row.get("session"))
    return [name_scan(participant, session), f"{participant}_{session}", f"{participant}-{session}"]


def _list_prefixes(stem: str) -> Iterable[str]:
    """List the starts of a name that end where a word ends, so that ``p1`` does not match ``p10``."""
    return (stem[:i] for i in range(1, len(stem)) if not stem[i].isalnum())


def _read_file(path: Path) -> tuple[Path, Series]:
    series = read_series(path)
    if is_fc(series.frames):
        raise BrioError(f"{path}: is a connectome, not a time series; import such files with 'brio import fc'")
    return path, series

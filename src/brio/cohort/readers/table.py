"""Read a participants table and one time-series file per participant: the layout for data without a standard one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...errors import BrioError
from ..cohort import Cohort
from ..given_fc import is_fc
from .assembly import Skipped, canonicalise_atlas_name, check_source, describe_import, write_scans
from .input_files import describe_name
from .labels import ClassValues
from .matching import match_by_column, match_by_name, name_by_file
from .participants import Roster, find_roster
from .rois import RoiChoice
from .series import Series, find_series, read_series
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
        scans = name_by_file(find_series(src))
    elif any("file" in row for row in roster.rows):
        scans, skipped = match_by_column(roster.rows, src if src.is_dir() else src.parent)
        if src.is_file():
            scans = [(row, file) for row, file in scans if file.resolve() == src.resolve()]
    else:
        # not Path.resolve, which stops at a link to itself
        files = [f for f in find_series(src) if os.path.realpath(f) != os.path.realpath(path)]
        scans, skipped = match_by_name(
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
        name=name or describe_name(src.resolve().name),
        classes=roster.classes,
        provenance=describe_import(kind, src, stated, n_files, skipped, roster.unlabelled),
        strictness="count",
        connectomes=kind == "fc",
        to_predict=to_predict,
        rois=rois,
    )


def _read_file(path: Path) -> tuple[Path, Series]:
    series = read_series(path)
    if is_fc(series.frames):
        raise BrioError(f"{path}: is a connectome, not a time series; import such files with 'brio import fc'")
    return path, series

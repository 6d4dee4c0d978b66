"""Read a participants table and one time-series file per participant: the layout for data without a standard one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..cohort import Cohort
from .assembly import Skipped, canonicalise_atlas_name, check_source, describe_import, write_scans
from .column_names import find_column
from .input_files import describe_name
from .matching import match_by_column, match_by_name, name_by_file
from .options import ImportOptions
from .participants import Roster, find_roster
from .series import Series, find_series, read_series
from .sessions import check_sessions_option, choose_sessions, read_chosen


def read_files(src: str | Path, out: str | Path, options: ImportOptions) -> Cohort:
    """Import a participants table and one time-series file per participant."""
    return import_files("table", src, out, options, _read_file)


def import_files(
    kind: str,
    src: str | Path,
    out: str | Path,
    options: ImportOptions,
    read: Callable[[Path], tuple[Path, Series]],
) -> Cohort:
    """Import a participants table and one file per participant, whatever the files hold."""
    src = check_source(src, options)
    sessions, session_column = options.sessions, options.session_column
    check_sessions_option(sessions)
    found = find_roster(
        src,
        options.participants,
        options.labels_required,
        session_column=session_column or "session",
        **options.columns,
    )
    path, roster = found or (None, Roster([]))
    skipped: list[Skipped] = []
    if path is None:
        scans = name_by_file(find_series(src))
    elif any("file" in row for row in _rename_file_column(roster, path)):
        scans, skipped = match_by_column(roster.rows, src if src.is_dir() else src.parent)
        if src.is_file():
            scans = [(row, file) for row, file in scans if file.resolve() == src.resolve()]
    else:
        # not Path.resolve, which stops at a link to itself
        files = [f for f in find_series(src) if os.path.realpath(f) != os.path.realpath(path)]
        scans, skipped = match_by_name(
            roster.rows, files, {entry["participant_id"] for entry in roster.skipped}, path.name
        )
    atlas_name = None if options.atlas is None else canonicalise_atlas_name(options.atlas)
    sessions_or_all = sessions or (None if options.labels_required else "all")
    chosen, further = choose_sessions(scans, sessions_or_all, have_frames=kind != "fc")
    stated = {"atlas": atlas_name, "participants": path, **options.columns}
    stated |= {"session_column": session_column, "sessions": sessions, "measure": options.measure}
    n_files = sum(len(files) for _, files in chosen)
    skipped = roster.skipped + skipped + further
    return write_scans(
        out,
        read_chosen(chosen, read, sessions),
        options,
        atlas=atlas_name or "unknown",
        name=describe_name(src.resolve().name),
        classes=roster.classes,
        provenance=describe_import(kind, src, stated, n_files, skipped, roster.unlabelled, roster.renamed),
        strictness="count",
        connectomes=kind == "fc",
    )


def _rename_file_column(roster: Roster, path: Path) -> list[dict[str, Any]]:
    """Call the column of the files ``file`` where it has other capitals, and return the rows."""
    column = find_column(list(roster.rows[0]) if roster.rows else [], "file", path)
    if roster.rows and column != "file" and column in roster.rows[0]:
        roster.rows[:] = [{"file" if c == column else c: v for c, v in row.items()} for row in roster.rows]
        roster.renamed["file"] = column
    return roster.rows


def _read_file(path: Path) -> tuple[Path, Series]:
    return path, read_series(path)

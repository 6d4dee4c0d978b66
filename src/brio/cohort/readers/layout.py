"""Find the layout of scans to predict from the names of their files."""

from __future__ import annotations

from pathlib import Path

from ...errors import BrioError
from ..folder import ATLAS, FRAMES, HEADER, IMPORT_AGAIN, PARTICIPANTS, name_other_folder
from .bids import parse_name
from .dpabi import is_dpabi_file
from .packed import is_packed_file
from .participants import find_table, has_table, read_participants
from .pcp import is_pcp_file
from .series import SUFFIXES, find_series

LAYOUTS = {
    "cohort": "a cohort folder of brio",
    "pcp": "files <FILE_ID>_rois_<atlas>.1D",
    "dpabi": "files ROISignals_<ID> of DPABI",
    "bids": "time series of BIDS derivatives",
    "table": "one file per scan",
    "packed": "scans packed as 8-bit integers",
}
"""What each layout is, for messages."""


def find_layout(src: Path, participants: str | Path | None = None) -> str:
    """Find the layout of scans to predict."""
    if not src.exists():
        raise BrioError(f"{src}: no such file or folder")
    if (src / HEADER).is_file():
        return "cohort"
    if all((src / name).is_file() for name in (FRAMES, PARTICIPANTS, ATLAS)):
        raise BrioError(f"{src / HEADER}: is missing, though the other files of a cohort are there; {IMPORT_AGAIN}")
    if other := name_other_folder(src):
        raise BrioError(f"{src}: is {other}, not scans; give a cohort folder, one file, or a folder of files")
    files = find_series(src)
    if not files:
        problem = "not a time-series file" if src.is_file() else "no time-series file below it"
        raise BrioError(f"{src}: {problem}; supported: {', '.join(SUFFIXES)}")
    for file in files:
        if file.name == FRAMES and (file.parent / HEADER).is_file():
            raise BrioError(f"{file}: belongs to a cohort and holds all its scans; give the folder {file.parent}")
    has_columns = participants is not None or has_table(src)
    columns = read_participants(find_table(src, participants)).columns if has_columns else []
    if any(column.lower() == "file" for column in columns):
        return "table"
    # an archive of packed scans stands in the folder itself; those of the layout 'table' are many and alike
    archive = next((f for f in files if f.suffix.lower() == ".npz" and (f == src or f.parent == src)), None)
    fits = {
        "pcp": any(is_pcp_file(file) for file in files),
        "dpabi": any(is_dpabi_file(file) for file in files),
        "bids": any(parse_name(file) is not None for file in files),
        "packed": archive is not None and is_packed_file(archive),
    }
    kinds = [kind for kind, fit in fits.items() if fit]
    # the table of 'pcp' has other columns, and 'dpabi' needs none: files with such names may be listed in any table
    if columns and ((kinds == ["pcp"] and "FILE_ID" not in columns) or (kinds == ["dpabi"] and participants is None)):
        kinds.append("table")
    if len(kinds) > 1:
        words = ", ".join(f"'{kind}' ({LAYOUTS[kind]})" for kind in kinds)
        raise BrioError(f"{src}: fits several layouts, {words}; name one with --kind")
    return kinds[0] if kinds else "table"

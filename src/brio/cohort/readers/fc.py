"""Read connectomes instead of time series: one matrix per participant, as files or in one npz archive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import BrioError, nearest
from ..cohort import Cohort
from ..given_fc import MEASURES, Measure, convert_fc, find_measure
from .arrays import list_npz_arrays, read_npz_arrays, read_packed_ids
from .assembly import Skipped, canonicalise_atlas_name, describe_import, write_scans
from .input_files import describe_name
from .options import ImportOptions
from .participants import Roster, describe_skipped, find_roster
from .series import Series, read_series
from .table import import_files

Convert = Callable[[np.ndarray, str], np.ndarray]
"""Converts a matrix to Fisher z; the text says where it comes from."""


def read_fc(src: str | Path, out: str | Path, options: ImportOptions) -> Cohort:
    """Import a participants table and one connectome per participant.

    Methods that re-estimate connectomes or read time series cannot run on such a cohort, and no model is fitted to it.
    """
    measure, sessions = options.measure, options.sessions
    if options.to_predict is not None:
        raise BrioError(f"{src}: connectomes without frames cannot be predicted, since intervals need the frames")
    if measure is not None and measure not in MEASURES:
        raise BrioError(f"--measure {measure}: is unknown; {nearest(measure, MEASURES)}")
    if sessions in ("join", "average"):
        raise BrioError(f"--sessions {sessions}: connectomes without frames are not joined; take first or all")
    convert = _make_converter(next((one for one in MEASURES if one == measure), None))
    if Path(src).is_file():
        return _import_archive(Path(src), out, options, convert)

    def read(path: Path) -> tuple[Path, Series]:
        series = read_series(path)
        return path, replace(series, frames=convert(series.frames, str(path)))

    return import_files("fc", src, out, options, read)


def _make_converter(stated: Measure | None) -> Convert:
    """Return a function that converts matrices of one measure: the stated one, else that of the first matrix."""
    first: list[tuple[Measure, str]] = []

    def convert(matrix: np.ndarray, where: str) -> np.ndarray:
        measure = stated or find_measure(matrix, where)
        first.append((measure, where))
        if measure != first[0][0]:
            raise BrioError(
                f"{where}: seems to hold {measure}, but {first[0][1]} {first[0][0]}; say what all of them hold with "
                "--measure correlation or fisher-z"
            )
        return convert_fc(matrix, measure, where)

    return convert


def _import_archive(src: Path, out: str | Path, options: ImportOptions, convert: Convert) -> Cohort:
    """Import the matrices of one npz file."""
    if src.suffix.lower() != ".npz":
        raise BrioError(f"{src}: is one file; give an npz file with all connectomes, or the folder of their files")
    if (options.sessions, options.session_column) != (None, None):
        raise BrioError(f"{src}: has one connectome per participant; leave out --sessions and --session-column")
    declared = list_npz_arrays(src)
    stacks = [
        key
        for key, array in declared.items()
        if len(array.shape) == 3 and array.shape[1] == array.shape[2] and array.kind in "fiu"
    ]
    if len(stacks) != 1 or "participant_id" not in declared:
        held = ", ".join(f"{key} {'x'.join(map(str, array.shape))}" for key, array in declared.items()) or "nothing"
        raise BrioError(
            f"{src}: holds {held}; it needs one array of numbers (participants, ROIs, ROIs) and 'participant_id'"
        )
    arrays = read_npz_arrays(src, (stacks[0], "participant_id"))
    ids, matrices = read_packed_ids(arrays["participant_id"], src), arrays[stacks[0]]
    if len(ids) != len(matrices) or len(set(ids)) < len(ids):
        raise BrioError(f"{src}: 'participant_id' must name each of the {len(matrices)} connectomes once")
    path, roster = find_roster(src.parent, options.participants, True, **options.columns) or (None, Roster([]))
    position = {participant: i for i, participant in enumerate(ids)}
    rows = [row for row in roster.rows if row["participant_id"] in position]
    listed = [row["participant_id"] for row in roster.rows]
    known = {*listed, *(entry["participant_id"] for entry in roster.skipped)}
    archive, table = describe_name(src.name), "the table" if path is None else path.name
    skipped: list[Skipped] = [describe_skipped(p, f"no connectome in {archive}") for p in listed if p not in position]
    skipped += [describe_skipped(p, f"no row in {table}") for p in ids if p not in known]

    def read() -> Iterator[tuple[dict[str, Any], Path, Series]]:
        for row in rows:
            i = position[row["participant_id"]]
            yield row, src, Series(convert(matrices[i], f"{src}, participant {row['participant_id']}"))

    atlas_name = None if options.atlas is None else canonicalise_atlas_name(options.atlas)
    stated = {"atlas": atlas_name, "participants": path, **options.columns, "measure": options.measure}
    return write_scans(
        out,
        read(),
        options,
        atlas=atlas_name or "unknown",
        name=describe_name(src.stem),
        classes=roster.classes,
        provenance=describe_import("fc", src, stated, 1, roster.skipped + skipped, roster.unlabelled, roster.renamed),
        strictness="count",
        connectomes=True,
    )

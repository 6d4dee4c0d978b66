"""Tables of ROIs that a user gives: a file with names, coordinates and networks, or the name of a known atlas."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from ...errors import BrioError
from ...version import __version__
from ..atlas import Atlas, number_repeated_names
from ..cohort import Cohort
from ..known_atlases import describe_known_atlases, load_known_atlas
from .participants import TextTable, read_participants

TABLE_SUFFIXES = (".tsv", ".csv", ".txt")
"""Suffixes of a table of ROIs."""
OTHER_SUFFIXES = (".nii", ".nii.gz", ".xlsx", ".json", ".mat", ".npy")
"""Suffixes of files that are no table of ROIs, and no names of atlases either."""
KNOWN_COLUMNS = frozenset({"name", "x", "y", "z", "network", "hemi", "code", "index"})
"""Columns that brio reads, in upper or lower case; all others are kept as they are."""

HEMISPHERES = {"l": "L", "lh": "L", "left": "L", "r": "R", "rh": "R", "right": "R"}
"""Spellings of a hemisphere."""

LISTED_NAMES = 8
"""How many of many names a message lists."""


def read_atlas_table(path: str | Path) -> tuple[Atlas, list[str]]:
    """Read a table of ROIs from a file."""
    path = Path(path)
    if not path.is_file():
        raise BrioError(f"{path}: no such table of ROIs")
    table = read_participants(path)
    renamed_columns = {c: c.lower() if c.lower() in KNOWN_COLUMNS else c for c in table.columns if c}
    known = set(renamed_columns.values())
    if "name" not in known:
        raise BrioError(
            f"{path}: there is no column 'name', it has {', '.join(renamed_columns)}; call the column with the names "
            "of the ROIs 'name'"
        )
    axes = [axis for axis in "xyz" if axis in known]
    if len(axes) in (1, 2):
        raise BrioError(f"{path}: has a column '{axes[0]}', but not all of x, y and z; give all three or none")
    columns: dict[str, list[str | None] | np.ndarray] = {
        new: [row[old] for row in table.rows] for old, new in renamed_columns.items()
    }
    names = columns.pop("name")
    for number, name in enumerate(names, start=1):
        if name is None:
            raise BrioError(f"{path}: column 'name' is empty in row {number}; every ROI needs a name")
    for axis in axes:
        columns[axis] = _parse_coordinates(table, axis, list(columns[axis]))
    if "hemi" in columns:
        columns["hemi"] = [HEMISPHERES.get(str(value).lower(), value) for value in columns["hemi"]]
    numbered, repeated = number_repeated_names(map(str, names))
    atlas = Atlas(path.stem, pd.DataFrame({"name": numbered, **columns}))
    warnings = describe_renamed(repeated, f"{path}: rows")
    gaps = atlas.rois["name"][atlas.rois[axes].isna().any(axis=1)].tolist() if axes else []
    if gaps:
        warnings.append(f"{path}: no coordinates of {list_names(gaps)}, so no figure shows the brain")
    return atlas, warnings


def _parse_coordinates(table: TextTable, axis: str, values: list[str | None]) -> np.ndarray:
    """Parse a column of coordinates; NaN where one is missing. Shape [P]."""
    numbers = np.full(len(values), np.nan)
    for row, value in enumerate(values):
        if value is None:
            continue
        try:
            numbers[row] = float(value)
        except ValueError:
            raise BrioError(
                f"{table.path}: column '{axis}' holds '{value}' in row {row + 1}; write MNI coordinates in mm, with a "
                "decimal point"
            ) from None
    if np.isinf(numbers).any():
        raise BrioError(f"{table.path}: column '{axis}' holds an infinite coordinate; write MNI coordinates in mm")
    return numbers


def describe_renamed(renamed: dict[str, list[str]], where: str) -> list[str]:
    """Describe which repeated names were numbered, for a warning."""
    if not renamed:
        return []
    words = list_names([f"{name} -> {', '.join(new)}" for name, new in renamed.items()], "; ")
    return [f"{where} with the same name were numbered in their order: {words}"]


def list_names(names: list[str], separator: str = ", ") -> str:
    """List names for a message, the first few of many."""
    rest = len(names) - LISTED_NAMES
    return separator.join(names[:LISTED_NAMES]) + (f" and {rest} more" if rest > 0 else "")


def load_atlas(table: str | Path) -> tuple[Atlas, list[str]]:
    """Load a table of ROIs: a file, or a known atlas by its name."""
    path = Path(table)
    if path.is_file() or path.suffix.lower() in TABLE_SUFFIXES:
        return read_atlas_table(path)
    atlas = load_known_atlas(str(table))
    if atlas is None:
        raise BrioError(f"{table}: neither a file nor a known atlas; known: {describe_known_atlases()}")
    return atlas, []


def refuse_file_as_name(atlas: str | None) -> None:
    """Raise :class:`BrioError` if the name of an atlas is that of a file.

    Files are not taken as tables here, since in most layouts ``--atlas`` selects the scans to read.
    """
    if atlas is None:
        return
    if atlas.lower().endswith(TABLE_SUFFIXES):
        raise BrioError(f"--atlas takes the name of an atlas, not a file; give the table with --atlas-table {atlas}")
    if atlas.lower().endswith(OTHER_SUFFIXES):
        raise BrioError(
            f"--atlas takes the name of an atlas, not a file like {atlas}; names and coordinates of its regions are "
            "given as a table with --atlas-table (columns name, x, y, z, network)"
        )


def suggest_rois(name: str, names: Iterable[str]) -> str:
    """Suggest up to three names that are near one, or list the first of them."""
    names = list(names)
    spelling = {known.lower(): known for known in reversed(names)}
    close = difflib.get_close_matches(name.lower(), spelling, n=3, cutoff=0.6)
    return f"near it: {', '.join(spelling[known] for known in close)}" if close else f"there are {list_names(names)}"


def add_atlas(cohort: Cohort, table: str | Path, out: str | Path, by_order: bool = False) -> tuple[Cohort, list[str]]:
    """Write a cohort again with names, coordinates and networks of its ROIs.

    Rows of the table are found by the names of the ROIs (columns ``name``, ``code``, ``index`` of the table), or by
    their order if the ROIs have no names. Frames, participants and the order of the ROIs stay.
    """
    atlas, warnings = load_atlas(table)
    own = cohort.atlas
    if by_order or own.is_unnamed:
        if len(atlas) != cohort.n_rois:
            raise BrioError(
                f"{table}: has {len(atlas)} ROIs, the cohort '{cohort.name}' has {cohort.n_rois}; a table that is "
                "taken by order needs one row per ROI"
            )
        rois, matched_by = atlas.rois, "order"
        if not own.is_unnamed:
            rois = rois.assign(name=own.rois["name"].to_numpy())
    else:
        names = own.rois["name"].astype(str).tolist()
        match = atlas.find_rows(names)
        if match is None:
            known = atlas.rois["name"].tolist()
            absent = next(name for name in names if name not in known)
            raise BrioError(
                f"{table}: has no ROI '{absent}' of the cohort '{cohort.name}' ({suggest_rois(absent, known)}); "
                "correct the name, or give --by-order if the rows stand in the order of the ROIs"
            )
        rows, matched_by = match
        rois = atlas.rois.iloc[rows].reset_index(drop=True)
    rois = rois.assign(**{column: own.rois[column].to_numpy() for column in own.rois.columns.difference(rois.columns)})
    added = {"table": Path(table).name, "matched_by": matched_by, "brio": __version__}
    named = Atlas(atlas.name if own.name == "unknown" else own.name, rois)
    return replace(cohort, atlas=named, provenance={**cohort.provenance, "atlas_added": added}).save(out), warnings

"""Which ROI each column of a file is."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from ...errors import BrioError
from ...formatting import format_count
from ...version import __version__
from ..atlas import (
    KNOWN_ATLASES,
    Atlas,
    load_bundled_atlas,
    load_known_atlas,
    number_repeated_names,
    number_rois,
)
from ..cohort import Cohort
from ..values import read_numbers, shorten_list
from .participants import ImportOptions, Layout, TextTable, read_participants
from .series import TEXT, Series, get_series_suffix, read_json_object

TABLE_SUFFIXES = (".tsv", ".csv", ".txt")  # suffixes of a table of ROIs
# Suffixes of files that are no table of ROIs, and no names of atlases either.
OTHER_SUFFIXES = (".nii", ".nii.gz", ".xlsx", ".json", ".mat", ".npy")
# Columns that brio reads, in upper or lower case; all others are kept as they are.
KNOWN_COLUMNS = frozenset({"name", "x", "y", "z", "network", "hemi", "code", "index"})

# Columns of XCP-D and MIST, and what they stand for where the table has no column of that name.
OTHER_COLUMNS = (("label", "name"), ("label", "code"), ("roi", "index"), ("network_label", "network"))
HEMISPHERES = {"l": "L", "lh": "L", "left": "L", "r": "R", "rh": "R", "right": "R"}  # spellings of a hemisphere


def read_atlas_table(path: str | Path) -> tuple[Atlas, list[str]]:
    """Read a table of ROIs from a file."""
    path = Path(path)
    if not path.is_file():
        raise BrioError(f"{path}: this table of ROIs does not exist")
    if path.suffix.lower() == ".json":  # names by their values in the image
        said = read_json_object(path)
        table = TextTable(path, ["index", "name"], [{"index": i, "name": str(name)} for i, name in said.items()])
    else:
        table = read_participants(path)
    numbers = [i for i, row in enumerate(table.rows, start=1) if {"0", "Background"} - {*row.values()}]  # in the file
    rows = [table.rows[number - 1] for number in numbers]
    columns: dict[str, list[str | None] | np.ndarray] = {}
    for column in filter(None, table.columns):
        known = column.lower() if column.lower() in KNOWN_COLUMNS else column
        columns[known] = [row[column] for row in rows]
    for theirs, ours in OTHER_COLUMNS:
        if theirs in columns and ours not in columns:
            columns[ours] = columns.pop(theirs) if ours == "name" else columns[theirs]
    axes = [axis for axis in "xyz" if axis in columns]
    if "name" not in columns:
        raise BrioError(
            f"{path}: has no column 'name' with the names of the ROIs; its columns are {', '.join(columns)}"
        )
    if len(axes) in (1, 2):
        raise BrioError(f"{path}: has a column '{axes[0]}', but not all three of x, y and z; give all three or none")
    names = list(columns.pop("name"))
    if None in names:
        raise BrioError(f"{path}: column 'name' is empty in row {numbers[names.index(None)]}; every ROI needs a name")
    for axis in axes:
        values = list(columns[axis])
        coordinates = read_numbers(pd.Series(values, dtype=object)).to_numpy(dtype=float)
        for i in np.flatnonzero(~np.isfinite(coordinates)):
            if values[i] is not None:
                problem = f"column '{axis}' contains '{values[i]}' in row {numbers[i]}"
                raise BrioError(f"{path}: {problem}; write MNI coordinates in mm, with a decimal point")
        columns[axis] = coordinates
    if "hemi" in columns:
        columns["hemi"] = [HEMISPHERES.get(str(value).lower(), value) for value in columns["hemi"]]
    numbered, repeated = number_repeated_names(map(str, names))
    atlas = Atlas(path.stem, pd.DataFrame({"name": numbered, **columns}))
    warnings = describe_renamed(repeated, f"{path}: rows")
    gaps = atlas.rois["name"][atlas.rois[axes].isna().any(axis=1)].tolist()
    if gaps:
        warnings.append(f"{path}: no coordinates for {shorten_list(gaps)}, so brio cannot draw brain figures")
    return atlas, warnings


def describe_renamed(renamed: dict[str, list[str]], where: str) -> list[str]:
    """Describe which repeated names were numbered, for a warning."""
    words = shorten_list([f"{name} -> {', '.join(new)}" for name, new in renamed.items()], separator="; ")
    return [f"{where} with the same name were numbered in order: {words}"] if renamed else []


def load_atlas(table: str | Path) -> tuple[Atlas, list[str]]:
    """Load a table of ROIs from a file, or a known atlas by name."""
    path = Path(table)
    if path.is_file() or path.suffix.lower() in TABLE_SUFFIXES:
        return read_atlas_table(path)
    atlas = load_known_atlas(str(table))
    if atlas is None:
        raise BrioError(f"{table}: is neither a file nor a known atlas; known atlases: {KNOWN_ATLASES}")
    return atlas, []


def refuse_file_as_name(atlas: str | None) -> None:
    """Refuse a file as the name of an atlas. It is not taken as a table, since ``--atlas`` mostly selects scans."""
    if atlas is not None and atlas.lower().endswith((*TABLE_SUFFIXES, *OTHER_SUFFIXES)):
        remedy = "give a table of ROIs with --atlas-table"
        raise BrioError(f"--atlas takes the name of an atlas, not a file such as {atlas}; {remedy}")


def suggest_rois(name: str, names: Iterable[str]) -> str:
    """Suggest up to three similar names, or list the first names."""
    names = list(names)
    spelling = {known.lower(): known for known in reversed(names)}
    close = difflib.get_close_matches(name.lower(), spelling, n=3, cutoff=0.6)
    return (
        f"similar names: {', '.join(spelling[known] for known in close)}" if close else f"names: {shorten_list(names)}"
    )


def _find_rows(atlas: Atlas, names: Sequence[str], where: str, source: str, remedy: str) -> tuple[np.ndarray, str]:
    """Find the row of each name, and by which column of the table."""
    match = atlas.find_rows(names)
    if match is None:
        unique = atlas.list_unique_names().values() or [atlas.rois["name"].astype(str)]
        known = max(unique, key=lambda own: len({*own} & {*names})).tolist()  # the column they seem to come from
        absent = next((name for name in names if name not in known), None)
        problem = f"'{absent}' has no row in table {source} ({suggest_rois(absent or '', known)})"
        if absent is None:
            problem = f"names cannot be matched, because names are repeated in table {source}"
        raise BrioError(f"{where} {problem}; {remedy}")
    return match


def _select_rois(atlas: Atlas, rows: np.ndarray) -> Atlas:
    return Atlas(atlas.name, atlas.rois.iloc[rows].reset_index(drop=True))


def add_atlas(cohort: Cohort, table: str | Path, out: str | Path, by_order: bool = False) -> tuple[Cohort, list[str]]:
    """Rewrite a cohort with names, coordinates and networks of its ROIs.

    Rows of the table are found by the names of the ROIs (columns ``name``, ``code``, ``index`` of the table), or by
    their order if the ROIs have no names. Frames, participants and the order of the ROIs stay the same.
    """
    atlas, warnings = load_atlas(table)
    own, rois, matched_by = cohort.atlas, atlas.rois, "order"
    if not (by_order or own.is_unnamed):
        remedy = "correct the name, or give --by-order if the rows are in the order of the ROIs"
        names = own.rois["name"].astype(str).tolist()
        rows, matched_by = _find_rows(atlas, names, f"cohort '{cohort.name}': ROI", str(table), remedy)
        rois = _select_rois(atlas, rows).rois
    elif len(atlas) != cohort.n_rois:
        problem = f"has {len(atlas)} ROIs, but cohort '{cohort.name}' has {cohort.n_rois}"
        raise BrioError(f"{table}: {problem}; the table needs one row per ROI, in the same order")
    elif not own.is_unnamed:
        rois = rois.assign(name=own.rois["name"].to_numpy())
    rois = rois.assign(**{column: own.rois[column].to_numpy() for column in own.rois.columns.difference(rois.columns)})
    added = {"table": Path(table).name, "matched_by": matched_by, "brio": __version__}
    named = Atlas(atlas.name if own.name == "unknown" else own.name, rois)
    return replace(cohort, atlas=named, provenance={**cohort.provenance, "atlas_added": added}).save(out), warnings


_SIGNAL = "(mean|avg)?(global|glob|gs|gsr|csf|wm|whitematter|wmcsf|csfwm)(mean|sig|signal|ts|meansignal|regressor)?"
_MOTION = (
    "(mean|power|jenkinson)?fd(power|jenkinson)?|framewise(displacement)?|(std)?dvars|rmsd|(rel|abs)(mean)?rms|"
    "(trans|rot|hm|motion)[xyz]|[xyz](trans|rot)|(head)?motion(parameters?)?[0-9]*|rp[0-9]+|pitch|yaw"
)
_REGRESSOR = "[actw]compcor[0-9]+|edgecomp[0-9]+|cosine[0-9]+|aroma(motion|motioncomponent)?[0-9]+"
_OUTLIER = "(motion|nonsteadystate)outlier[0-9]+"
_COUNTER = "time|timepoint|frame|volume|vol|index|unnamed0"
# Names of columns, in small letters and without signs, that are hardly a region: fMRIPrep, CONN, C-PAC, AFNI, FSL.
_NUISANCE = re.compile(f"(({_SIGNAL}|{_MOTION})(derivative1)?(power2)?)|{_REGRESSOR}|{_OUTLIER}|{_COUNTER}")


def find_nuisance(names: Sequence[str]) -> list[str]:
    """Find the names of columns that are unlikely to be regions."""
    return [name for name in names if _NUISANCE.fullmatch("".join(filter(str.isalnum, name.lower())))]


def refuse_nuisance(names: Sequence[str], path: Path) -> None:
    """Refuse columns whose names are those of nuisance signals. If they are regions, a table of ROIs must list them."""
    nuisance = find_nuisance(names)
    if 2 * len(nuisance) > len(names):
        problem = (
            f"{len(nuisance)} of {len(names)} columns are named like nuisance signals ({shorten_list(nuisance, 3)})"
        )
        raise BrioError(f"{path}: {problem}; give the time series of regions")
    if nuisance:
        flags = " ".join(f"--drop-roi {shlex.quote(name)}" for name in nuisance)
        problem = f"column names of nuisance signals: {shorten_list(nuisance, 6)}"
        remedy = f"leave out these columns with {flags} or, if they are regions, list all regions with --atlas-table"
        raise BrioError(f"{path}: {problem}; {remedy}")


def name_columns(series: Series) -> tuple[str, ...]:
    """Name the columns of a scan: by its header with repeated names numbered, else roi001, roi002, ..."""
    if series.columns is None:
        return tuple(number_rois(series.frames.shape[1]))
    return number_repeated_names(series.columns)[0]


def _find_repeated(series: Series) -> str | None:
    """Find the first name that a header has more than once."""
    return next(iter(number_repeated_names(series.columns or ())[1]), None)


@dataclass(frozen=True, eq=False)
class RoiOrder:
    """The columns of every scan that become the ROIs of a cohort, and their order."""

    first: Series  # the scan that set the order, and its file, for error messages
    path: Path
    names: tuple[str, ...]  # of the columns to take, as `name_columns` calls them
    drop: frozenset[str] = frozenset()  # columns that are left out of each scan before it is compared

    def reorder(self, series: Series, path: Path) -> np.ndarray:
        """Bring the columns of a scan into this order. Columns are matched by name, never guessed.

        Shapes: series [T, P]; returns [T, P].
        """
        repeated = _find_repeated(series)
        if repeated is not None and series.columns != self.first.columns:  # their numbers would be a guess
            problem = f"column '{repeated}' appears more than once, and the header differs from that of {self.path}"
            raise BrioError(f"{path}: {problem}; give each column a different name")
        columns = name_columns(series)
        own, theirs = (frozenset(names) - self.drop for names in (name_columns(self.first), columns))
        is_named = [scan.columns is not None for scan in (self.first, series)]
        if len(own) != len(theirs):
            hint = " (both have the same number of rows; if rows are the ROIs, transpose the files)"
            few, many, file = (own, theirs, self.path) if len(own) < len(theirs) else (theirs, own, path)
            if all(is_named) and few < many:
                lacks = f"{file} lacks {shorten_list(sorted(many - few))}"
                hint = f" ({lacks}; if a region was not measured, add its column, filled with n/a)"
            elif len(series.frames) != len(self.first.frames):
                hint = ""
            problem = f"has {len(theirs)} ROIs, but {self.path} has {len(own)}"
            raise BrioError(f"{path}: {problem}; all scans need the same parcellation{hint}")
        if is_named[0] != is_named[1]:
            named, unnamed = (self.path, path) if is_named[0] else (path, self.path)
            remedy = f"add a header like that of {named.name}"
            if get_series_suffix(unnamed) not in TEXT:
                remedy = f"save it as csv with the header of {named.name}, since its format has no names"
            raise BrioError(f"{unnamed}: has no column names, although {named} has column names; {remedy}")
        if own != theirs:
            note = "" if _find_repeated(self.first) is None else " (columns with the same name are numbered)"
            absent = next(name for name in name_columns(self.first) if name in own - theirs)
            problem = f"has ROI '{min(theirs - own)}' but not '{absent}' of {self.path}{note}"
            raise BrioError(f"{path}: {problem}; all scans need the same parcellation")
        if columns == self.names:
            return series.frames
        position = {name: i for i, name in enumerate(columns)}
        return series.frames[:, [position[name] for name in self.names]]


def resolve_atlas(
    layout: Layout, series: Series, path: Path, options: ImportOptions
) -> tuple[Atlas, RoiOrder, str, list[str]]:
    """Determine the atlas of a cohort from its name and its first scan: a table, a bundled atlas, or the header.

    Scans to predict are refused if the header has repeated names and neither a known order nor that of a table, because
    the columns could only be matched by guessing. Import takes such columns in the order of the first file.

    Shapes: series [T, P].
    """
    warnings, table, source = list(options.atlas_warnings), options.atlas_table, options.atlas_source
    warnings += describe_renamed(number_repeated_names(series.columns or ())[1], f"{path}: columns")
    names = name_columns(series)
    absent = {name for _, name in series.left_out}  # left out already
    asked = [name for name in options.drop_roi if name in names or name not in absent]
    drop = frozenset(asked) & frozenset(names)
    kept = tuple(name for name in names if name not in drop)
    if table is None:
        atlas, order, origin = _match_bundled(layout, series, path, kept)
        _require_known(asked, [*names, *atlas.rois["name"].astype(str)], path)
        refuse_nuisance(() if series.columns is None else kept, path)
    else:
        _require_known(asked, [*names, *table.rois["name"]], path)
        atlas, order, origin = _match_table(table, source, series, path, kept)
        warnings += [f"{path}: {origin}; check that it is theirs"] if series.columns is None else []
        atlas = Atlas(table.name if layout.atlas == "unknown" else layout.atlas, atlas.rois)
        unused = sorted(set(table.rois["name"]) - set(atlas.rois["name"]) - set(asked))
        if unused:
            warnings.append(
                f"{source}: rows not used (ROIs missing from the scans, or dropped): {shorten_list(unused)}"
            )
        repeated = None if options.labels_required or options.known_header == series.columns else _find_repeated(series)
        if repeated is not None and order != kept:
            problem = (
                f"column '{repeated}' appears more than once, and the header differs from that of the model's scans"
            )
            raise BrioError(f"{path}: {problem}; use the column names in rois.tsv of the model")
    # those to drop that are named as in the atlas and not as in the header
    keep = np.flatnonzero(~atlas.rois["name"].astype(str).isin(set(asked) - drop).to_numpy())
    if len(keep) < 2:
        reason = (
            "are left after --drop-roi"
            if asked
            else f"are in this file, which has {format_count(len(series.frames), 'row')}"
        )
        raise BrioError(f"{path}: fewer than two ROIs {reason}; connectomes need two or more")
    return _select_rois(atlas, keep), RoiOrder(series, path, tuple(order[i] for i in keep), drop), origin, warnings


def _require_known(drop: Sequence[str], known: list[str], path: Path) -> None:
    """Refuse to drop an ROI that is neither in the header nor in the atlas."""
    for name in drop:
        if name not in known:
            raise BrioError(f"{path}: has no ROI '{name}' to drop; {suggest_rois(name, dict.fromkeys(known))}")


# Atlas in the order of the cohort, the columns of a scan in that order, and how they were matched.
_Match = tuple[Atlas, tuple[str, ...], str]


def _order_by_rows(atlas: Atlas, columns: Sequence[str], rows: np.ndarray, origin: str) -> _Match:
    """Order columns as their rows stand in an atlas."""
    by_row = np.argsort(rows)
    return _select_rois(atlas, rows[by_row]), tuple(columns[i] for i in by_row), origin


def _match_table(table: Atlas, source: str, series: Series, path: Path, kept: tuple[str, ...]) -> _Match:
    """Match the columns of a scan that are kept with a table of ROIs: by name in its order, else by order."""
    n_columns = series.frames.shape[1]
    if series.columns is not None:
        remedy = (
            "add a row for it, add a column 'code' with the names in the header, or drop the column with --drop-roi"
        )
        rows, key = _find_rows(table, kept, f"{path}: column", source, remedy)
        return _order_by_rows(table, kept, rows, f"header matched to table {source} by {key}")
    if len(table) == n_columns:  # the table lists the columns that were dropped, in their place
        table = _select_rois(table, np.isin(name_columns(series), kept))
    if len(table) != len(kept):
        dropped = f" ({len(kept)} after --drop-roi)" if len(kept) < n_columns else ""
        remedy = " (--drop-roi roi001 drops the first column)"
        if len(series.frames) == len(table):
            remedy = " (if the rows of the file are the ROIs, transpose the files)"
        problem = f"has {n_columns} columns without names{dropped}, but table {source} has {len(table)} ROIs"
        raise BrioError(f"{path}: {problem}; the table needs one row per column of the file, in the same order{remedy}")
    return table, kept, f"the files have no column names, so the columns are taken in the order of table {source}"


def _match_bundled(layout: Layout, series: Series, path: Path, kept: tuple[str, ...]) -> _Match:
    """Match the columns of a scan that are kept with the bundled atlas of a layout, if there is one."""
    bundled, strictness = load_bundled_atlas(layout.atlas), layout.strictness
    if bundled is not None and len(bundled) == len(kept):
        if series.columns is None:
            if strictness == "names":
                raise BrioError(f"{path}: has no header; add one that names the ROIs of {bundled.name}")
            return (
                bundled,
                kept,
                ("the files have no column names, so the columns are taken in the order of the bundled atlas"),
            )
        match = bundled.find_rows(kept)
        if match is not None:
            return _order_by_rows(bundled, kept, match[0], f"header matched to the bundled atlas by {match[1]}")
        if strictness == "names":
            key = "code" if "code" in bundled.rois else "index"
            unknown = sorted(set(kept) - set(bundled.rois[key].astype(str)))
            raise BrioError(f"{path}: the header has '{unknown[0]}', which is not a {key} of {bundled.name}")
    elif bundled is not None and strictness != "free":
        hint = "; the rows seem to be the ROIs, so transpose the files" if len(series.frames) == len(bundled) else ""
        raise BrioError(f"{path}: has {len(kept)} columns, but atlas {bundled.name} has {len(bundled)} ROIs{hint}")
    origin = "the ROIs have no names" if series.columns is None else "names from the header"
    return Atlas(layout.atlas, pd.DataFrame({"name": kept})), kept, origin

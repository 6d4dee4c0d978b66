"""Which ROI each column of a file is."""

from __future__ import annotations

import difflib
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from ...errors import BrioError
from ...version import __version__
from ..atlas import KNOWN_ATLASES, Atlas, load_bundled_atlas, load_known_atlas, number_repeated_names, number_rois
from ..cohort import Cohort
from ..values import shorten_list
from .participants import ImportOptions, Layout, Strictness, read_participants
from .series import Series, parse_float

TABLE_SUFFIXES = (".tsv", ".csv", ".txt")  # suffixes of a table of ROIs
# Suffixes of files that are no table of ROIs, and no names of atlases either.
OTHER_SUFFIXES = (".nii", ".nii.gz", ".xlsx", ".json", ".mat", ".npy")
# Columns that brio reads, in upper or lower case; all others are kept as they are.
KNOWN_COLUMNS = frozenset({"name", "x", "y", "z", "network", "hemi", "code", "index"})

HEMISPHERES = {"l": "L", "lh": "L", "left": "L", "r": "R", "rh": "R", "right": "R"}  # spellings of a hemisphere


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
    names = list(columns.pop("name"))
    if None in names:
        raise BrioError(f"{path}: column 'name' is empty in row {names.index(None) + 1}; every ROI needs a name")
    for axis in axes:
        numbers = np.array([np.nan if value is None else parse_float(value) for value in columns[axis]])
        for number, value in enumerate(columns[axis]):
            if value is not None and not np.isfinite(numbers[number]):
                raise BrioError(
                    f"{path}: column '{axis}' holds '{value}' in row {number + 1}; write MNI coordinates in mm, with a "
                    "decimal point"
                )
        columns[axis] = numbers
    if "hemi" in columns:
        columns["hemi"] = [HEMISPHERES.get(str(value).lower(), value) for value in columns["hemi"]]
    numbered, repeated = number_repeated_names(map(str, names))
    atlas = Atlas(path.stem, pd.DataFrame({"name": numbered, **columns}))
    warnings = describe_renamed(repeated, f"{path}: rows")
    gaps = atlas.rois["name"][atlas.rois[axes].isna().any(axis=1)].tolist() if axes else []
    if gaps:
        warnings.append(f"{path}: no coordinates of {shorten_list(gaps)}, so no figure shows the brain")
    return atlas, warnings


def describe_renamed(renamed: dict[str, list[str]], where: str) -> list[str]:
    """Describe which repeated names were numbered, for a warning."""
    words = shorten_list([f"{name} -> {', '.join(new)}" for name, new in renamed.items()], separator="; ")
    return [f"{where} with the same name were numbered in their order: {words}"] if renamed else []


def load_atlas(table: str | Path) -> tuple[Atlas, list[str]]:
    """Load a table of ROIs: a file, or a known atlas by its name."""
    path = Path(table)
    if path.is_file() or path.suffix.lower() in TABLE_SUFFIXES:
        return read_atlas_table(path)
    atlas = load_known_atlas(str(table))
    if atlas is None:
        raise BrioError(f"{table}: neither a file nor a known atlas; known: {', '.join(KNOWN_ATLASES)}")
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
    return f"near it: {', '.join(spelling[known] for known in close)}" if close else f"there are {shorten_list(names)}"


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
        rois = _select_rois(atlas, rows).rois
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
    """Find the names of columns that are hardly a region."""
    return [name for name in names if _NUISANCE.fullmatch("".join(filter(str.isalnum, name.lower())))]


def refuse_nuisance(names: Sequence[str], path: Path) -> None:
    """Refuse columns whose names are those of nuisance signals. Whoever means regions lists them in a table of ROIs."""
    nuisance = find_nuisance(names)
    if 2 * len(nuisance) > len(names):
        raise BrioError(
            f"{path}: {len(nuisance)} of its {len(names)} columns are confounds ({', '.join(nuisance[:3])}, ...), as "
            "fMRIPrep writes them to desc-confounds_timeseries.tsv; give the files with the time series of regions"
        )
    if nuisance:
        flags = " ".join(f"--drop-roi {shlex.quote(name)}" for name in nuisance)
        listed = ", ".join(f"'{name}'" for name in nuisance[:6]) + (", ..." if len(nuisance) > 6 else "")
        is_named = f"column {listed} is" if len(nuisance) == 1 else f"columns {listed} are"
        raise BrioError(
            f"{path}: {is_named} named like a nuisance signal, not a region; leave it out with {flags}, or, if it is a "
            "region, list the regions in a table (--atlas-table)"
        )


@dataclass(frozen=True, eq=False)
class RoiOrder:
    """Order of the ROI columns that all scans are brought into."""

    first: Series  # the scan that set the order, and its file, for error messages
    path: Path
    names: tuple[str, ...] | None  # column names, where the files have a header; repeated names are numbered
    drop: frozenset[str] = frozenset()  # columns that are left out of each scan before it is compared
    keep: np.ndarray | None = None  # positions in names that are kept at the end; None for all

    def reorder(self, series: Series, path: Path) -> np.ndarray:
        """Bring the columns of a scan into this order. Columns are matched by name, never guessed.

        Shapes: series [T, P]; returns [T, P].
        """
        repeated = _find_repeated(series.columns)
        if repeated is not None and series.columns != self.first.columns:  # their numbers would be a guess
            raise BrioError(
                f"{path}: column '{repeated}' appears more than once, and the header is not that of {self.path}, so "
                "that the columns cannot be told apart; give each a name of its own"
            )
        columns, frames = _drop_columns(series, self.drop)
        n_rois = self.first.frames.shape[1] - len(self.drop)
        if frames.shape[1] != n_rois:
            raise BrioError(
                f"{path}: {frames.shape[1]} ROIs, but {self.path} has {n_rois}; "
                f"all scans need the same parcellation{self._explain_number(columns, path, len(frames))}"
            )
        if self.names != columns:
            frames = frames[:, self._find_positions(columns, path)]
        return frames if self.keep is None else frames[:, self.keep]

    def refuse_guessed_columns(self, source: str, known_header: tuple[str, ...]) -> None:
        """Refuse repeated names in a header that has neither a known order nor that of a table.

        Which of these columns is which would be a guess. Import takes them in the order of the first file, since all
        scans of a cohort share it. Scans to predict need the order of the scans that their model was fitted to.
        """
        repeated = _find_repeated(self.first.columns)
        if (
            repeated is not None
            and known_header != self.first.columns
            and self.names != _drop_columns(self.first, self.drop)[0]
        ):
            raise BrioError(
                f"{self.path}: column '{repeated}' appears more than once, and the header is neither that of the scans "
                f"of the model nor in the order of {source}, so that it is not known which column is which; call them "
                "by the names in the rois.tsv of the model"
            )

    def _explain_number(self, columns: tuple[str, ...] | None, path: Path, n_frames: int) -> str:
        """Say which ROI one of two files lacks, where both have a header, or that rows may be the ROIs."""
        own, theirs = set(self.names or ()), set(columns or ())
        for lacking, file in ((own - theirs, path), (theirs - own, self.path)):
            if own and theirs and len(lacking) == abs(len(own) - len(theirs)):
                lacks = f"{file} lacks {shorten_list(sorted(lacking))}"
                return f" ({lacks}; a region that was not measured needs a column of n/a)"
        hint = " (both have as many rows; if rows are the ROIs, transpose the files)"
        return hint if n_frames == len(self.first.frames) else ""

    def _find_positions(self, columns: tuple[str, ...] | None, path: Path) -> list[int]:
        """Find the column of each of ``names``."""
        if self.names is None or columns is None:
            with_names, without = (path, self.path) if self.names is None else (self.path, path)
            raise BrioError(f"{without}: has no column names, but {with_names} has; the order of ROIs is not known")
        position = {name: i for i, name in enumerate(columns)}
        absent = [name for name in self.names if name not in position]
        if absent:
            extra = sorted(set(position) - set(self.names))
            note = (
                " (its columns of the same name are numbered)" if _find_repeated(self.first.columns) is not None else ""
            )
            raise BrioError(
                f"{path}: has ROI '{extra[0]}' but not '{absent[0]}' of {self.path}{note}; the parcellations differ"
            )
        return [position[name] for name in self.names]


def _find_repeated(header: tuple[str, ...] | None) -> str | None:
    """Find the first name that a header has more than once; None without one."""
    counts = Counter(header or ())
    return next((name for name, n in counts.items() if n > 1), None)


def name_columns(series: Series) -> tuple[str, ...]:
    """Name the columns of a scan: by its header with repeated names numbered, else roi001, roi002, ..."""
    if series.columns is None:
        return tuple(number_rois(series.frames.shape[1]))
    return number_repeated_names(series.columns)[0]


def _drop_columns(series: Series, drop: frozenset[str]) -> tuple[tuple[str, ...] | None, np.ndarray]:
    """Drop columns of a scan by name: the names of the others (None without a header), and their frames."""
    names, frames = name_columns(series), series.frames
    if not drop.isdisjoint(names):
        keep = [i for i, name in enumerate(names) if name not in drop]
        names, frames = tuple(names[i] for i in keep), frames[:, keep]
    return None if series.columns is None else names, frames


def resolve_atlas(
    layout: Layout, series: Series, path: Path, options: ImportOptions
) -> tuple[Atlas, RoiOrder, str, list[str]]:
    """Determine the atlas of a cohort from its name and its first scan.

    A table that the user gave must have a row for every ROI. A bundled atlas is used if the number of ROIs agrees and
    the header, if there is one, holds its names, codes or indices in any order. Otherwise the ROIs are named by the
    header, or stay unnamed.

    Shapes: series [T, P].
    """
    warnings, table, source = list(options.atlas_warnings), options.atlas_table, options.atlas_source
    if series.columns is not None:
        warnings += describe_renamed(number_repeated_names(series.columns)[1], f"{path}: columns")
    names = name_columns(series)
    absent = {name for _, name in series.left_out}  # left out already
    asked = [name for name in options.drop_roi if name in names or name not in absent]
    drop = frozenset(asked) & frozenset(names)
    columns, frames = _drop_columns(series, drop)
    reduced = replace(series, frames=frames, columns=columns)
    if table is None:
        atlas, order_names, origin = _match_bundled(layout.atlas, reduced, path, layout.strictness)
        if drop and atlas.is_unnamed:  # roi004 keeps its name where roi003 is dropped
            atlas = Atlas(atlas.name, pd.DataFrame({"name": [column for column in names if column not in drop]}))
        _require_known(asked, [*names, *atlas.rois["name"].astype(str)], path)
        refuse_nuisance(columns or (), path)
    else:
        _require_known(asked, [*names, *table.rois["name"]], path)
        atlas, order_names, origin = _match_table(table, source, reduced, path, names, drop)
        atlas = Atlas(table.name if layout.atlas == "unknown" else layout.atlas, atlas.rois)
        unused = sorted(set(table.rois["name"]) - set(atlas.rois["name"]) - set(asked))
        if unused:
            warnings.append(f"{source}: no scan has the ROIs {shorten_list(unused)}; their rows are not used")
    # those to drop that are named as in the atlas and not as in the header
    keep = np.flatnonzero(~atlas.rois["name"].astype(str).isin(set(asked) - drop).to_numpy())
    if len(keep) < 2:
        reason = "are left after --drop-roi" if asked else f"are in this file, of {len(series.frames)} rows"
        raise BrioError(f"{path}: fewer than two ROIs {reason}; connectomes need two or more")
    kept = None if len(keep) == len(atlas) else keep
    order = RoiOrder(series, path, order_names, drop, kept)
    return atlas if kept is None else _select_rois(atlas, keep), order, origin, warnings


def _select_rois(atlas: Atlas, rows: Sequence[int] | np.ndarray) -> Atlas:
    return Atlas(atlas.name, atlas.rois.iloc[rows].reset_index(drop=True))


def _require_known(drop: Sequence[str], known: list[str], path: Path) -> None:
    """Refuse to drop an ROI that is neither in the header nor in the atlas."""
    for name in drop:
        if name not in known:
            raise BrioError(f"{path}: there is no ROI '{name}' to drop; {suggest_rois(name, dict.fromkeys(known))}")


def _match_table(
    table: Atlas, source: str, series: Series, path: Path, names: tuple[str, ...], drop: frozenset[str]
) -> tuple[Atlas, tuple[str, ...] | None, str]:
    """Match the columns of a scan with a table of ROIs: by name in the order of the table, else by order.

    Returns the atlas, the columns in its order (None where files name no columns), and how they were matched.

    ``series`` has no longer the columns in ``drop``; ``names`` are those of all columns of the file.
    """
    n_rois = series.frames.shape[1]
    if series.columns is None:
        if len(table) == len(names):  # the table lists the columns that were dropped, in their place
            kept = [i for i, name in enumerate(names) if name not in drop]
            table = _select_rois(table, kept)
        if len(table) != n_rois:
            dropped = f" ({n_rois} after --drop-roi)" if drop else ""
            remedy = " (--drop-roi roi001 drops the first column)"
            if len(series.frames) == len(table):
                remedy = "; the file has as many rows: if they are the ROIs, transpose the files"
            raise BrioError(
                f"{path}: has {len(names)} columns without names{dropped}, the table {source} has {len(table)} ROIs; "
                f"it needs one row per column, in the order of the columns{remedy}"
            )
        return table, None, f"the files name no columns: taken in the order of the table {source}"
    match = table.find_rows(series.columns)
    if match is None:
        known = table.rois["name"].tolist()
        absent = next(name for name in series.columns if name not in known)
        raise BrioError(
            f"{path}: column '{absent}' has no row in the table {source} ({suggest_rois(absent, known)}); add a row, "
            f"give the table a column 'code' with the names in the header, or drop the column with --drop-roi "
            f"{shlex.quote(absent)}"
        )
    rows, key = match
    by_row = np.argsort(rows)
    names = tuple(series.columns[i] for i in by_row)
    return _select_rois(table, rows[by_row]), names, f"header matched to the table {source} by {key}"


def _match_bundled(
    name: str, series: Series, path: Path, strictness: Strictness
) -> tuple[Atlas, tuple[str, ...] | None, str]:
    """Match the columns of a scan with the bundled atlas of a name, if there is one."""
    n_rois = series.frames.shape[1]
    bundled = load_bundled_atlas(name)
    if bundled is not None and len(bundled) == n_rois:
        if series.columns is None:
            if strictness == "names":
                raise BrioError(f"{path}: has no header; the order of its columns may not be that of {bundled.name}")
            return bundled, None, "the files name no columns: taken in the order of the bundled atlas"
        for key in ("name", "code", "index"):
            names = tuple(bundled.rois[key].astype(str)) if key in bundled.rois else ()
            if set(names) == set(series.columns):
                return bundled, names, f"header matched to the bundled atlas by {key}"
        if strictness == "names":
            key = "code" if "code" in bundled.rois else "index"
            unknown = sorted(set(series.columns) - set(bundled.rois[key].astype(str)))
            raise BrioError(f"{path}: the header names '{unknown[0]}', which is no {key} of {bundled.name}")
    elif bundled is not None and strictness != "free":
        hint = "; its rows seem to be the ROIs: transpose the files" if len(series.frames) == len(bundled) else ""
        raise BrioError(f"{path}: has {n_rois} columns, atlas {bundled.name} has {len(bundled)} ROIs{hint}")
    if series.columns is not None:
        return Atlas(name, pd.DataFrame({"name": series.columns})), series.columns, "names from the header"
    return Atlas.unnamed(n_rois, name), None, "the ROIs have no names"

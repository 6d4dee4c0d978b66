"""Readers of file layouts. Each reader writes a cohort folder.

``READERS`` lists the readers with their options, which :class:`~.participants.ImportOptions` explains.
:func:`import_cohort` reads scans with sites and labels; :func:`read_scans_to_predict` reads scans that may have
neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ...console import Progress, silent
from ...errors import BrioError, nearest
from ...formatting import format_count
from ...storage import name_beside, refuse_existing
from ..atlas import Atlas, canonicalise_atlas_name
from ..cohort import ATLAS, FRAMES, HEADER, IMPORT_AGAIN, PARTICIPANTS, Cohort, name_other_folder
from ..scans import is_repetition_time, require_frames
from ..values import fold_value, read_class_names, refuse_unsafe_names
from .assembly import import_scans, summarise_skipped
from .bids import find_bids, find_datasets, parse_name
from .images import find_fmriprep, holds_images
from .participants import (
    ImportOptions,
    Layout,
    find_table,
    list_tables,
    read_participants,
    select_scans,
    summarise_columns,
)
from .releases import PCP_NAME, fetch_abide, find_dpabi, find_packed, find_pcp, is_dpabi_file, is_packed_file
from .rois import add_atlas, load_atlas, refuse_file_as_name
from .series import SUFFIXES, describe_name, find_series, get_series_stem
from .table import find_fc, find_files

__all__ = [
    "add_atlas",
    "fetch_abide",
    "import_cohort",
    "read_scans_to_predict",
    "select_scans",
    "summarise_columns",
    "summarise_import",
    "summarise_scans_to_predict",
]


class Reader(NamedTuple):
    """A reader and the options it takes."""

    find: Callable[[Path, ImportOptions], Layout]
    layout: str  # what it reads, for messages
    options: tuple[str, ...]  # names of attributes of ImportOptions, besides those that all readers take


_COMMON = ("name", "match", "atlas_table", "drop_roi", "frames_in_rows")
_COVARIATES = (
    "missing",
    "age_column",
    "sex_column",
    "male",
    "female",
    "ignore_columns",
    "where",
    "exclude",
    "class_names",
)
_TABLE = ("atlas", "participants", "id_column", "site_column", "label_column", "patient", "control", *_COVARIATES)
_BIDS = ("task", "runs", "session_column", "sessions")

READERS: dict[str, Reader] = {
    "pcp": Reader(
        find_pcp, "files named <FILE_ID>_rois_<atlas>.1D", ("atlas", "participants", "where", "exclude", "missing")
    ),
    "dpabi": Reader(
        find_dpabi, "files named ROISignals_<ID>, from DPABI", ("atlas", "participants", "id_column", *_COVARIATES)
    ),
    "bids": Reader(find_bids, "time series of BIDS derivatives", (*_TABLE, *_BIDS)),
    "fmriprep": Reader(
        find_fmriprep,
        "images preprocessed with fMRIPrep",
        (*_TABLE, *_BIDS, "denoise", "space", "res", "high_pass", "low_pass", "jobs"),
    ),
    "table": Reader(find_files, "one file per scan", (*_TABLE, "pattern", "session_column", "sessions")),
    "packed": Reader(find_packed, "scans packed as 8-bit integers", ("atlas", "sessions", "missing")),
    "fc": Reader(find_fc, "connectomes", (*_TABLE, "pattern", "session_column", "sessions", "measure")),
}
# What scans to predict may be, for messages.
LAYOUTS = {"cohort": "a brio cohort folder"}
LAYOUTS |= {kind: reader.layout for kind, reader in READERS.items() if kind != "fc"}


def import_cohort(
    kind: str, src: str | Path, out: str | Path, *, progress: Progress = silent, **options: Any
) -> Cohort:
    """Import a folder of scans as a cohort.

    Time series are extracted from images to a folder ``OUT.extracted``, from which an interrupted import resumes.
    """
    if kind not in READERS:
        raise BrioError(f"unknown layout '{kind}'; {nearest(kind, READERS)}")
    selected = _select_options(kind, options)
    refuse_existing(out)
    selected = replace(selected, workspace=name_beside(Path(out), ".extracted"), progress=progress)
    return import_scans(kind, READERS[kind].find, src, out, selected)


def read_scans_to_predict(
    src: str | Path,
    out: str | Path,
    *,
    kind: str | None = None,
    tr: float | None = None,
    known_header: Sequence[str] = (),
    known_rois: Atlas | None = None,
    known_extraction: Mapping[str, Any] | None = None,
    progress: Progress = silent,
    **options: Any,
) -> Cohort:
    """Read scans to be predicted: one is enough, and they need no sites, labels or participants table.

    Images are denoised like those of the model (``known_extraction``), unless ``denoise`` says otherwise.

    If there is a table, it lists the scans to read. Its sites and labels are read as in :func:`import_cohort`, and rows
    without them are kept. If every scan has both, the cohort is identical to that of :func:`import_cohort` and has the
    same fingerprint.
    """
    src = Path(src)
    if tr is not None and not is_repetition_time(tr):
        raise BrioError(f"the repetition time cannot be {tr}; give it in seconds, for example 2")
    if kind is None:
        is_table = options.get("pattern") is not None  # no other layout takes it
        about = [options.get(name) for name in ("participants", "match")]
        kind = "table" if is_table else find_layout(src, *about)
    elif kind not in LAYOUTS:
        raise BrioError(f"unknown layout '{kind}'; {nearest(kind, LAYOUTS)}")
    if kind == "cohort":  # which states everything itself
        cohort = Cohort.load(src)
        require_frames(cohort.participants, cohort.name, "a model")
        cohort.verify()
        given = {option: value for option, value in {"tr": tr, **options}.items() if value is not None}
        atlas = given.pop("atlas", cohort.atlas.name)
        if canonicalise_atlas_name(atlas).lower() != cohort.atlas.name.lower():
            raise BrioError(
                f"{src}: the scans of this cohort are in atlas '{cohort.atlas.name}', not '{atlas}'; leave out --atlas"
            )
        if given:
            flags = ", ".join(map(_format_flag, given))
            raise BrioError(
                f"{src}: {flags} cannot be used with a cohort folder; give the folder alone, or the files from which "
                "the cohort was imported"
            )
        return replace(cohort, provenance={"kind": "cohort", "source": cohort.name, "cohort": cohort.provenance})
    options = {option: value for option, value in options.items() if value is not None}
    if kind == "fmriprep" and "denoise" not in options:
        options = {**(known_extraction or {}), **options}
    selected = _select_options(kind, {"name": describe_name(get_series_stem(src.resolve())), **options})
    refuse_existing(out)
    selected = replace(selected, tr=tr, labels_required=False, known_header=tuple(known_header))
    selected = replace(
        selected, known_rois=known_rois, workspace=name_beside(Path(out), ".extracted"), progress=progress
    )
    return import_scans(kind, READERS[kind].find, src, out, selected)


def find_layout(src: Path, participants: str | Path | None = None, match: str | None = None) -> str:
    """Find the layout of scans to predict."""
    if not src.exists():
        raise BrioError(f"{src}: no such file or folder")
    if (src / HEADER).is_file():
        return "cohort"
    if all((src / name).is_file() for name in (FRAMES, PARTICIPANTS, ATLAS)):
        raise BrioError(
            f"{src / HEADER}: is missing, although the folder has the other files of a cohort; {IMPORT_AGAIN}"
        )
    if other := name_other_folder(src):
        raise BrioError(f"{src}: is {other}, not scans; give a cohort folder, one file, or a folder of files")
    files, has_images = find_series(src, match) + find_datasets(src), holds_images(src)
    if not (files or has_images):
        problem = "is not a time-series file" if src.is_file() else "has no time-series file in or below it"
        raise BrioError(f"{src}: {problem}; supported file types: {', '.join(SUFFIXES)}")
    for file in files:
        if file.name == FRAMES and (file.parent / HEADER).is_file():
            raise BrioError(f"{file}: contains all scans of a cohort; give the folder {file.parent}")
    tables = list_tables(src) if participants is None else [find_table(src, participants)]
    columns = read_participants(tables[0]).columns if len(tables) == 1 else []
    if any(column.lower() == "file" for column in columns):
        return "table"
    # an archive of packed scans stands in the folder itself; those of the layout 'table' are many and alike
    archive = next((f for f in files if f.suffix.lower() == ".npz" and (f == src or f.parent == src)), None)
    fits = {
        "pcp": any(PCP_NAME.fullmatch(file.name) for file in files),
        "dpabi": any(is_dpabi_file(file) for file in files),
        "bids": any(parse_name(file) is not None for file in files),
        "packed": archive is not None and is_packed_file(archive),
    }
    fits["fmriprep"] = has_images and not fits["bids"]  # C-PAC and XCP-D write images beside their series
    kinds = [kind for kind, fit in fits.items() if fit]
    # the table of 'pcp' has other columns, and 'dpabi' needs none: files with such names may be listed in any table
    if columns and ((kinds == ["pcp"] and "FILE_ID" not in columns) or (kinds == ["dpabi"] and participants is None)):
        kinds.append("table")
    if len(kinds) > 1:
        words = ", ".join(f"'{kind}' ({LAYOUTS[kind]})" for kind in kinds)
        raise BrioError(f"{src}: fits several layouts, {words}; choose one with --kind")
    return kinds[0] if kinds else "table"


def _select_options(kind: str, values: dict[str, Any]) -> ImportOptions:
    """Select the options that are given, and refuse those that the reader does not take."""
    reader = READERS[kind]
    values = {option: value for option, value in values.items() if value is not None}
    for option in values:
        if option not in (*reader.options, *_COMMON):
            flags = ", ".join(map(_format_flag, (*reader.options, *_COMMON)))
            raise BrioError(f"kind '{kind}' does not take {_format_flag(option)}; its options are {flags}")
    if kind != "fmriprep":
        refuse_file_as_name(values.get("atlas"))
    drop = values.get("drop_roi", ())
    values["drop_roi"] = (drop,) if isinstance(drop, str) else tuple(drop)
    for key in {"ignore_columns", "class_names"} & values.keys():
        parts = values[key].split(",") if isinstance(values[key], str) else values[key]
        values[key] = tuple(map(str.strip, parts))
    if "missing" in values:
        codes = [values["missing"]] if isinstance(values["missing"], str | int | float) else values["missing"]
        values["missing"] = tuple(code.strip() for text in codes for code in str(text).split(",") if code.strip())
    sexes, classes = [values.get(key) for key in ("male", "female")], values.get("class_names", ())
    refuse_unsafe_names([*filter(None, sexes), *classes], "--male, --female or --class-names")
    if None not in sexes and fold_value(sexes[0]) == fold_value(sexes[1]):
        raise BrioError(f"--male and --female are both '{sexes[0]}'; give two different codes")
    if "class_names" in values:
        values["class_names"] = read_class_names(classes, "--class-names")
    if "atlas_table" in values:
        values["atlas_source"] = Path(values["atlas_table"]).name
        values["atlas_table"], values["atlas_warnings"] = load_atlas(values["atlas_table"])
    return ImportOptions(**values)


def summarise_import(cohort: Cohort) -> str:
    """Summarise in one line how many scans were imported and skipped."""
    skipped = cohort.provenance.get("skipped", [])
    imported = f"{format_count(len(cohort), 'scan')} imported"
    if not skipped:
        return f"{imported}, none skipped"
    left_out = format_count(len(skipped), "row or file", "rows or files")
    return f"{imported}, {left_out} skipped: {summarise_skipped(skipped)}; see 'skipped' in cohort.json"


def summarise_scans_to_predict(cohort: Cohort) -> str:
    """Summarise in one line the layout in which scans were found, how many have a label, and what was skipped."""
    kind, n_scans = cohort.provenance["kind"], len(cohort)
    unlabelled, skipped = cohort.provenance.get("unlabelled", []), cohort.provenance.get("skipped", [])
    parts = [
        f"{format_count(n_scans, 'scan')} read in the layout '{kind}' ({LAYOUTS[kind]})",
        f"with a label: {int(cohort.labelled.sum())}"
        + (f" (values not used: {summarise_skipped(unlabelled)})" if unlabelled else ""),
        f"skipped: {len(skipped)}" + (f" ({summarise_skipped(skipped)})" if skipped else ""),
    ]
    return "; ".join(parts)


def _format_flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"

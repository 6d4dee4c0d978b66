"""Readers of file layouts. Each reader writes a cohort folder.

========  ===================================================  ====================================================
kind      layout                                               options
========  ===================================================  ====================================================
pcp       ABIDE of the Preprocessed Connectomes Project        atlas, participants, name
dpabi     REST-meta-MDD, ``ROISignals_*.mat`` of DPABI         atlas (required), participants, id_column, name
bids      participants.tsv and files of XCP-D, HALFpipe,       atlas, participants, id_column, site_column,
          C-PAC or CIFTI pipelines                             label_column, patient, control, task, match, runs,
                                                               sessions, name
table     a participants table and one file per scan           atlas, participants, id_column, site_column,
                                                               label_column, patient, control, session_column,
                                                               sessions, name
packed    ABIDE as 8-bit integers, one npz file per atlas      atlas, sessions, name
fc        a participants table and one connectome per          as table, and measure
          participant, as files or in one npz file
========  ===================================================  ====================================================

Every reader also takes ``atlas_table`` (a table of the ROIs: a file, or the name of a known atlas), ``drop_roi`` (ROIs
to drop) and ``frames_in_rows`` (whether rows are frames although they seem to be the ROIs).

:func:`import_cohort` reads scans with sites and labels, :func:`read_scans_to_predict` scans that may have neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import BrioError, nearest
from ...formatting import format_count
from ...storage import refuse_existing
from ..cohort import Cohort
from ..scans import require_frames
from .assembly import ImportOptions, ScansToPredict, canonicalise_atlas_name, summarise_skipped
from .bids import read_bids
from .dpabi import read_dpabi
from .input_files import describe_name
from .layout import LAYOUTS, find_layout
from .packed import read_packed
from .participants import summarise_columns
from .pcp import fetch_abide, read_pcp
from .rois import RoiChoice, add_atlas, load_atlas, read_atlas_table, refuse_file_as_name
from .series import Series, get_series_stem, read_series
from .table import read_fc, read_files

__all__ = [
    "LAYOUTS",
    "READERS",
    "ImportOptions",
    "Reader",
    "Series",
    "add_atlas",
    "fetch_abide",
    "find_layout",
    "import_cohort",
    "load_atlas",
    "read_atlas_table",
    "read_scans_to_predict",
    "read_series",
    "summarise_columns",
    "summarise_import",
    "summarise_scans_to_predict",
]


class Reader(NamedTuple):
    """A reader, and which options it takes."""

    read: Callable[[str | Path, str | Path, ImportOptions], Cohort]  # returns the cohort
    options: tuple[str, ...]  # names of attributes of ImportOptions, besides those that all readers take
    required: tuple[str, ...] = ()  # those that must be given


_ROI_OPTIONS = ("atlas_table", "drop_roi")
_TABLE = ("atlas", "participants", "id_column", "site_column", "label_column", "patient", "control")

READERS: dict[str, Reader] = {
    "pcp": Reader(read_pcp, ("atlas", "participants", "name")),
    "dpabi": Reader(read_dpabi, ("atlas", "participants", "id_column", "name"), required=("atlas",)),
    "bids": Reader(read_bids, (*_TABLE, "task", "match", "runs", "sessions", "name")),
    "table": Reader(read_files, (*_TABLE, "session_column", "sessions", "name")),
    "packed": Reader(read_packed, ("atlas", "sessions", "name")),
    "fc": Reader(read_fc, (*_TABLE, "session_column", "sessions", "measure", "name")),
}


def import_cohort(kind: str, src: str | Path, out: str | Path, **options: Any) -> Cohort:
    """Import a folder of scans as a cohort."""
    if kind not in READERS:
        raise BrioError(f"there is no kind of cohort '{kind}', {nearest(kind, READERS)}")
    selected = _select_options(kind, options)
    refuse_existing(out)
    return READERS[kind].read(src, out, selected)


def read_scans_to_predict(
    src: str | Path,
    out: str | Path,
    *,
    kind: str | None = None,
    tr: float | None = None,
    known_header: Sequence[str] = (),
    **options: Any,
) -> Cohort:
    """Read scans to be predicted: one is enough, and they need no sites, labels or participants table.

    Where there is a table, it lists the scans to read; its sites and labels are read as :func:`import_cohort` reads
    them, and rows without them are kept. Where every scan has both, the cohort is that of :func:`import_cohort`, with
    the same fingerprint.
    """
    src = Path(src)
    to_predict = ScansToPredict(tr, tuple(known_header))
    if kind is None:
        kind = find_layout(src, options.get("participants"))
    elif kind not in LAYOUTS:
        raise BrioError(f"there is no layout '{kind}', {nearest(kind, LAYOUTS)}")
    if kind == "cohort":
        return _load_scans_to_predict(src, {"tr": tr, **options})
    selected = _select_options(kind, {"name": describe_name(get_series_stem(src.resolve())), **options})
    refuse_existing(out)
    return READERS[kind].read(src, out, replace(selected, to_predict=to_predict))


def _load_scans_to_predict(folder: Path, options: dict[str, Any]) -> Cohort:
    """Load a cohort folder, which states everything itself."""
    cohort = Cohort.load(folder)
    require_frames(cohort.participants, cohort.name, "a model")
    cohort.verify()
    values = {option: value for option, value in options.items() if value is not None}
    atlas = values.pop("atlas", cohort.atlas.name)
    if canonicalise_atlas_name(atlas).lower() != cohort.atlas.name.lower():
        raise BrioError(f"{folder}: the scans of this cohort are in atlas '{cohort.atlas.name}', not '{atlas}'")
    if values:
        flags = ", ".join(map(_format_flag, values))
        raise BrioError(f"{folder}: is a cohort folder, which takes no {flags}; give the files it was made of instead")
    return replace(cohort, provenance={"kind": "cohort", "source": cohort.name, "cohort": cohort.provenance})


def _select_options(kind: str, values: dict[str, Any]) -> ImportOptions:
    """Select the options that are given, and refuse those that the reader does not take."""
    reader = READERS[kind]
    values = {option: value for option, value in values.items() if value is not None}
    for option in values:
        if option not in reader.options and option not in (*_ROI_OPTIONS, "frames_in_rows"):
            raise BrioError(
                f"kind '{kind}' does not take {_format_flag(option)}; "
                f"its options are {', '.join(map(_format_flag, [*reader.options, *_ROI_OPTIONS]))}"
            )
    for option in reader.required:
        if option not in values:
            raise BrioError(f"kind '{kind}' needs {_format_flag(option)}")
    refuse_file_as_name(values.get("atlas"))
    rois = RoiChoice.from_options(*(values.pop(option, None) for option in _ROI_OPTIONS))
    return ImportOptions(**values, rois=rois)


def summarise_import(cohort: Cohort) -> str:
    """Summarise in one line how many scans were imported and skipped."""
    skipped = cohort.provenance.get("skipped", [])
    imported = f"{format_count(len(cohort), 'scan')} imported"
    if not skipped:
        return f"{imported}, nothing skipped"
    left_out = format_count(len(skipped), "row or file", "rows or files")
    return f"{imported}, {left_out} skipped: {summarise_skipped(skipped)}; cohort.json lists each under 'skipped'"


def summarise_scans_to_predict(cohort: Cohort) -> str:
    """Summarise in one line in which layout scans were found, how many have a label, and what was skipped."""
    kind, n_scans = cohort.provenance["kind"], len(cohort)
    unlabelled, skipped = cohort.provenance.get("unlabelled", []), cohort.provenance.get("skipped", [])
    parts = [
        f"{format_count(n_scans, 'scan')} read in the layout '{kind}' ({LAYOUTS[kind]})",
        f"with a label: {int(cohort.labelled.sum())}" + (f" ({summarise_skipped(unlabelled)})" if unlabelled else ""),
        f"skipped: {len(skipped)}" + (f" ({summarise_skipped(skipped)})" if skipped else ""),
    ]
    return "; ".join(parts)


def _format_flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"

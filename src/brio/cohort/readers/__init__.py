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
from ..given_fc import require_frames
from .assembly import canonicalise_atlas_name, summarise_skipped
from .atlas_table import add_atlas, load_atlas, read_atlas_table, refuse_file_as_name
from .bids import read_bids
from .column_names import summarise_columns
from .dpabi import read_dpabi
from .fc import read_fc
from .fetch import fetch_abide
from .input_files import describe_name
from .layout import LAYOUTS, find_layout
from .options import ImportOptions
from .packed import read_packed
from .pcp import read_pcp
from .rois import RoiChoice
from .series import Series, get_series_stem, read_series
from .table import read_files
from .to_predict import ScansToPredict

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
    """A reader, and which options it takes.

    Attributes
    ----------
    read : function of (src, out, ImportOptions)
        Returns the cohort.
    options : tuple of str
        Names of attributes of :class:`ImportOptions`, besides those that all readers take.
    required : tuple of str
        Those that must be given.
    """

    read: Callable[[str | Path, str | Path, ImportOptions], Cohort]
    options: tuple[str, ...]
    required: tuple[str, ...] = ()


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
    """Import a folder of scans as a cohort.

    Parameters
    ----------
    kind : {"pcp", "dpabi", "bids", "table", "packed", "fc"}
        Layout of the folder, see the table of this module.
    src : str or Path
        Folder with the scans.
    out : str or Path
        Cohort folder to write; must not exist yet. After an error nothing is left there.
    **options
        Options of the reader: attributes of :class:`ImportOptions`, ``atlas_table`` and ``drop_roi``. None means not
        given.

    Returns
    -------
    Cohort
        ``cohort.provenance["skipped"]`` lists what was skipped and why; :func:`summarise_import` puts it in one line.
        :func:`summarise_columns` says which covariates were found.
        ``cohort.provenance["warnings"]`` has sentences about ROIs and sites, where there is something to say.

    Raises
    ------
    BrioError
        If the kind or an option is unknown, ``out`` exists, or a file cannot be read.

    Examples
    --------
    >>> import_cohort("tabel", "scans", "cohort")
    Traceback (most recent call last):
    ...
    brio.errors.BrioError: there is no kind of cohort 'tabel', did you mean 'table'?
    """
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

    Parameters
    ----------
    src : str or Path
        A cohort folder, a folder of scans, or one file.
    out : str or Path
        Cohort folder to write; must not exist yet. After an error nothing is left there. If ``src`` is a cohort folder
        nothing is written.
    kind : {"cohort", "pcp", "dpabi", "bids", "table", "packed"}, optional
        Layout of the scans; found from the names of the files by default. A folder of files without a table is of the
        layout ``table``; each participant is called by the name of the file.
    tr : float, optional
        Repetition time in seconds of the scans whose file and participants table state none.
    known_header : sequence of str
        Column names of the files that the model was fitted to (``model.training.header``). With a table of the ROIs,
        names that appear more than once in a header are refused unless it is this one, or in the order of the table.
    **options
        Options of the reader. None means not given. A cohort folder takes ``atlas`` alone, which must be its own.

    Returns
    -------
    Cohort
        Columns ``site`` and ``label`` of its participants are absent, or have gaps. ``cohort.labelled`` says which
        scans have a label; ``provenance["unlabelled"]`` lists labels of neither class.

    Raises
    ------
    BrioError
        If there is no scan, the layout is unknown or ambiguous, the scans differ in their ROIs, or a file cannot be
        read.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.save(folder / "007.npy", np.random.default_rng(0).normal(size=(20, 3)))
    >>> cohort = read_scans_to_predict(folder / "007.npy", folder / "scans", tr=2.0)
    >>> cohort.ids.tolist(), cohort.labelled.tolist(), cohort.participants["tr"].tolist()
    (['007'], [False], [2.0])
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
    """Summarise in one line how many scans were imported and skipped.

    Parameters
    ----------
    cohort : Cohort
        As returned by :func:`import_cohort`.

    Returns
    -------
    str

    Examples
    --------
    >>> import numpy as np
    >>> scans = [np.random.default_rng(i).normal(size=(20, 3)) for i in range(2)]
    >>> skipped = [{"participant_id": "p3", "reason": "no file"}]
    >>> cohort = Cohort.from_scans(scans, site=["A", "A"], label=[0, 1], provenance={"skipped": skipped})
    >>> summarise_import(cohort)
    "2 scans imported, 1 row or file skipped: no file (1); cohort.json lists each under 'skipped'"
    """
    skipped = cohort.provenance.get("skipped", [])
    imported = f"{format_count(len(cohort), 'scan')} imported"
    if not skipped:
        return f"{imported}, nothing skipped"
    left_out = format_count(len(skipped), "row or file", "rows or files")
    return f"{imported}, {left_out} skipped: {summarise_skipped(skipped)}; cohort.json lists each under 'skipped'"


def summarise_scans_to_predict(cohort: Cohort) -> str:
    """Summarise in one line in which layout scans were found, how many have a label, and what was skipped.

    Parameters
    ----------
    cohort : Cohort
        As returned by :func:`read_scans_to_predict`.

    Returns
    -------
    str

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.save(folder / "007.npy", np.random.default_rng(0).normal(size=(20, 3)))
    >>> summarise_scans_to_predict(read_scans_to_predict(folder / "007.npy", folder / "scans"))
    "1 scan read in the layout 'table' (one file per scan); with a label: 0; skipped: 0"
    """
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

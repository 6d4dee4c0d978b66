"""Assemble a cohort from the scans of a reader: one order of ROIs, one atlas, provenance.

Every reader ends in :func:`write_scans`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from ...errors import BrioError, nearest
from ...version import __version__
from ..atlas import Atlas, load_bundled_atlas
from ..cohort import Cohort
from ..writer import CohortWriter
from .series import Series
from .to_predict import ScansToPredict

__all__ = [
    "RoiOrder",
    "Skipped",
    "canonicalise_atlas_name",
    "check_source",
    "choose_atlas_label",
    "describe_import",
    "refuse_existing",
    "resolve_atlas",
    "summarise_skipped",
    "write_scans",
]

Strictness = Literal["free", "count", "names"]
Skipped = dict[str, str]
"""Entry of ``provenance["skipped"]``: ``participant_id``, ``reason`` and perhaps ``file``."""


@dataclass(frozen=True)
class RoiOrder:
    """Order of the ROI columns that all scans are brought into.

    Attributes
    ----------
    n_rois : int
    names : tuple of str, or None
        Column names, where the files have a header.
    path : Path
        File that set the order, for error messages.
    """

    n_rois: int
    names: tuple[str, ...] | None
    path: Path

    @classmethod
    def from_series(cls, series: Series, path: Path) -> RoiOrder:
        """Take the order of the columns of a series.

        Parameters
        ----------
        series : Series, frames of shape [T, P]
        path : Path
            Its file.

        Returns
        -------
        RoiOrder
        """
        return cls(series.frames.shape[1], series.columns, path)

    def reorder(self, series: Series, path: Path) -> np.ndarray:
        """Bring the columns of a scan into this order. Columns are matched by name, never guessed.

        Parameters
        ----------
        series : Series, frames of shape [T, P]
        path : Path
            Its file, for error messages.

        Returns
        -------
        ndarray of float32, shape [T, P]

        Raises
        ------
        BrioError
            If the number of columns or their names differ.
        """
        if series.frames.shape[1] != self.n_rois:
            raise BrioError(
                f"{path}: {series.frames.shape[1]} ROIs, but {self.path} has {self.n_rois}; "
                "all scans need the same parcellation"
            )
        if self.names == series.columns:
            return series.frames
        if self.names is None or series.columns is None:
            with_names, without = (path, self.path) if self.names is None else (self.path, path)
            raise BrioError(
                f"{without}: has no column names, but {with_names} has; the order of ROIs cannot be checked"
            )
        position = {name: i for i, name in enumerate(series.columns)}
        if len(position) != self.n_rois:
            raise BrioError(f"{path}: column '{_find_repeated(series.columns)}' appears more than once in the header")
        absent = [name for name in self.names if name not in position]
        if absent:
            extra = sorted(set(position) - set(self.names))
            raise BrioError(
                f"{path}: has ROI '{extra[0]}' but not '{absent[0]}' of {self.path}; the parcellations differ"
            )
        return series.frames[:, [position[name] for name in self.names]]


def _find_repeated(names: Iterable[str]) -> str:
    """Return the most frequent of some names."""
    counts = pd.Series(list(names)).value_counts()
    return str(counts.index[0])


def resolve_atlas(
    name: str, series: Series, path: Path, strictness: Strictness = "free"
) -> tuple[Atlas, RoiOrder, str]:
    """Determine the atlas of a cohort from its name and its first scan.

    A bundled atlas is used if the number of ROIs agrees and the header, if there is one, holds its names, codes or
    indices in any order. Otherwise the ROIs are named by the header, or stay unnamed.

    Parameters
    ----------
    name : str
        Name of the atlas.
    series : Series, frames of shape [T, P]
        The first scan.
    path : Path
        Its file, for error messages.
    strictness : {"free", "count", "names"}
        What must agree with a bundled atlas of that name: nothing, the number of ROIs, or the header as well.

    Returns
    -------
    atlas : Atlas
    order : RoiOrder
        In terms of the column names of the files.
    origin : str
        Where names and order came from, for the provenance.

    Raises
    ------
    BrioError
        If the file does not agree with the bundled atlas as ``strictness`` requires.
    """
    n_rois = series.frames.shape[1]
    if series.columns is not None and len(set(series.columns)) < n_rois:
        raise BrioError(f"{path}: column '{_find_repeated(series.columns)}' appears more than once in the header")
    bundled = load_bundled_atlas(name)
    if bundled is not None and len(bundled) == n_rois:
        if series.columns is None:
            if strictness == "names":
                raise BrioError(
                    f"{path}: has no header; the order of its columns cannot be checked against {bundled.name}"
                )
            origin = "the files name no columns: taken in the order of the bundled atlas"
            return bundled, RoiOrder(n_rois, None, path), origin
        for key in ("name", "code", "index"):
            names = tuple(bundled.rois[key].astype(str)) if key in bundled.rois else ()
            if set(names) == set(series.columns):
                return bundled, RoiOrder(n_rois, names, path), f"header matched to the bundled atlas by {key}"
        if strictness == "names":
            key = "code" if "code" in bundled.rois else "index"
            unknown = sorted(set(series.columns) - set(bundled.rois[key].astype(str)))
            raise BrioError(f"{path}: the header names '{unknown[0]}', which is no {key} of {bundled.name}")
    elif bundled is not None and strictness != "free":
        hint = "; its rows seem to be the ROIs: transpose the files" if len(series.frames) == len(bundled) else ""
        raise BrioError(f"{path}: has {n_rois} columns, atlas {bundled.name} has {len(bundled)} ROIs{hint}")
    if series.columns is not None:
        atlas = Atlas(name, pd.DataFrame({"name": series.columns}))
        return atlas, RoiOrder.from_series(series, path), "names from the header"
    return Atlas.unnamed(n_rois, name), RoiOrder(n_rois, None, path), "the ROIs have no names"


def write_scans(
    out: str | Path,
    scans: Iterable[tuple[dict[str, Any], Path, Series]],
    *,
    atlas: str,
    name: str,
    classes: tuple[str, str],
    provenance: dict[str, Any],
    strictness: Strictness = "free",
    to_predict: ScansToPredict | None = None,
) -> Cohort:
    """Write scans one by one to a cohort folder and open it.

    Parameters
    ----------
    out : str or Path
        Cohort folder to write.
    scans : iterable of (dict, Path, Series)
        Row of the participants table, file and series of each scan.
    atlas : str
        Name of the atlas.
    name : str
        Name of the cohort.
    classes : tuple of two str
        Names of the labels 0 and 1.
    provenance : dict
        From :func:`describe_import`.
    strictness : {"free", "count", "names"}
        See :func:`resolve_atlas`.
    to_predict : ScansToPredict, optional
        Sites and labels are optional if this is given.

    Returns
    -------
    Cohort

    Raises
    ------
    BrioError
        If there is no scan, or the scans differ in their ROIs.
    """
    stream = iter(scans)
    first = next(stream, None)
    if first is None:
        raise BrioError(f"{provenance['source']}: no scan to import: {summarise_skipped(provenance['skipped'])}")
    if to_predict is not None and to_predict.tr is not None:
        provenance["options"]["tr"] = to_predict.tr
    resolved, order, provenance["rois"] = resolve_atlas(atlas, first[2], first[1], strictness)
    with CohortWriter(out, name, resolved, classes, provenance, labels_required=to_predict is None) as writer:
        for row, path, series in chain([first], stream):
            tr = series.tr if to_predict is None else to_predict.choose_tr(series.tr, row.get("tr"), path)
            stated = {} if tr is None or row.get("tr") is not None else {"tr": tr}
            writer.add(order.reorder(series, path), row | stated)
    return Cohort.load(out)


def describe_import(
    kind: str,
    src: Path,
    options: Mapping[str, Any],
    n_files: int,
    skipped: list[Skipped],
    unlabelled: Sequence[Skipped] = (),
) -> dict[str, Any]:
    """Describe an import for the provenance of the cohort. Folders are named without their path.

    Parameters
    ----------
    kind : str
        The reader.
    src : Path
        Folder with the scans.
    options : mapping
        Options of the reader; None means not given.
    n_files : int
        Files that were read.
    skipped : list of dict
        Entries of :func:`brio.cohort.readers.participants.describe_skipped`.
    unlabelled : sequence of dict
        The same of scans that are read although their label is of neither class.

    Returns
    -------
    dict
    """
    return {
        "kind": kind,
        "source": src.resolve().name,
        "options": {k: v.name if isinstance(v, Path) else v for k, v in options.items() if v is not None},
        "brio": __version__,
        "n_files": n_files,
        "skipped": skipped,
    } | ({"unlabelled": list(unlabelled)} if unlabelled else {})


def summarise_skipped(skipped: list[Skipped]) -> str:
    """Count the reasons for skipping, most frequent first.

    Returns
    -------
    str
        For example ``no file (12), no label (3)``.
    """
    counts = pd.Series([entry["reason"] for entry in skipped], dtype=object).value_counts(sort=True)
    return ", ".join(f"{reason} ({n})" for reason, n in counts.items()) or "nothing was found"


def canonicalise_atlas_name(name: str) -> str:
    """Return the bundled name of an atlas (``aal116`` for ``aal``), or the name as it is.

    Returns
    -------
    str
    """
    bundled = load_bundled_atlas(name)
    return name if bundled is None else bundled.name


def choose_atlas_label(available: Iterable[str], requested: str | None, src: Path) -> str:
    """Choose the atlas to read: the requested one, or the only one there is.

    Parameters
    ----------
    available : iterable of str
        Atlas labels in the names of the files.
    requested : str or None
        Value of ``--atlas``.
    src : Path
        Folder with the files, for error messages.

    Returns
    -------
    str
        A label as the files spell it.

    Raises
    ------
    BrioError
        If there are several and none is requested, or the requested one is not there.
    """
    labels = sorted(set(available))
    if requested is None:
        if len(labels) != 1:
            raise BrioError(f"{src}: holds the atlases {', '.join(labels)}; choose one with --atlas")
        return labels[0]
    if requested in labels:
        return requested
    name = canonicalise_atlas_name(requested).lower()
    matching = [label for label in labels if canonicalise_atlas_name(label).lower() == name]
    if not matching:
        raise BrioError(f"{src}: holds no atlas '{requested}', {nearest(requested, labels)}")
    return matching[0]


def check_source(src: str | Path, to_predict: ScansToPredict | None = None) -> Path:
    """Check that the folder with the scans exists; scans to predict may be one file.

    Returns
    -------
    Path

    Raises
    ------
    BrioError
        If ``src`` is not there.
    """
    src = Path(src)
    if not (src.is_dir() or (to_predict is not None and src.is_file())):
        raise BrioError(f"{src}: no such {'folder' if to_predict is None else 'file or folder'}")
    return src


def refuse_existing(out: str | Path) -> None:
    """Raise :class:`BrioError` if ``out`` exists, before any work is done."""
    if Path(out).exists():
        raise BrioError(f"{out}: exists already; choose another --out or remove it")

"""What every reader ends in: one order of ROIs, one atlas, a cohort folder that says where it came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from ...errors import BrioError, nearest
from ..atlas import Atlas, bundled_atlas
from ..cohort import Cohort
from ..writer import CohortWriter
from .series import Series

__all__ = [
    "RoiOrder",
    "canonical",
    "choose",
    "describe",
    "reasons",
    "refuse_existing",
    "settle_atlas",
    "source_folder",
    "write_scans",
]

Strictness = Literal["free", "count", "names"]


@dataclass(frozen=True)
class RoiOrder:
    """The ROI columns all scans are brought to, and the file that set them."""

    n_rois: int
    names: tuple[str, ...] | None
    path: Path

    @classmethod
    def of(cls, series: Series, path: Path) -> RoiOrder:
        return cls(series.frames.shape[1], series.columns, path)

    def bring(self, series: Series, path: Path) -> np.ndarray:
        """Frames of shape [T, P] with the columns in this order; columns are moved by name, never guessed."""
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
        place = {name: i for i, name in enumerate(series.columns)}
        if len(place) != self.n_rois:
            raise BrioError(f"{path}: column '{_doubled(series.columns)}' appears more than once in the header")
        absent = [n for n in self.names if n not in place]
        if absent:
            extra = sorted(set(place) - set(self.names))
            raise BrioError(
                f"{path}: has ROI '{extra[0]}' but not '{absent[0]}' of {self.path}; the parcellations differ"
            )
        return series.frames[:, [place[n] for n in self.names]]


def _doubled(names: Iterable[str]) -> str:
    counts = pd.Series(list(names)).value_counts()
    return str(counts.index[0])


def settle_atlas(name: str, series: Series, path: Path, strictness: Strictness = "free") -> tuple[Atlas, RoiOrder, str]:
    """The atlas of a cohort from its name and its first scan.

    A bundled atlas is taken where the number of ROIs agrees and the header, if there is one, holds its names,
    codes or indices in any order. Else the header names the ROIs, else nothing does.

    Parameters
    ----------
    name, series, path
        What the atlas is called; the first scan and its file.
    strictness : {"free", "count", "names"}
        What must agree with a bundled atlas of that name: nothing, the number of ROIs, or the header as well.

    Returns
    -------
    atlas : Atlas
    order : RoiOrder
        In the words of the files' header.
    how : str
        Where names and order came from, for the provenance.
    """
    n = series.frames.shape[1]
    if series.columns is not None and len(set(series.columns)) < n:
        raise BrioError(f"{path}: column '{_doubled(series.columns)}' appears more than once in the header")
    bundled = bundled_atlas(name)
    if bundled is not None and len(bundled) == n:
        if series.columns is None:
            if strictness == "names":
                raise BrioError(
                    f"{path}: has no header; the order of its columns cannot be checked against {bundled.name}"
                )
            return (
                bundled,
                RoiOrder(n, None, path),
                "the files name no columns: taken in the order of the bundled atlas",
            )
        for key in ("name", "code", "index"):
            words = tuple(bundled.rois[key].astype(str)) if key in bundled.rois else ()
            if set(words) == set(series.columns):
                return bundled, RoiOrder(n, words, path), f"header matched to the bundled atlas by {key}"
        if strictness == "names":
            key = "code" if "code" in bundled.rois else "index"
            unknown = sorted(set(series.columns) - set(bundled.rois[key].astype(str)))
            raise BrioError(f"{path}: the header names '{unknown[0]}', which is no {key} of {bundled.name}")
    elif bundled is not None and strictness != "free":
        turned = "; its rows seem to be the ROIs: transpose the files" if len(series.frames) == len(bundled) else ""
        raise BrioError(f"{path}: has {n} columns, atlas {bundled.name} has {len(bundled)} ROIs{turned}")
    if series.columns is not None:
        return Atlas(name, pd.DataFrame({"name": series.columns})), RoiOrder.of(series, path), "names from the header"
    return Atlas.unnamed(n, name), RoiOrder(n, None, path), "the ROIs have no names"


def write_scans(
    out: str | Path,
    scans: Iterable[tuple[dict[str, Any], Path, Series]],
    *,
    atlas: str,
    name: str,
    classes: tuple[str, str],
    provenance: dict[str, Any],
    strictness: Strictness = "free",
) -> Cohort:
    """Write scans (participant row, file, series) one by one as a cohort folder and open it."""
    stream = iter(scans)
    first = next(stream, None)
    if first is None:
        raise BrioError(f"{provenance['source']}: no scan to import: {reasons(provenance['skipped'])}")
    known, order, provenance["rois"] = settle_atlas(atlas, first[2], first[1], strictness)
    with CohortWriter(out, name, known, classes, provenance) as writer:
        for row, path, series in chain([first], stream):
            tr = {} if series.tr is None or row.get("tr") is not None else {"tr": series.tr}
            writer.add(order.bring(series, path), row | tr)
    return Cohort.load(out)


def describe(
    kind: str, src: Path, options: Mapping[str, Any], n_files: int, skipped: list[dict[str, str]]
) -> dict[str, Any]:
    """The provenance of an import; folders are named without their path."""
    from ...version import __version__

    given = {k: v.name if isinstance(v, Path) else v for k, v in options.items() if v is not None}
    return {
        "kind": kind,
        "source": src.resolve().name,
        "options": given,
        "brio": __version__,
        "n_files": n_files,
        "skipped": skipped,
    }


def reasons(skipped: list[dict[str, str]]) -> str:
    """Why entries were skipped, most frequent first: ``no file (12), no label (3)``."""
    counts = pd.Series([s["reason"] for s in skipped], dtype=object).value_counts(sort=True)
    return ", ".join(f"{reason} ({n})" for reason, n in counts.items()) or "nothing was found"


def canonical(atlas: str) -> str:
    """The bundled name of an atlas (``aal`` is ``aal116``), else the name as it is."""
    bundled = bundled_atlas(atlas)
    return atlas if bundled is None else bundled.name


def choose(found: Iterable[str], asked: str | None, src: Path) -> str:
    """The one atlas label to read: the one asked for, or the only one there is."""
    labels = sorted(set(found))
    if asked is None:
        if len(labels) != 1:
            raise BrioError(f"{src}: holds the atlases {', '.join(labels)}; choose one with --atlas")
        return labels[0]
    chosen = [v for v in labels if v == asked] or [
        v for v in labels if canonical(v).lower() == canonical(asked).lower()
    ]
    if not chosen:
        raise BrioError(f"{src}: holds no atlas '{asked}', {nearest(asked, labels)}")
    return chosen[0]


def source_folder(src: str | Path) -> Path:
    """``src`` as a folder that exists."""
    src = Path(src)
    if not src.is_dir():
        raise BrioError(f"{src}: no such folder")
    return src


def refuse_existing(out: str | Path) -> None:
    """Say that ``out`` is taken before any work is done."""
    if Path(out).exists():
        raise BrioError(f"{out}: exists already; choose another --out or remove it")

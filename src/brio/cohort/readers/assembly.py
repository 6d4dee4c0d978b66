"""Assemble a cohort from the scans of a reader: one order of ROIs, one atlas, provenance.

Every reader ends in :func:`write_scans`.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...errors import BrioError, nearest
from ...formatting import format_count
from ...version import __version__
from ..atlas import load_bundled_atlas
from ..cohort import Cohort
from ..given_fc import FC_ONLY, refuse_fc
from ..sessions import JOINED_SCANS, hash_scan
from ..signal import MOST_SCANS, are_transposed, find_live_rois
from ..writer import CohortWriter
from .atlas_table import list_names
from .input_files import describe_name
from .options import ImportOptions
from .other_columns import describe_left_out, refuse_row_counters
from .rois import Strictness, has_repeated_names, name_columns, resolve_atlas
from .series import Series
from .to_predict import choose_tr

Skipped = dict[str, str]
"""Entry of ``provenance["skipped"]``: ``participant_id``, ``reason`` and perhaps ``file``."""


def write_scans(
    out: str | Path,
    scans: Iterable[tuple[dict[str, Any], Path, Series]],
    options: ImportOptions,
    *,
    atlas: str,
    name: str,
    classes: tuple[str, str],
    provenance: dict[str, Any],
    strictness: Strictness = "free",
    connectomes: bool = False,
) -> Cohort:
    """Write scans one by one to a cohort folder and open it."""
    rois, to_predict, name = options.rois, options.to_predict, options.name or name
    stream = iter(scans)
    first = next(stream, None)
    if first is None:
        raise BrioError(f"{provenance['source']}: no scan to import: {summarise_skipped(provenance['skipped'])}")
    if to_predict is not None and to_predict.tr is not None:
        provenance["options"]["tr"] = to_predict.tr
    provenance["options"] |= rois.describe_options()
    _refuse_row_counters(first[2], first[1], options, connectomes)  # first: their number may hide behind the atlas
    resolved, order, provenance["rois"], warnings = resolve_atlas(atlas, first[2], first[1], strictness, rois)
    if to_predict is not None and rois.table is not None:
        order.refuse_guessed_columns(rois.source, to_predict.known_header)
    if has_repeated_names(first[2].columns):  # a model then knows the order of the files
        provenance["header"] = list(first[2].columns or ())
    left_out: dict[tuple[int, str], list[Path]] = {}
    sites: list[str | None] = []
    sample: list[np.ndarray] = []
    alive = np.zeros(len(resolved), dtype=bool)
    lengths = set()
    with CohortWriter(out, name, resolved, classes, provenance, labels_required=options.labels_required) as writer:
        for row, path, series in chain([first], stream):
            if sites:
                _refuse_row_counters(series, path, options, connectomes)
            sites.append(row.get("site"))
            for column in series.left_out:
                left_out.setdefault(column, []).append(path)
            tr = choose_tr(series.tr, row.get("tr"), path, None if to_predict is None else to_predict.tr)
            stated = {} if tr is None or row.get("tr") is not None else {"tr": tr}
            frames = order.reorder(series, path)
            lengths.add(len(frames))
            if not connectomes:
                refuse_fc(frames, str(path))
                alive |= find_live_rois(frames)
                sample += [frames] if len(sample) < MOST_SCANS else []
            if series.parts:  # a model then recognises each of them
                parts = [hash_scan(order.reorder(part, path)) for part in series.parts]
                provenance.setdefault(JOINED_SCANS, {})[hash_scan(frames)] = parts
            if connectomes:  # the rows too: those of the transposed matrix are its columns
                frames, stated = order.reorder(replace(series, frames=frames.T), path), {FC_ONLY: 1}
            writer.add(frames, row | stated)
        unsure = resolved.is_unnamed and to_predict is None and not options.frames_in_rows
        if unsure and len(lengths) == 1 and are_transposed(sample):
            raise BrioError(
                f"{first[1]}: has {sample[0].shape[0]} rows, which correlate alike in all scans as ROIs do, and "
                f"{sample[0].shape[1]} columns, which do not; rows must be frames: transpose the files, or say "
                "--frames-in-rows if they are"
            )
        if not connectomes and to_predict is None and not alive.all():
            flat = resolved.rois["name"][~alive].astype(str).tolist()
            flags = " ".join(f"--drop-roi {shlex.quote(name)}" for name in flat[:6])
            warnings.append(
                f"{list_names(flat)}: without signal in every scan; if it is no region (a constant, or a separator at "
                f"the end of each line), leave it out: {flags}"
            )
        warnings += describe_left_out(left_out, len(sites)) + _describe_similar(Counter(filter(None, sites)))
        if warnings:
            provenance["warnings"] = warnings
    return Cohort.load(out)


def _refuse_row_counters(series: Series, path: Path, options: ImportOptions, connectomes: bool) -> None:
    """Refuse a column that counts the rows, unless it is dropped. Joined scans are looked at one by one."""
    drop = frozenset(options.rois.drop)
    for scan in () if connectomes else series.parts or (series,):
        refuse_row_counters(scan.frames, name_columns(scan), path, drop)


def _describe_similar(sites: Counter[str]) -> list[str]:
    """Describe sites whose names differ only in capitals, blanks or the way to write a number, for warnings."""
    spellings: dict[str, list[str]] = {}
    for site in sites:
        number = site.strip().lstrip("0").removesuffix(".0")  # 01, 1 and 1.0
        key = number if number.isdecimal() else " ".join(site.split()).casefold()
        spellings.setdefault(key, []).append(site)
    warnings = []
    for same in filter(lambda names: len(names) > 1, spellings.values()):
        counted = " and ".join(f"'{site}' ({format_count(sites[site], 'scan')})" for site in same)
        warnings.append(
            f"the sites {counted} differ in capitals, blanks or the way to write a number alone and count as "
            f"{len(same)}; if they are one, give them one name in the participants table and import again"
        )
    return warnings


def describe_import(
    kind: str,
    src: Path,
    options: Mapping[str, Any],
    n_files: int,
    skipped: list[Skipped],
    unlabelled: Sequence[Skipped] = (),
    renamed: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Describe an import for the provenance of the cohort. Folders are named without their path."""
    stated = {option: value for option, value in options.items() if value is not None}
    described = {
        "kind": kind,
        "source": describe_name(src.resolve().name),
        "options": {k: describe_name(v.name) if isinstance(v, Path) else v for k, v in stated.items()},
        "brio": __version__,
        "n_files": n_files,
        "skipped": skipped,
    }
    described |= {"unlabelled": list(unlabelled)} if unlabelled else {}
    return described | ({"renamed_columns": dict(renamed)} if renamed else {})


def summarise_skipped(skipped: list[Skipped]) -> str:
    """Count the reasons for skipping, most frequent first."""
    counts = pd.Series([entry["reason"] for entry in skipped], dtype=object).value_counts(sort=True)
    return ", ".join(f"{reason} ({n})" for reason, n in counts.items()) or "nothing was found"


def canonicalise_atlas_name(name: str) -> str:
    """Return the bundled name of an atlas (``aal116`` for ``aal``), or the name as it is."""
    bundled = load_bundled_atlas(name)
    return name if bundled is None else bundled.name


def choose_atlas_label(available: Iterable[str], requested: str | None, src: Path) -> str:
    """Choose the atlas to read: the requested one, or the only one there is."""
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


def check_source(src: str | Path, options: ImportOptions) -> Path:
    """Check that the folder with the scans exists; scans to predict may be one file."""
    src = Path(src)
    if src.is_dir() or (options.to_predict is not None and src.is_file()):
        return src
    if src.exists():
        raise BrioError(f"{src}: is a file; give the folder that holds the scans, such as {src.parent}")
    raise BrioError(f"{src}: no such {'folder' if options.to_predict is None else 'file or folder'}")

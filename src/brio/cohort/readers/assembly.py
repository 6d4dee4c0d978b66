"""Put scans together to a cohort: what the user said, ROIs, labels, sessions."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain, combinations
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from ...errors import BrioError, nearest
from ...formatting import format_count
from ...version import __version__
from ..atlas import canonicalise_atlas_name
from ..auditing.audit import DEFAULT_RULES
from ..auditing.findings import correlate_scans
from ..cohort import Cohort, CohortWriter
from ..scans import (
    FC_ONLY,
    JOINED_SCANS,
    MOST_SCANS,
    SESSION_FRAMES,
    are_transposed,
    clean_scan,
    find_live_rois,
    hash_scan,
    is_repetition_time,
    refuse_fc,
)
from .participants import ClassValues, Roster, describe_skipped
from .rois import RoiChoice, RoiOrder, Strictness, list_names, name_columns, resolve_atlas
from .series import Series, describe_name, parse_float, read_series, refuse_row_counters

TR_TOLERANCE = 0.005  # seconds by which two statements of a repetition time may differ


def choose_tr(in_file: float | None, in_table: str | None, path: Path, default: float | None = None) -> float | None:
    """Choose the repetition time of a scan: that of its file or of the table, which must agree, else the default.

    Returns seconds; None where nobody states it.
    """
    if in_table is None:
        return default if in_file is None else in_file
    stated = parse_float(in_table)
    if not is_repetition_time(stated):
        raise BrioError(f"{path}: its tr in the participants table is '{in_table}'; write seconds, for example 2")
    if in_file is not None and abs(in_file - stated) > TR_TOLERANCE:
        raise BrioError(
            f"{path}: its repetition time is {in_file:g} s in the file, but {stated:g} s in the table; correct the "
            "column 'tr' of the participants table"
        )
    return stated


@dataclass(frozen=True, eq=False)
class ImportOptions:
    """What a user says about the files to import; None where not given. Readers take some of them, see ``READERS``."""

    atlas: str | None = None
    participants: str | Path | None = None  # the participants table (tsv or csv), if it is not in its usual place
    id_column: str | None = None
    site_column: str | None = None
    label_column: str | None = None
    patient: ClassValues = None
    control: ClassValues = None
    task: str | None = None  # of BIDS derivatives alone, see brio.cohort.readers.bids.find_bids
    match: str | None = None
    runs: str | None = None
    session_column: str | None = None
    sessions: str | None = None
    measure: str | None = None  # of connectomes alone, see brio.cohort.readers.table.find_fc
    tr: float | None = None  # of scans to predict alone: seconds, where no file or table states them
    name: str | None = None  # name of the cohort
    frames_in_rows: bool = False  # whether to take rows as frames although they seem to be the ROIs
    rois: RoiChoice = field(default_factory=RoiChoice)  # table of the ROIs, and ROIs to drop
    labels_required: bool = True  # False for scans to predict: one scan without site and label is enough
    known_header: tuple[str, ...] = ()  # of scans to predict alone: the header of the scans of their model

    @property
    def columns(self) -> dict[str, Any]:
        """What :func:`~brio.cohort.readers.participants.read_roster` takes of them."""
        names = ("id_column", "site_column", "label_column", "patient", "control")
        return {name: getattr(self, name) for name in names}

    def describe(self, found: dict[str, Any]) -> dict[str, Any]:
        """Describe the options for the provenance; a reader may have found other values. Files without their path."""
        names = [option.name for option in fields(self)]
        stated = {name: getattr(self, name) for name in names[: names.index("name")]} | found
        if stated["participants"] is not None:
            stated["participants"] = describe_name(Path(stated["participants"]).name)
        stated["atlas_table"] = None if self.rois.table is None else self.rois.source
        stated["drop_roi"] = list(self.rois.drop) or None
        return {name: value for name, value in stated.items() if value is not None}


Row = dict[str, Any]
Skipped = dict[str, str]  # entry of provenance["skipped"]: participant_id, reason and perhaps file


@dataclass(frozen=True, eq=False)
class FoundScans:
    """What a layout holds: its scans, how to read them, and what the cohort is called."""

    roster: Roster  # classes of the cohort; participants that are skipped or have no label, columns that are renamed
    scans: Sequence[tuple[Row, Any]]  # row of the participants table and source of each scan
    read: Callable[[Any], tuple[Path, Series]]  # reads a source
    atlas: str
    name: str
    options: dict[str, Any]  # values of options that were found
    strictness: Strictness = "free"
    connectomes: bool = False
    n_files: int | None = None  # None where each source is a file, or a list of files
    notes: dict[str, Any] = field(default_factory=dict)  # further entries of the provenance


def read_file(path: Path) -> tuple[Path, Series]:
    """Read a source that is one file."""
    return path, read_series(path)


def import_scans(
    kind: str,
    find: Callable[[Path, ImportOptions], FoundScans],
    src: str | Path,
    out: str | Path,
    options: ImportOptions,
) -> Cohort:
    """Write the scans that a layout holds one by one to a cohort folder, and open it."""
    src, sessions, rois = Path(src), options.sessions, options.rois
    if sessions is not None and sessions not in SESSIONS:
        raise BrioError(f"sessions cannot be '{sessions}', {nearest(sessions, SESSIONS)}")
    if not src.is_dir() and not (src.is_file() and (kind == "fc" or not options.labels_required)):
        if src.exists():
            raise BrioError(f"{src}: is a file; give the folder that holds the scans, such as {src.parent}")
        raise BrioError(f"{src}: no such {'folder' if options.labels_required else 'file or folder'}")
    found = find(src, options)
    roster, connectomes = found.roster, found.connectomes
    one_or_all = sessions or (None if options.labels_required else "all")
    chosen, further = choose_sessions(found.scans, one_or_all, have_frames=not connectomes)
    sources = [source for _, several in chosen for source in several]
    provenance: dict[str, Any] = {
        "kind": kind,
        "source": describe_name(src.resolve().name),
        "options": options.describe(found.options),
        "brio": __version__,
        "n_files": found.n_files or sum(len(source) if isinstance(source, list) else 1 for source in sources),
        "skipped": roster.skipped + further,
    }
    provenance |= {"unlabelled": roster.unlabelled} if roster.unlabelled else {}
    provenance |= {"renamed_columns": roster.renamed} if roster.renamed else {}
    provenance |= found.notes
    stream = read_chosen(chosen, found.read, sessions)
    first = next(stream, None)
    if first is None:
        raise BrioError(f"{provenance['source']}: no scan to import: {summarise_skipped(provenance['skipped'])}")
    _refuse_row_counters(first[2], first[1], options, connectomes)  # first: their number may hide behind the atlas
    atlas, order, provenance["rois"], warnings = resolve_atlas(found.atlas, first[2], first[1], found.strictness, rois)
    if not options.labels_required and rois.table is not None:
        order.refuse_guessed_columns(rois.source, options.known_header)
    header = first[2].columns or ()
    if len(set(header)) < len(header):  # a model then knows the order of the files
        provenance["header"] = list(header)
    left_out: dict[tuple[int, str], list[Path]] = {}
    sites: list[str | None] = []
    sample: list[np.ndarray] = []
    alive = np.zeros(len(atlas), dtype=bool)
    lengths = set()
    name = options.name or found.name
    with CohortWriter(out, name, atlas, roster.classes, provenance, labels_required=options.labels_required) as writer:
        for row, path, series in chain([first], stream):
            if sites:
                _refuse_row_counters(series, path, options, connectomes)
            sites.append(row.get("site"))
            for column in series.left_out:
                left_out.setdefault(column, []).append(path)
            tr = choose_tr(series.tr, row.get("tr"), path, options.tr)
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
        unsure = atlas.is_unnamed and options.labels_required and not options.frames_in_rows
        if unsure and len(lengths) == 1 and are_transposed(sample):
            raise BrioError(
                f"{first[1]}: has {sample[0].shape[0]} rows, which correlate alike in all scans as ROIs do, and "
                f"{sample[0].shape[1]} columns, which do not; rows must be frames: transpose the files, or say "
                "--frames-in-rows if they are"
            )
        if not connectomes and options.labels_required and not alive.all():
            flat = atlas.rois["name"][~alive].astype(str).tolist()
            flags = " ".join(f"--drop-roi {shlex.quote(name)}" for name in flat[:6])
            warnings.append(
                f"{list_names(flat)}: without signal in every scan; if it is no region (a constant, or a separator at "
                f"the end of each line), leave it out: {flags}"
            )
        warnings += _describe_left_out(left_out, len(sites)) + _describe_similar(Counter(filter(None, sites)))
        if warnings:
            provenance["warnings"] = warnings
    return Cohort.load(out)


def _refuse_row_counters(series: Series, path: Path, options: ImportOptions, connectomes: bool) -> None:
    """Refuse a column that counts the rows, unless it is dropped. Joined scans are looked at one by one."""
    drop = frozenset(options.rois.drop)
    for scan in () if connectomes else series.parts or (series,):
        refuse_row_counters(scan.frames, name_columns(scan), path, drop)


def _describe_left_out(left_out: Mapping[tuple[int, str], Sequence[Path]], n_scans: int) -> list[str]:
    """Describe the columns that were left out since they count the rows and have no name of a region."""
    sentences = []
    for (number, name), paths in left_out.items():
        column = f"column {number}" + (f" ('{name}')" if name else "")
        share = f"all {n_scans}" if len(paths) == n_scans else f"{len(paths)} of {n_scans}"
        share = "" if n_scans == 1 else f" (in {share} scans)"
        sentences.append(f"{paths[0]}: {column} counts the rows and has no name of a region, so it was left out{share}")
    return sentences


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


def summarise_skipped(skipped: list[Skipped]) -> str:
    """Count the reasons for skipping, most frequent first."""
    counts = pd.Series([entry["reason"] for entry in skipped], dtype=object).value_counts(sort=True)
    return ", ".join(f"{reason} ({n})" for reason, n in counts.items()) or "nothing was found"


def choose_atlas(available: Mapping[str, Collection[str]], requested: str | None, src: Path) -> str:
    """Choose the atlas to read, of labels and the names each goes by: the requested one, or the only one there is."""
    labels = sorted(label for label, names in available.items() if requested is None or requested in names)
    if not labels and requested is not None:
        name = canonicalise_atlas_name(requested).lower()
        labels = sorted(
            label for label, names in available.items() if name in {canonicalise_atlas_name(n).lower() for n in names}
        )
        if not labels:
            raise BrioError(f"{src}: holds no atlas '{requested}', {nearest(requested, available)}")
    if len(labels) != 1:
        raise BrioError(f"{src}: holds the atlases {', '.join(labels)}; choose one with --atlas")
    return labels[0]


SESSIONS = ("first", "join", "average", "all")  # values of ``--sessions``

Source = TypeVar("Source")


def choose_sessions(
    scans: Sequence[tuple[Row, Source]], sessions: str | None, *, have_frames: bool = True
) -> tuple[list[tuple[Row, list[Source]]], list[Skipped]]:
    """Choose the scans to read of participants who have several."""
    groups: dict[str, list[tuple[Row, Source]]] = {}
    for row, source in scans:
        groups.setdefault(row["participant_id"], []).append((row, source))
    repeated = [name for name, group in groups.items() if len(group) > 1]
    if repeated and sessions is None:
        names = ", ".join(str(row.get("session")) for row, _ in groups[repeated[0]])
        of_frames = ", join (one long scan), average (mean connectome)" if have_frames else ""
        raise BrioError(
            f"{len(repeated)} of {len(groups)} participants have several scans ({repeated[0]}: sessions {names}); "
            f"choose with --sessions: first (the first scan of each){of_frames} or all (each scan a row, splits and "
            "statistics by participant)"
        )
    chosen: list[tuple[Row, list[Source]]] = []
    skipped: list[Skipped] = []
    for participant, group in groups.items():
        row = group[0][0]
        if len(group) == 1:
            chosen.append((row, [group[0][1]]))
        elif sessions == "all":
            chosen += [(own, [source]) for own, source in group]
        elif sessions == "first":
            chosen.append((row, [group[0][1]]))
            reason = "a further session, only the first was taken"
            skipped += [describe_skipped(participant, reason) for _ in group[1:]]
        else:
            for column in ("site", "label"):
                values = list(dict.fromkeys(str(own.get(column)) for own, _ in group))
                if len(values) > 1:
                    raise BrioError(
                        f"participant {participant} has scans with {column} {values[0]} and {values[1]}; they cannot "
                        "become one scan: correct the table, or keep one with --sessions first"
                    )
            joined = "+".join(str(own.get("session")) for own, _ in group)
            chosen.append((row | {"session": joined}, [source for _, source in group]))
    return chosen, skipped


def read_chosen(
    chosen: Iterable[tuple[Row, list[Source]]],
    read: Callable[[Source], tuple[Path, Series]],
    sessions: str | None = None,
) -> Iterator[tuple[Row, Path, Series]]:
    """Read scans one by one; several sources of a row become one scan."""
    for row, sources in chosen:
        paths, parts = zip(*map(read, sources), strict=True)
        scans = list(parts)
        if sessions == "average" and len(parts) > 1:
            # frames with missing values go now, so that the ends of sessions stay where they are recorded
            scans = [replace(part, frames=clean_scan(part.frames)[0]) for part in parts]
            row = row | {SESSION_FRAMES: "+".join(str(len(scan.frames)) for scan in scans)}
        joined = join_scans(scans, list(paths))
        yield row, paths[0], joined if len(parts) == 1 else replace(joined, parts=_list_parts(parts))


def join_scans(scans: list[Series], paths: list[Path]) -> Series:
    """Join scans of a participant end to end, with each ROI z-scored within each scan.

    Otherwise differences in level and scale between scans would appear as correlation. An ROI without signal in one of
    the scans has none in the joined scan (NaN).

    Shapes: scans [T_r, P]; returns [sum of T_r, P].
    """
    if len(scans) == 1:
        return scans[0]
    order = RoiOrder.from_series(scans[0], paths[0])
    frames = [order.reorder(scan, path) for scan, path in zip(scans, paths, strict=True)]
    for scan, path in zip(scans, paths, strict=True):
        if scan.tr != scans[0].tr:
            raise BrioError(f"{path}: repetition time {scan.tr}, but {scans[0].tr} in {paths[0]}; it cannot be joined")
    for i, j in combinations(range(len(frames)), 2):
        if _is_same_scan(frames[i], frames[j]):
            raise BrioError(
                f"{paths[j]}: is the same scan as {paths[i]} under another name; remove one, or import with --sessions "
                "all, so that 'brio audit' lists all such scans"
            )
    alive = np.logical_and.reduce([find_live_rois(f) for f in frames])
    joined = np.full((sum(len(f) for f in frames), order.n_rois), np.nan, dtype=np.float32)
    live = [f[:, alive] for f in frames]
    finite = [np.where(np.isfinite(x), x, np.nan).astype(np.float64) for x in live]
    joined[:, alive] = np.concatenate([(x - np.nanmean(x, axis=0)) / np.nanstd(x, axis=0) for x in finite])
    return replace(scans[0], frames=joined, parts=_list_parts(scans))


def _list_parts(scans: Sequence[Series]) -> tuple[Series, ...]:
    """List scans that are joined, each with the scans that it was joined of itself (runs of a session)."""
    return tuple(part for scan in scans for part in (scan, *scan.parts))


def _is_same_scan(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two scans are one: equal, or as alike as duplicates of the audit, from either end."""
    if a.shape == b.shape and np.array_equal(a, b, equal_nan=True):
        return True
    n = min(len(a), len(b))
    for x, y in ((a[:n], b[:n]), (a[-n:], b[-n:])) if len(a) != len(b) else ((a, b),):
        rois = find_live_rois(x) & find_live_rois(y)
        valid = np.isfinite(x[:, rois]).all(axis=1) & np.isfinite(y[:, rois]).all(axis=1)
        if valid.sum() < DEFAULT_RULES.min_frames or not rois.any():
            continue
        correlation = correlate_scans(x[valid][:, rois], y[valid][:, rois])
        if correlation is not None and correlation > DEFAULT_RULES.duplicate_correlation:
            return True
    return False

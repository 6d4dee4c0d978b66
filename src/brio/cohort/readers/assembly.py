"""Assemble scans into a cohort: the user's options, ROIs, labels and sessions."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...errors import BrioError, escape_controls, nearest
from ...formatting import format_count
from ...storage.disk import remove_tree
from ...version import __version__
from ..atlas import canonicalise_atlas_name
from ..auditing.audit import DEFAULT_RULES
from ..auditing.findings import correlate_scans
from ..cohort import LABEL_VALUES, Cohort, describe_codes, write_cohort
from ..scans import (
    FC_ONLY,
    JOINED_SCANS,
    MOST_SCANS,
    SESSION_FRAMES,
    UnknownMeasureError,
    are_transposed,
    clean_scan,
    find_live_rois,
    hash_scan,
    is_repetition_time,
    refuse_fc,
)
from ..values import MISSING, fold_value, group_alike, normalise_text, parse_number, shorten_list
from .participants import ImportOptions, Layout, Row, convert_sexes
from .rois import RoiOrder, name_columns, resolve_atlas
from .series import Series, describe_name, refuse_row_counters

TR_TOLERANCE = 0.005  # seconds by which two statements of a repetition time may differ


def choose_tr(in_file: float | None, in_table: str | None, path: Path, default: float | None = None) -> float | None:
    """Choose the repetition time of a scan from its file or the table, which must agree, or else the default.

    Returns seconds; None if it is not stated anywhere.
    """
    if in_table is None:
        return default if in_file is None else in_file
    stated = parse_number(normalise_text(in_table))
    if stated is None or not is_repetition_time(stated):
        raise BrioError(
            f"{path}: column 'tr' of the participants table is '{in_table}'; write the repetition "
            "time in seconds, for example 2"
        )
    if in_file is not None and abs(in_file - stated) > TR_TOLERANCE:
        problem = f"the repetition time is {in_file:g} s in the file, but {stated:g} s in the table"
        raise BrioError(f"{path}: {problem}; correct the one that is wrong")
    return stated


def import_scans(
    kind: str, find: Callable[[Path, ImportOptions], Layout], src: str | Path, out: str | Path, options: ImportOptions
) -> Cohort:
    """Write the scans that a layout holds one by one to a cohort folder, and open it.

    A scan that cannot be read, or that has other regions than most scans, is left out.
    """
    src, sessions = Path(src), options.sessions
    if sessions is not None and sessions not in SESSIONS:
        raise BrioError(f"--sessions cannot be '{sessions}'; {nearest(sessions, SESSIONS)}")
    if not src.is_dir() and not (src.is_file() and (kind == "fc" or not options.labels_required)):
        if src.exists():
            raise BrioError(f"{src}: is a file; give the folder of the scans, such as {src.parent}")
        raise BrioError(f"{src}: no such {'folder' if options.labels_required else 'file or folder'}")
    found = find(src, options)
    if found.table is not None:
        options = replace(options, atlas_table=found.table, atlas_source=f"the table of {found.options['atlas']}")
    for name, others in zip(options.class_names or (), reversed(found.classes), strict=False):
        if fold_value(name) in map(fold_value, others.split("/")):
            problem = f"'{name}' is a label of the other class ({others})"
            raise BrioError(f"--class-names: {problem}; give the name of controls first, then the name of patients")
    sex = f"{src}: column '{options.sex_column or found.renamed.get('sex', 'sex')}'"
    rows = [row for row, _ in found.scans]
    found.warnings += convert_sexes(rows, options, sex)
    for row in rows:
        row |= {c: normalise_text(v) for c, v in row.items() if isinstance(v, str) and c != "participant_id"}
    chosen = choose_sessions(found, sessions or (None if options.labels_required else "all"))
    head = {"kind": kind, "source": describe_name(src.resolve().name), "options": options.describe(found.options)}
    try:
        _write_scans(found, chosen, options, head, out)
    except DeviatingScanError as error:
        _write_scans(found, _keep_majority(found, chosen, options, error), options, head, out)
    if kind == "fmriprep" and options.workspace is not None:
        remove_tree(options.workspace)
    return Cohort.load(out)


Chosen = Sequence[tuple[Row, list[Any]]]  # row and sources of each scan of a cohort


class DeviatingScanError(BrioError):
    """A scan cannot be read, or cannot be put in the order of the first one."""


@contextmanager
def _find_deviation() -> Iterator[None]:
    """Turn errors about a scan into a kind of their own."""
    try:
        yield
    except UnknownMeasureError:
        raise
    except BrioError as error:
        raise DeviatingScanError(str(error)) from error


LEAST_AGREEMENT = 0.8  # share of scans that must have the same regions for the others to be left out


def _keep_majority(found: Layout, chosen: Chosen, options: ImportOptions, problem: DeviatingScanError) -> Chosen:
    """Keep the scans that have the regions of most, and record why the others are skipped."""
    regions: dict[int, tuple[bool, Any]] = {}  # of each scan that can be read: whether they are named, and their names
    reasons, paths = dict[int, str](), dict[int, Path]()
    for i, item in enumerate(chosen):
        try:
            ((_, paths[i], series),) = read_chosen(found, [item], options)
            _refuse_other_content(series.frames, paths[i], found)
            header, names = series.columns, frozenset(name_columns(series)) - set(options.drop_roi)
            regions[i] = header is not None, header if header and len({*header}) < len(header) else names
        except DeviatingScanError as error:
            place, _, reason = str(error).partition(": ")
            paths[i] = Path(place)
            reasons[i] = reason.replace(f"{paths[i].parent}{os.sep}", "")
    ((alike, n_alike),) = Counter(regions.values()).most_common(1) or [((False, ()), 0)]
    most = "most scans" if 2 * n_alike > len(chosen) else "the scans of the largest group"
    reasons |= {i: escape_controls(_compare_regions(own, alike, most)) for i, own in regions.items() if own != alike}
    if not n_alike or not reasons:
        raise problem
    if n_alike < LEAST_AGREEMENT * len(chosen):
        kinds = [reasons.get(i, f"{len(alike[1])} regions") for i in range(len(chosen))]
        examples = {kind: paths[i].name for i, kind in reversed([*enumerate(kinds)])}
        listing = "; ".join(f"{kind} ({n}, such as {examples[kind]})" for kind, n in Counter(kinds).most_common())
        rule = (
            f"brio leaves out deviating scans only if at least {LEAST_AGREEMENT:.0%} of all scans have the same regions"
        )
        raise BrioError(f"{problem}. {rule}. The {len(chosen)} scans here: {listing}")
    for i, reason in sorted(reasons.items()):
        found.skip(reason, chosen[i][0]["participant_id"], file=paths[i].name)
    return [item for i, item in enumerate(chosen) if i not in reasons]


def _compare_regions(group: tuple[bool, Any], most: tuple[bool, Any], others: str) -> str:
    """Say how the regions of a scan differ from those of most scans, or of the ``others``."""
    lacking, other = sorted(set(most[1]) - set(group[1])), sorted(set(group[1]) - set(most[1]))
    if group[0] != most[0]:
        return f"{'column names' if group[0] else 'no column names'}, unlike {others}"
    if len(group[1]) != len(most[1]):
        named = f" (without {shorten_list(lacking, 3)})" if group[0] and lacking and not other else ""
        return f"{len(group[1])} regions, while {others} have {len(most[1])}{named}"
    differing = "some names are repeated, and the columns differ"
    if other and lacking:
        differing = f"for example '{other[0]}', not '{lacking[0]}'"
    elif other or lacking:
        differing = f"'{other[0]}' is not among them" if other else f"'{lacking[0]}' is missing"
    return f"regions that differ from those of {others} ({differing})"


def _refuse_other_content(frames: np.ndarray, path: Path, found: Layout) -> None:
    """Refuse frames that are a connectome where series are read, and those without any value."""
    with _find_deviation():
        if not found.connectomes:
            refuse_fc(frames, str(path))
        if not np.isfinite(frames).any():
            raise BrioError(f"{path}: the scan contains no finite value")


def _write_scans(found: Layout, chosen: Chosen, options: ImportOptions, head: dict[str, Any], out: str | Path) -> None:
    """Write scans to a cohort folder; the head begins its provenance."""
    provenance: dict[str, Any] = head | {
        "brio": __version__,
        "n_files": found.n_files or sum(len(s) if isinstance(s, list) else 1 for _, sources in chosen for s in sources),
        "skipped": found.skipped,
    }
    provenance |= {"unlabelled": found.unlabelled} if found.unlabelled else {}
    provenance |= {"renamed_columns": found.renamed} if found.renamed else {}
    provenance |= found.notes
    stream = read_chosen(found, chosen, options)
    first = next(stream, None)
    if first is None:
        raise BrioError(f"{provenance['source']}: no scan can be imported; reasons: {summarise_skipped(found.skipped)}")
    with _find_deviation():
        atlas, order, provenance["rois"], warnings = resolve_atlas(found, first[2], first[1], options)
    warnings = [*found.warnings, *warnings]
    header = first[2].columns or ()
    if len(set(header)) < len(header):  # a model then knows the order of the files
        provenance["header"] = list(header)
    left_out: dict[tuple[int, str], list[Path]] = {}
    sites: list[str | None] = []
    label_texts: dict[int, dict[str, str]] = {0: {}, 1: {}}  # by label and participant
    sample: list[np.ndarray] = []
    alive = np.zeros(len(atlas), dtype=bool)
    lengths = set()
    name = options.name or found.name or provenance["source"]
    classes = options.class_names or found.classes
    with write_cohort(out, name, atlas, classes, provenance, labels_required=options.labels_required) as add:
        for row, path, series in chain([first], stream):
            sites.append(row.get("site"))
            participant = row["participant_id"]
            if (label := row.get("label")) is not None:
                label_texts[label].setdefault(participant, found.label_texts.get(participant, ""))
            for column in series.left_out:
                left_out.setdefault(column, []).append(path)
            tr = choose_tr(series.tr, row.get("tr"), path, options.tr)
            stated = {} if tr is None or row.get("tr") is not None else {"tr": tr}
            if series.mean_fd is not None and row.get("mean_fd") is None:
                stated["mean_fd"] = series.mean_fd
            with _find_deviation():
                frames = order.reorder(series, path)
            _refuse_other_content(frames, path, found)
            lengths.add(len(frames))
            if not found.connectomes:
                alive |= find_live_rois(frames)
                sample += [frames] if len(sample) < MOST_SCANS else []
            if series.parts:  # a model then recognises each of them
                parts = [hash_scan(order.reorder(part, path)) for part in series.parts]
                provenance.setdefault(JOINED_SCANS, {})[hash_scan(frames)] = parts
            if found.connectomes:  # the rows too: those of the transposed matrix are its columns
                frames, stated = order.reorder(replace(series, frames=frames.T), path), {FC_ONLY: 1}
            add(frames, row | stated)
        if lengths == {1} and options.labels_required:
            raise BrioError(f"{first[1]}: has one value per region; give time series of many frames")
        unsure = atlas.is_unnamed and options.labels_required and not options.frames_in_rows
        if unsure and len(lengths) == 1 and are_transposed(sample):
            problem = f"the {len(sample[0])} rows seem to be ROIs, and the columns frames"
            raise BrioError(f"{first[1]}: {problem}; transpose the files, or give --frames-in-rows if rows are frames")
        if not found.connectomes and options.labels_required and not alive.all():
            flat = atlas.rois["name"][~alive].astype(str).tolist()
            flags = " ".join(f"--drop-roi {shlex.quote(name)}" for name in flat[:6]) + " ..." * (len(flat) > 6)
            remedy = f"if they are not regions, leave them out with {flags}"
            warnings.append(f"{shorten_list(flat)}: no signal in any scan; {remedy}")
        warnings += describe_codes(pd.DataFrame([row for row, _ in chosen]), provenance["source"])
        warnings += _describe_left_out(left_out, len(sites)) + _describe_similar(Counter(filter(None, sites)))
        if any(made_by := [Counter(filter(None, texts.values())) for texts in label_texts.values()]):
            provenance[LABEL_VALUES] = made_by
        if warnings:
            provenance["warnings"] = warnings


def _describe_left_out(left_out: Mapping[tuple[int, str], Sequence[Path]], n_scans: int) -> list[str]:
    """Describe the columns that were left out because they number the rows and have no name of a region."""
    sentences = []
    for (number, name), paths in left_out.items():
        column = f"column {number}" + (f" ('{name}')" if name else "")
        share = f"in {len(paths)} of {format_count(n_scans, 'scan')}"
        sentences.append(f"{paths[0]}: {column} contains only row numbers, so it was left out {share}")
    return sentences


def _describe_similar(sites: Counter[str]) -> list[str]:
    """Describe, for warnings, sites whose names are easily confused."""
    remedy = "if they are one site, write one name in the participants table and import again"
    counted = ([f"'{site}' ({format_count(sites[site], 'scan')})" for site in same] for same in group_alike(sites))
    return [f"{' and '.join(same)} count as {len(same)} sites; {remedy}" for same in counted]


def summarise_skipped(skipped: list[dict[str, str]]) -> str:
    """Count the reasons for skipping, most frequent first."""
    counts = Counter(entry["reason"] for entry in skipped).most_common()
    return ", ".join(f"{reason} ({n})" for reason, n in counts) or "nothing was found"


def choose_atlas(available: Mapping[str, Collection[str]], requested: str | None, src: Path) -> str:
    """Choose the atlas to read, from labels and the names of each: the requested atlas, or the only one there is."""
    labels = sorted(label for label, names in available.items() if requested is None or requested in names)
    if not labels and requested is not None:
        for label, names in sorted(available.items()):
            known = {canonicalise_atlas_name(name).lower() for name in names}
            labels += [label] if canonicalise_atlas_name(requested).lower() in known else []
        if not labels:
            raise BrioError(f"{src}: has no files of atlas '{requested}'; {nearest(requested, available)}")
    if len(labels) != 1:
        raise BrioError(f"{src}: has files of several atlases: {', '.join(labels)}; choose one with --atlas")
    return labels[0]


SESSIONS = ("first", "join", "average", "all")  # values of ``--sessions``


def choose_sessions(found: Layout, sessions: str | None) -> list[tuple[Row, list[Any]]]:
    """Choose which scans to read if participants have several: row and sources of each scan of the cohort."""
    groups: dict[str, list[tuple[Row, Any]]] = {}
    for row, source in found.scans:
        groups.setdefault(row["participant_id"], []).append((row, source))
    repeated = [name for name, group in groups.items() if len(group) > 1]
    if repeated and sessions is None:
        names = ", ".join(str(row.get("session") or MISSING) for row, _ in groups[repeated[0]])
        problem = f"{len(repeated)} of {len(groups)} participants have several scans ({repeated[0]}: sessions {names})"
        remedy = "choose what to read with --sessions: first (only the first scan), all (separate scans)"
        remedy += "" if found.connectomes else ", join (one long scan), average (mean connectome)"
        raise BrioError(f"{problem}; {remedy}")
    chosen: list[tuple[Row, list[Any]]] = []
    for participant, group in groups.items():
        if sessions == "first":
            found.skip("another session; only the first was read", *[participant] * (len(group) - 1))
            group = group[:1]
        if len(group) == 1 or sessions == "all":
            chosen += [(own, [source]) for own, source in group]
            continue
        for column in ("site", "label"):
            values = list(dict.fromkeys(MISSING if own.get(column) is None else own[column] for own, _ in group))
            if len(values) > 1:
                problem = f"participant {participant} has scans with {column} {values[0]} and {values[1]}"
                raise BrioError(f"{problem}; correct the participants table, or keep one scan with --sessions first")
        joined = "+".join(str(own.get("session")) for own, _ in group)
        chosen.append((group[0][0] | {"session": joined}, [source for _, source in group]))
    return chosen


def read_chosen(
    found: Layout, chosen: Iterable[tuple[Row, list[Any]]], options: ImportOptions
) -> Iterator[tuple[Row, Path, Series]]:
    """Read scans one by one; several sources of a row become one scan."""
    for row, sources in chosen:
        with _find_deviation():
            paths, parts = zip(*map(found.read, sources), strict=True)
            for path, part in zip(
                paths, parts, strict=True
            ):  # before the atlas is matched, which may hide their number
                for scan in () if found.connectomes else part.parts or (part,):
                    refuse_row_counters(scan.frames, name_columns(scan), path, options.drop_roi)
        scans = list(parts)
        if options.sessions == "average" and len(parts) > 1:
            # frames with missing values go now, so that the ends of sessions stay where they are recorded
            scans = [replace(part, frames=clean_scan(part.frames)[0]) for part in parts]
            row = row | {SESSION_FRAMES: "+".join(str(len(scan.frames)) for scan in scans)}
        with _find_deviation():
            joined = join_scans(scans, list(paths))
        yield row, paths[0], joined if len(parts) == 1 else replace(joined, parts=_list_parts(parts))


def join_scans(scans: list[Series], paths: list[Path]) -> Series:
    """Join scans of a participant end to end, with each ROI z-scored within each scan.

    Without z-scores, differences in level and scale between scans would appear as correlation. An ROI without signal in
    one of the scans has none in the joined scan (NaN). The mean displacement is taken over all frames, if all scans
    state it.

    Shapes: scans [T_r, P]; returns [sum of T_r, P].
    """
    if len(scans) == 1:
        return scans[0]
    order = RoiOrder(scans[0], paths[0], name_columns(scans[0]))
    frames = [order.reorder(scan, path) for scan, path in zip(scans, paths, strict=True)]
    for scan, path in zip(scans, paths, strict=True):
        if scan.tr != scans[0].tr:
            here, there = ("unknown" if tr is None else f"{tr} s" for tr in (scan.tr, scans[0].tr))
            problem = f"the repetition time is {here}, but {there} in {paths[0]}"
            raise BrioError(f"{path}: {problem}; scans can only be joined if their repetition times are equal")
    for i, j in combinations(range(len(frames)), 2):
        if _is_same_scan(frames[i], frames[j]):
            remedy = "remove one of the two files or, if they are two sessions, import with --sessions all"
            raise BrioError(f"{paths[j]}: seems to be the same scan as {paths[i]}; {remedy}")
    alive = np.logical_and.reduce([find_live_rois(f) for f in frames])
    joined = np.full((sum(len(f) for f in frames), len(alive)), np.nan, dtype=np.float32)
    live = [f[:, alive] for f in frames]
    finite = [np.where(np.isfinite(x), x, np.nan).astype(np.float64) for x in live]
    joined[:, alive] = np.concatenate([(x - np.nanmean(x, axis=0)) / np.nanstd(x, axis=0) for x in finite])
    known = [scan.mean_fd for scan in scans if scan.mean_fd is not None]
    mean_fd = float(np.average(known, weights=[len(f) for f in frames])) if len(known) == len(scans) else None
    return replace(scans[0], frames=joined, mean_fd=mean_fd, parts=_list_parts(scans))


def _list_parts(scans: Sequence[Series]) -> tuple[Series, ...]:
    """List scans that are joined, each with the scans from which it was itself joined (runs of a session)."""
    return tuple(part for scan in scans for part in (scan, *scan.parts))


def _is_same_scan(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two scans are the same: equal, or as similar as duplicates in the audit, aligned at either end."""
    if a.shape == b.shape and np.array_equal(a, b, equal_nan=True):
        return True
    n = min(len(a), len(b))
    for x, y in ((a[:n], b[:n]), (a[-n:], b[-n:])) if len(a) != len(b) else ((a, b),):
        rois = find_live_rois(x) & find_live_rois(y)
        valid = np.isfinite(x[:, rois]).all(axis=1) & np.isfinite(y[:, rois]).all(axis=1)
        correlation = correlate_scans(x, y, valid, rois, DEFAULT_RULES.min_frames)
        if correlation is not None and correlation > DEFAULT_RULES.duplicate_correlation:
            return True
    return False

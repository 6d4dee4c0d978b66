"""Read BIDS derivatives."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import BrioError, escape_controls, nearest
from ..atlas import canonicalise_atlas_name
from ..scans import LONGEST, SHORTEST, require_repetition_time
from .assembly import choose_atlas, join_scans
from .participants import ImportOptions, Layout, find_rows
from .series import SUFFIXES, Series, find_series, get_series_stem, get_series_suffix, read_series, read_sidecar

# Entities that distinguish scans of a subject; all others say how a scan was processed.
SCAN_ENTITIES = ("ses", "task", "acq", "ce", "dir", "rec", "run", "echo")
SUFFIX_WORDS = frozenset({"bold", "timeseries"})  # last words of a name, which are not part of an atlas label


class SeriesFile(NamedTuple):
    """A time-series file as its name describes it."""

    path: Path
    subject: str  # with sub-
    atlas: str  # labels of these entities; empty where the name has none
    feature: str
    task: str
    scan: tuple[str, ...]  # entities that identify the scan of the subject: session, task, run and others

    @property
    def label(self) -> str:
        """What ``--atlas`` selects it by: the atlas, the feature, or ``feature/atlas`` where there are both."""
        return "/".join(filter(None, (self.feature, self.atlas)))

    @property
    def session(self) -> str:
        """The entity ``ses-``; empty where the name has none."""
        return next((entity for entity in self.scan if entity.startswith("ses-")), "")


def parse_name(path: Path) -> SeriesFile | None:
    """Parse the entities of a file name.

    Confounds (``desc-confounds_timeseries.tsv``) have no atlas and are not parcellated series. C-PAC may join an entity
    to the next (``atlas-Yeo-17space-MNI152``) or split an atlas at an underscore; both are repaired.
    """
    suffix, stem = get_series_suffix(path), get_series_stem(path)
    if not stem.startswith("sub-") or not (stem.endswith("_timeseries") or suffix == ".ptseries.nii"):
        return None
    entities: dict[str, str] = {}
    previous = ""
    for piece in stem.split("_"):
        key, dash, value = piece.partition("-")
        if dash:
            entities[key] = value
        elif previous in ("atlas", "seg") and piece not in SUFFIX_WORDS:
            entities[previous] += f"_{piece}"
            key = previous
        previous = key
    atlas = re.sub(r"(space|res|desc|reg)-.*$", "", entities.pop("atlas", "") or entities.pop("seg", ""))
    feature = entities.pop("feature", "")
    if not (atlas or feature) or entities.pop("stat", "mean") != "mean":
        return None
    subject, task = f"sub-{entities.pop('sub')}", entities.get("task", "")
    scan = tuple(f"{key}-{entities[key]}" for key in SCAN_ENTITIES if key in entities)
    return SeriesFile(path, subject, atlas, feature, task, scan)


def find_series_files(src: Path, match: str | None) -> list[SeriesFile]:
    """Find the parcellated time series below a folder."""
    files = [file for path in find_series(src) if (file := parse_name(path))]
    if not files:
        raise BrioError(f"{src}: no file sub-*_atlas-<atlas>_*timeseries.tsv, .txt, .1D or .ptseries.nii below it")
    folder = src if src.is_dir() else src.parent
    matching = [f for f in files if match is None or fnmatchcase(f.path.relative_to(folder).as_posix(), f"*{match}*")]
    if not matching:
        raise BrioError(f"{src}: none of {len(files)} time series matches '{match}', for example {files[0].path.name}")
    return matching


def choose_formats(files: Iterable[SeriesFile]) -> list[SeriesFile]:
    """Choose one file for each scan, in the order of sessions and runs.

    A scan that was processed in two ways (``space-``, ``desc-``, ``reg-``, ...) is not two scans: the user must say
    which of them to read.
    """
    scans: dict[tuple[str, tuple[str, ...]], SeriesFile] = {}
    for file in sorted(files, key=lambda f: (SUFFIXES.index(get_series_suffix(f.path) or ""), f.path)):
        path = scans.setdefault((file.subject, file.scan), file).path
        if path.with_name(get_series_stem(path)) != file.path.with_name(get_series_stem(file.path)):
            problem = f"the same scan as {path}, processed in another way"
            raise BrioError(f"{file.path}: {problem}; choose by a part of the path with --match")

    def split_name(file: SeriesFile) -> list[str | int]:  # run-2 comes before run-10
        return [int(p) if i % 2 else p for i, p in enumerate(re.split(r"([0-9]+)", file.path.name))]

    return sorted(scans.values(), key=split_name)


def group_by_session(files: list[SeriesFile]) -> dict[str, list[SeriesFile]]:
    """Group the files of one subject by session; without sessions in the names, each run is one."""
    has_sessions = any(file.session for file in files)
    groups: dict[str, list[SeriesFile]] = {}
    for file in files:
        entities = [e for e in file.scan if e.startswith("ses-") or not (has_sessions or e.startswith("task-"))]
        session = "_".join(entities).removeprefix("ses-") or "1"
        groups.setdefault(session, []).append(file)
    return groups


RUNS = ("first", "concatenate")


def find_bids(src: Path, options: ImportOptions) -> Layout:
    """Find parcellated time series of BIDS derivatives.

    These are ``*_timeseries.tsv``, ``.txt``, ``.1D`` and ``*.ptseries.nii`` files whose name has an ``atlas-``,
    ``seg-`` or ``feature-`` entity. Parcels that are missing in a scan (NaN, n/a) are kept as ROIs without signal.
    Columns are brought into one order by the names in the header.
    """
    runs, sessions = RUNS[0] if options.runs is None else options.runs, options.sessions
    if runs not in RUNS:
        raise BrioError(f"runs cannot be '{runs}', {nearest(runs, RUNS)}")
    table, layout = find_rows(src, options)
    files = find_series_files(src, options.match)
    names = {file.label: {file.label, file.atlas, file.feature} - {""} for file in files}
    label = choose_atlas(names, options.atlas, src)
    tasks = sorted({file.task for file in files if file.label == label and file.task})
    if options.task is None and len(tasks) > 1:
        raise BrioError(f"{src}: holds the tasks {', '.join(tasks)}; choose one with --task")
    if options.task is not None and options.task not in tasks:
        raise BrioError(f"{src}: holds no task '{options.task}', {nearest(options.task, tasks)}")
    selected = [file for file in files if file.label == label and options.task in (None, file.task)]
    scan_files = choose_formats(selected)
    subjects: dict[str, list[SeriesFile]] = {}
    for file in scan_files:
        subjects.setdefault(file.subject, []).append(file)
    if table is None:
        layout.rows = [{"participant_id": subject} for subject in subjects]
    scans = []
    listed = {_add_prefix(entry["participant_id"]) for entry in layout.skipped}
    for row in layout.rows:
        subject = _add_prefix(row["participant_id"])
        if subject in listed:
            raise BrioError(f"{table}: {subject} appears more than once, with and without 'sub-'; keep one row")
        listed.add(subject)
        if subject not in subjects:
            layout.skip(f"no time series of atlas '{label}'", row["participant_id"])
            continue
        by_session = {"": subjects[subject]} if sessions is None else group_by_session(subjects[subject])
        for session, own in by_session.items():
            named = row if sessions is None else row | {"session": session}
            scans.append((named, own if runs == "concatenate" else own[:1]))
            for further in own[1:] if runs == "first" else []:
                reason = "a further run, only the first was taken (--runs concatenate joins runs)"
                if own[0].session != further.session:
                    reason = "a further session, only the first was taken (--sessions join, average or all takes more)"
                layout.skip(reason, row["participant_id"], file=further.path.name)
    if table is not None:
        layout.skip(f"no row in {table.name}", *(subject for subject in subjects if subject not in listed))
    copies = len(selected) - len(scan_files)
    notes: dict[str, Any] = {"copies_in_other_formats": copies} if copies else {}
    if scans and (processing := _select_plain(read_sidecar(scans[0][1][0].path))):
        notes["sidecar_of_first"] = processing
    return replace(
        layout,
        scans=scans,
        read=_read_runs,
        atlas=canonicalise_atlas_name(selected[0].atlas or selected[0].feature),
        options={"atlas": label, "participants": table, "runs": runs},
        notes=notes,
    )


def _add_prefix(participant_id: str) -> str:
    """Return ``sub-01`` for both ``sub-01`` and ``01``."""
    return participant_id if participant_id.startswith("sub-") else f"sub-{participant_id}"


def _read_runs(files: list[SeriesFile]) -> tuple[Path, Series]:
    paths = [file.path for file in files]
    return paths[0], join_scans([_read_with_tr(path) for path in paths], paths)


def _read_with_tr(path: Path) -> Series:
    """Read a series with the repetition time that its json sidecar states, if it does."""
    series, sidecar = read_series(path), read_sidecar(path)
    tr, frequency = sidecar.get("RepetitionTime"), sidecar.get("SamplingFrequency")
    if tr is not None:
        return replace(series, tr=require_repetition_time(tr, f"{path}: RepetitionTime in its json sidecar"))
    if not frequency:
        return series
    is_number = isinstance(frequency, int | float) and not isinstance(frequency, bool)
    if not (is_number and 1.0 / LONGEST <= frequency <= 1.0 / SHORTEST):
        problem = f"SamplingFrequency in its json sidecar is {repr(frequency)[:40]}"
        raise BrioError(f"{path}: {problem}; a positive number of frames per second is needed")
    return replace(series, tr=1.0 / frequency)


def _select_plain(sidecar: dict[str, Any]) -> dict[str, Any]:
    """Select what a sidecar says about the processing (censored frames, filters), without lists of files."""
    return {
        k: escape_controls(v) if isinstance(v, str) else v
        for k, v in sidecar.items()
        if (isinstance(v, bool | int | float) and abs(v) < 1e300) or (isinstance(v, str) and len(v) < 200)
    }

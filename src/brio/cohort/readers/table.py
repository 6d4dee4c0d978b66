"""Read a folder of files with a participants table: time courses, or connectomes."""

from __future__ import annotations

import os
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import BrioError, nearest
from ..atlas import canonicalise_atlas_name
from ..scans import MEASURES, UnknownMeasureError, convert_fc, find_measure, name_scan
from . import series
from .participants import ImportOptions, Layout, Row, find_rows
from .series import Series

Scans = list[tuple[Row, Any]]  # row of the participants table and file, or other source, of each scan

SESSION = re.compile(r"(?<![A-Za-z0-9])ses-([A-Za-z0-9]+)")  # session in the name of a file


def name_by_file(files: list[Path]) -> Scans:
    """Make a participant of each file, named by its file name without suffix."""
    owner: dict[str, Path] = {}
    for file in files:
        participant = series.get_series_stem(file)
        other = owner.setdefault(participant, file)
        if other is not file:
            raise BrioError(
                f"{file}: this file and {other} would both be participant '{participant}'; rename one of them"
            )
    return [({"participant_id": participant}, file) for participant, file in owner.items()]


def match_by_column(layout: Layout, src: Path) -> Scans:
    """Match rows with the files named in the column ``file``."""
    scans: Scans = []
    owner: dict[Path, str] = {}
    n_rows = Counter(row["participant_id"] for row in layout.rows)
    for row in layout.rows:
        participant, file, name = row["participant_id"], row["file"], _name_row(row, n_rows)
        if file is not None and not series.is_regular(src / file):
            file = file.replace("\\", "/")  # the table was made on Windows
        if file is None:
            layout.skip("column 'file' is empty", participant)
        elif not series.is_regular(src / file):
            layout.skip("the file named in column 'file' does not exist", participant, file=file)
        elif (other := owner.setdefault((src / file).resolve(), name)) != name:
            raise BrioError(f"{src / file}: column 'file' lists this file for both {other} and {name}")
        else:
            scans.append(({column: value for column, value in row.items() if column != "file"}, src / file))
    return scans


def match_by_name(layout: Layout, files: list[Path], table: str) -> Scans:
    """Match rows with files by name.

    A file name starts with the participant_id, followed by the session if a participant has several rows. One row with
    several files stands for several sessions, if each name has its own ``ses-``. Letters with accents may be written as
    one character or as two.
    """
    stems = {file: _compose(series.get_series_stem(file)) for file in files}
    by_stem, by_prefix = defaultdict(list), defaultdict(list)
    for file, stem in stems.items():
        by_stem[stem].append(file)
        for prefix in _list_starts(stem)[1:]:
            by_prefix[prefix].append(file)
    scans: Scans = []
    without_file: list[str] = []
    owner: dict[Path, str] = {}
    has_sessions = any(row.get("session") for row in layout.rows)
    known = [*layout.rows, *layout.skipped] if has_sessions else layout.rows  # files of skipped sessions are not taken
    n_rows = Counter(row["participant_id"] for row in known)
    for row in layout.rows:
        participant, session, name = row["participant_id"], row.get("session"), _name_row(row, n_rows)
        several = n_rows[participant] > 1
        starts = [name_scan(participant, str(session)), f"{participant}_{session}", f"{participant}-{session}"]
        starts = (starts if several or session else []) + ([] if several else [participant])
        found = (by_stem.get(start) or by_prefix.get(start) for start in map(_compose, starts))
        candidates = next(filter(None, found), [])
        own = [(row, file) for file in candidates]
        if len(candidates) > 1:
            own = [] if several else _split_sessions(row, {file: stems[file] for file in candidates})
            if not own:
                problem = f"{candidates[0]} and {candidates[1]} both match"
                raise BrioError(f"participant {name}: {problem}; choose with --match or a column 'file' of {table}")
        without_file += [] if own else [participant]
        for _, file in own:
            if file in owner:
                problem = f"matches both {owner[file]} and {name}"
                raise BrioError(f"{file}: {problem}; list the file of each row in a column 'file' of {table}")
            owner[file] = name
        scans += own
    hint = _compare_names(without_file, [stem for file, stem in stems.items() if file not in owner])
    matched = {_compose(row["participant_id"]) for row, _ in scans}
    left_out = {_compose(entry["participant_id"]) for entry in layout.skipped}
    for participant in without_file:
        wanted = "participant_id and session" if n_rows[participant] > 1 else "the participant_id"
        layout.skip(f"no file whose name starts with {wanted}{hint}", participant)
    for file, stem in stems.items():
        starts = _list_starts(stem)
        if file not in owner and left_out.isdisjoint(starts):
            same = matched.intersection(starts)
            reason = "the row of this participant matches another file" if same else f"no row in {table}"
            layout.skip(reason, max(same, default=stem), file=file.name)
    return scans


def _name_row(row: Row, n_rows: Counter[str]) -> str:
    """Name a row in messages: the participant, with the session where there are several rows."""
    participant = row["participant_id"]
    return f"{participant} (session {row.get('session')})" if n_rows[participant] > 1 else participant


def _compose(name: str) -> str:
    """Write letters with accents in one way; names of files from macOS have them as two characters."""
    return unicodedata.normalize("NFC", name)


def _list_starts(stem: str) -> list[str]:
    """List a name and those of its starts that end where a word ends, so that ``p1`` does not match ``p10``."""
    return [stem, *(stem[:i] for i in range(1, len(stem)) if not stem[i].isalnum())]


def _split_sessions(row: Row, stems: dict[Path, str]) -> Scans:
    """Make a row for each file of a participant by the sessions in their names; none unless each has its own."""
    start = len(_compose(row["participant_id"]))
    labels = {match[1]: file for file, stem in stems.items() if (match := SESSION.search(stem[start:]))}
    order = sorted(labels, key=lambda label: (not label.isdecimal(), int(label) if label.isdecimal() else 0, label))
    return [(row | {"session": label}, labels[label]) for label in order] if len(labels) == len(stems) else []


def _compare_names(participants: Sequence[str], stems: Sequence[str]) -> str:
    """Suggest how file names differ from ids of participants without a file; empty if no rule fits more than half."""
    firsts = {start for stem in stems for start in _list_starts(stem)}
    unpadded = {first.lstrip("0") for first in firsts if first.isdecimal()}
    lower = {first.lower() for first in firsts}
    rules: dict[str, Callable[[str], bool]] = {
        "ids in the table lack the leading zeros of the file names": lambda p: (
            p.isdecimal() and p.lstrip("0") in unpadded
        ),
        "ids became decimals (7.0); write them as text": lambda p: p[-2:] == ".0" and p[:-2].lstrip("0") in unpadded,
        "file names lack 'sub-'; leave it out in the table": lambda p: p[:4] == "sub-" and p[4:] in firsts,
        "file names differ in capitals; write the ids in the table as in the file names": lambda p: p.lower() in lower,
    }
    wanted, prefixes = Counter(participants), Counter[str]()
    for first in firsts:  # its ends are looked up, since comparing each name with each participant takes minutes
        for i in range(len(first)):
            prefixes[first[:i]] += wanted.get(first[i:], 0)
    prefix, count = max(prefixes.items(), key=lambda item: (item[1], item[0]), default=("", 0))
    if count:
        example = next(prefix + p for p in participants if prefix + p in firsts)
        remedy = f"add it to the ids in the table, for example {example}"
        rules[f"file names begin with '{prefix}'; {remedy}"] = lambda p: prefix + p in firsts
    fitting = (words for words, fits in rules.items() if 2 * sum(map(fits, participants)) > len(participants))
    return next((f" ({words})" for words in fitting), "")


def find_files(src: Path, options: ImportOptions) -> Layout:
    """Find one time-series file per scan, and the participants table that lists them."""
    path, layout = find_rows(src, options, ("session", "file"))
    if path is None:
        scans = name_by_file(series.find_series(src, options.match))
    elif layout.rows and "file" in layout.rows[0]:
        scans = match_by_column(layout, src if src.is_dir() else src.parent)
        listed = set(series.select_matching(src, [file for _, file in scans], options.match))
        layout.skip(
            "the path of the file does not match --match",
            *(r["participant_id"] for r, file in scans if file not in listed),
        )
        scans = [(row, file) for row, file in scans if file in listed]
        if src.is_file():
            scans = [(row, file) for row, file in scans if file.resolve() == src.resolve()]
    else:
        # not Path.resolve, which stops at a link to itself
        files = [f for f in series.find_series(src, options.match) if os.path.realpath(f) != os.path.realpath(path)]
        scans = match_by_name(layout, files, path.name)
    return _describe(options, layout, scans, path)


def _describe(options: ImportOptions, layout: Layout, scans: Scans, table: Path | None) -> Layout:
    atlas = None if options.atlas is None else canonicalise_atlas_name(options.atlas)
    found = {"atlas": atlas, "participants": table}
    return replace(layout, scans=scans, atlas=atlas or "unknown", options=found, strictness="count")


def find_fc(src: Path, options: ImportOptions) -> Layout:
    """Find one connectome per participant, as files or in one npz file, and the participants table that lists them.

    Methods that re-estimate connectomes or read time series cannot run on such a cohort, and no model can be fitted to
    it.
    """
    measure, sessions = options.measure, options.sessions
    if not options.labels_required:
        raise BrioError(f"{src}: contains connectomes, but predictions need time series")
    if measure is not None and measure not in MEASURES:
        raise BrioError(f"--measure {measure}: unknown measure; {nearest(measure, MEASURES)}")
    if sessions in ("join", "average"):
        raise BrioError(f"--sessions {sessions}: cannot combine connectomes of several sessions; use first or all")
    first: list[tuple[str, str]] = []  # measure of the first connectome, and where it is

    def convert(matrix: np.ndarray, where: str) -> np.ndarray:
        own = measure or find_measure(matrix, where)
        first.append((own, where))
        if own != first[0][0]:
            words = {"correlation": "correlations", "fisher-z": "Fisher z"}
            problem = f"seems to contain {words[own]}, but {first[0][1]} seems to contain {words[first[0][0]]}"
            raise UnknownMeasureError(
                f"{where}: {problem}; give --measure correlation or --measure fisher-z for all matrices"
            )
        return convert_fc(matrix, own, where)

    def read(path: Path) -> tuple[Path, Series]:
        scan = series.read_series(path, connectome=True)
        return path, replace(scan, frames=convert(scan.frames, str(path)))

    archives = [file for file in series.find_series(src, options.match) if file.suffix.lower() == ".npz"]
    if src.is_dir() and len(archives) != 1:
        return replace(find_files(src, options), read=read, connectomes=True)
    if not archives:
        raise BrioError(
            f"{src}: is one file; give an npz file with all connectomes, or a folder with one file per scan"
        )
    if (sessions, options.session_column) != (None, None):
        raise BrioError(
            f"{archives[0]}: contains one connectome per participant; leave out --sessions and --session-column"
        )
    folder, name = (src, "") if src.is_dir() else (src.parent, series.describe_name(src.stem))
    src = archives[0]
    matrices = _open_archive(src)
    path, layout = find_rows(folder, options)
    listed = [row["participant_id"] for row in layout.rows]
    known = {*listed, *(entry["participant_id"] for entry in layout.skipped)}
    archive, table = series.describe_name(src.name), "the table" if path is None else path.name
    layout.skip(f"no connectome in {archive}", *(p for p in listed if p not in matrices))
    layout.skip(f"no row in {table}", *(p for p in matrices if p not in known))
    scans = [(row, row["participant_id"]) for row in layout.rows if row["participant_id"] in matrices]

    def read_one(participant: str) -> tuple[Path, Series]:
        return src, Series(convert(matrices[participant](), f"{src}, participant {participant}"))

    found = _describe(options, layout, scans, path)
    return replace(found, read=read_one, name=name, connectomes=True, n_files=1)


def _open_archive(path: Path) -> dict[str, Callable[[], np.ndarray]]:
    """Open an npz file of connectomes, and return what loads the matrix of each participant.

    It holds one array (participants, ROIs, ROIs) and their ids, or one matrix under the id of each participant.
    """
    declared = series.list_npz_arrays(path)
    square = {
        key: array for key, array in declared.items() if array.kind in "fiu" and array.shape[-1:] == array.shape[-2:-1]
    }
    stacks = [key for key, array in square.items() if len(array.shape) == 3]
    matrices = [key for key, array in square.items() if len(array.shape) == 2]
    lists = [key for key, array in declared.items() if len(array.shape) == 1 and array.kind in "USiu"]
    key = "participant_id" if "participant_id" in declared else lists[0] if len(lists) == 1 else None
    if len(stacks) == 1 and key is not None:
        ids = series.read_packed_ids(path, {"participant_id": declared[key]})
        (stack,) = series.load_arrays(path, declared, stacks)
        if len(ids) != len(stack) or len(set(ids)) < len(ids):
            raise BrioError(f"{path}: '{key}' must contain a different name for each of the {len(stack)} connectomes")
        return {participant: partial(stack.__getitem__, i) for i, participant in enumerate(ids)}
    if stacks or len(matrices) < 2:
        held = ", ".join(f"{key} {'x'.join(map(str, array.shape))}" for key, array in declared.items()) or "nothing"
        needed = (
            "one array of numbers (participants, ROIs, ROIs) and a list 'participant_id', or a matrix per participant"
        )
        raise BrioError(f"{path}: contains {held}, but must contain {needed}")
    return {name: partial(series.load_array, path, {name: declared[name]}) for name in matrices}

"""Read a folder of files with a participants table: time courses, or connectomes."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import BrioError, nearest
from ...formatting import format_count
from ..atlas import canonicalise_atlas_name
from ..scans import MEASURES, UnknownMeasureError, convert_fc, find_measure, name_scan
from ..values import normalise_text, shorten_list
from . import series
from .participants import ImportOptions, Layout, Row, find_rows, read_file, simplify_session
from .series import Series

Scans = list[tuple[Row, Any]]  # row of the participants table and file, or other source, of each scan


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
    owner: dict[Path, str] = {}
    n_scans = _count_scans(layout)
    for row in layout.listed:
        path, name = _locate(src, row["file"]), _name_row(row, n_scans)
        if path is not None and (other := owner.setdefault(path.resolve(), name)) != name:
            raise BrioError(f"{path}: column 'file' lists this file for both {other} and {name}")
    scans: Scans = []
    for row in layout.rows:
        participant, file, path = row["participant_id"], row["file"], _locate(src, row["file"])
        if path is not None:
            scans.append(({column: value for column, value in row.items() if column != "file"}, path))
        elif file is None:
            layout.skip("column 'file' is empty", participant)
        else:
            layout.skip("the file named in column 'file' does not exist", participant, file=file.replace("\\", "/"))
    return scans


def _locate(src: Path, file: str | None) -> Path | None:
    """Locate a file that a table, perhaps from Windows, names; None unless it exists."""
    paths = [] if file is None else [src / file, src / file.replace("\\", "/")]
    return next(filter(series.is_regular, paths), None)


def match_by_name(layout: Layout, files: list[Path], table: str, names: Names | None = None) -> Scans:
    """Match rows with files by their names, which by default start with the participant_id.

    Rows that are left out keep their files. A participant with several rows needs the session in each name. One row
    with several files stands for several sessions, if each name has its own.
    """
    has_pattern = names is not None
    names = _read_starts(layout.listed, files) if names is None else names
    by_id = defaultdict[str, list[Path]](list)
    for file, name in names.items():
        by_id[name.participant].append(file)
    n_scans = _count_scans(layout)
    scans: Scans = []
    without_file: list[str] = []
    owner: dict[Path, str] = {}
    for row in layout.rows:
        participant, wanted = row["participant_id"], simplify_session(row.get("session"))
        own, several, title = by_id[participant], n_scans[participant] > 1, _name_row(row, n_scans)
        if wanted or several:
            right = [file for file in own if wanted and simplify_session(names[file].session) == wanted]
            own = right or [file for file in own if not (several or names[file].session)]
        own = [file for file in own if names[file].is_exact] or own
        sessions = {names[file].session: file for file in own}
        if len(own) > 1 and (wanted or "" in sessions or len(sessions) < len(own)):
            remedy = f"choose with --match or a column 'file' of {table}"
            raise BrioError(f"participant {title}: {own[0]} and {own[1]} both match; {remedy}")
        without_file += [] if own else [participant]
        for file in own:
            if file in owner:
                problem = f"matches both {owner[file]} and {title}"
                raise BrioError(f"{file}: {problem}; list the file of each row in a column 'file' of {table}")
            owner[file] = title
        for label in sorted(
            sessions, key=lambda text: (not text.isdecimal(), int(text) if text.isdecimal() else 0, text)
        ):
            is_new = label and not wanted and (has_pattern or len(own) > 1)
            scans.append((row | ({"session": label} if is_new else {}), sessions[label]))
    strangers = [file for file in files if file not in names or names[file].participant not in n_scans]
    hint = _compare_names(without_file, [normalise_text(series.get_series_stem(file)) for file in strangers])
    matched, kept = ({row["participant_id"] for row in rows} for rows in ([row for row, _ in scans], layout.rows))
    for participant in without_file:
        said = "participant_id and session" if n_scans[participant] > 1 or by_id[participant] else "the participant_id"
        layout.skip(f"no file whose name {'has' if has_pattern else 'starts with'} {said}{hint}", participant)
    for file in strangers:
        reason = "the file name does not fit --pattern" if has_pattern and file not in names else f"no row in {table}"
        layout.skip(reason, normalise_text(series.get_series_stem(file)), file=file.name)
    for file, name in names.items():
        if file not in owner and name.participant in kept:
            reason = "no row for this session" if name.session else "no session in the file name"
            reason = "the row of this participant matches another file" if name.participant in matched else reason
            layout.skip(reason, name.participant, file=file.name)
    return scans


def _count_scans(layout: Layout) -> Counter[str]:
    """Count the scans that the whole table lists of each participant."""
    return Counter(participant for participant, _ in {(r["participant_id"], r.get("session")) for r in layout.listed})


def _name_row(row: Row, n_scans: Counter[str]) -> str:
    """Name a row in messages: the participant, with the session where there are several rows."""
    participant = row["participant_id"]
    return f"{participant} (session {row.get('session')})" if n_scans[participant] > 1 else participant


# ---------------------------------------------------------------- what the name of a file says


class FileName(NamedTuple):
    """What the name of a file says."""

    participant: str
    session: str = ""
    is_exact: bool = True  # whether it says nothing else


Names = dict[Path, FileName]
_SESSION = re.compile(r"(?<![A-Za-z0-9])ses-([A-Za-z0-9]+)")
_SHORT_NUMBER = re.compile(r"[_-](\d{1,2})(?![A-Za-z0-9])")  # after the id: a session, where the table has sessions


def _read_starts(listed: Sequence[Row], files: Sequence[Path]) -> Names:
    """Read the longest id of a table, perhaps with a session, at the start of each name; other files are left out.

    Letters with accents may be written as one character or as two.
    """
    starts, with_sessions = defaultdict[str, dict[str, FileName]](dict), set[str]()
    for row in listed:
        participant, session = row["participant_id"], row.get("session")
        starts[normalise_text(participant)][participant] = FileName(participant)
        if session:
            with_sessions.add(participant)
            for start in (name_scan(participant, session), f"{participant}_{session}", f"{participant}-{session}"):
                title = f"{participant} (session {session})"
                starts[normalise_text(start)][title] = FileName(participant, session)
    names: Names = {}
    for file in files:
        stem = normalise_text(series.get_series_stem(file))
        longest = max(filter(starts.__contains__, _list_starts(stem)), key=len, default=None)
        if longest is None:
            continue
        if len(starts[longest]) > 1:
            first, second, *_ = starts[longest]
            remedy = "list the file of each row in a column 'file' of the table"
            raise BrioError(f"{file}: matches both {first} and {second}; {remedy}")
        (name,) = starts[longest].values()
        said = _SESSION.search(stem, len(longest))
        said = said or (_SHORT_NUMBER.match(stem, len(longest)) if name.participant in with_sessions else None)
        names[file] = FileName(name.participant, name.session or (said[1] if said else ""), longest == stem)
    return names


_FIELDS = ("{participant}", "{session}")
_WILDCARDS = ("*", "?")
_EXAMPLE = "'*_{participant}_visit{session}*'"


def read_pattern(pattern: str, src: Path, files: Sequence[Path], ids: Iterable[str]) -> Names:
    """Read participant and session where a pattern has them in the names of files; other files are left out.

    A pattern with a slash describes the path below the folder. If it can be read in several ways, the participant is
    the longest id of the table; without a table, the pattern is refused.
    """
    tokens = [token for token in re.split(r"(\{participant\}|\{session\}|[*?])", pattern) if token]
    others = "".join(token for token in tokens if token not in _FIELDS)
    if tokens.count("{participant}") != 1 or tokens.count("{session}") > 1 or {*others} & {*"{}"}:
        raise BrioError(
            f"--pattern '{pattern}': needs {{participant}} once and may have {{session}} once, for example {_EXAMPLE}"
        )
    known = defaultdict[str, list[str]](list)
    for participant in dict.fromkeys(ids):
        known[normalise_text(participant)].append(participant)
    folder = src if src.is_dir() else src.parent
    names: Names = {}
    owner: dict[FileName, Path] = {}
    for file in files:
        is_below = "/" in pattern and file.is_relative_to(folder)
        path = normalise_text(file.relative_to(folder).as_posix() if is_below else file.name)
        stem = path[: len(path) - len(series.get_series_suffix(file) or "")]  # which may have capitals
        readings = _list_readings(tokens, stem) or _list_readings(tokens, path)
        fitting = [one for one in readings if path[slice(*one[0])] in known] or readings
        if not fitting:
            continue
        (start, end), session = max(fitting, key=lambda one: one[0][1] - one[0][0])
        in_table = known.get(path[start:end], [])
        is_inside = [start <= a and b <= end and (a, b) != (start, end) for (a, b), _ in fitting]
        rivals = [own for own, inside in zip(fitting, is_inside, strict=True) if not (in_table and inside)]
        meanings = {tuple(path[slice(*part)] for part in reading) for reading in rivals}
        if (len(meanings) > 1 and (in_table or not known)) or len(in_table) > 1:
            problem = f"--pattern '{pattern}' can be read in several ways"
            ways = shorten_list([" in session ".join(filter(None, one)) for one in sorted(meanings)], 3)
            raise BrioError(f"{file}: {problem} ({ways}); write more of the file names in the pattern")
        names[file] = FileName((in_table or [path[start:end]])[0], path[slice(*session)])
        same = FileName(names[file].participant, simplify_session(names[file].session))
        other = owner.setdefault(same, file) if in_table or not known else file
        if other is not file:
            who = f"participant {same.participant}" + (f", session {same.session}" if same.session else "")
            raise BrioError(
                f"{file}: by --pattern '{pattern}', this file and {other} are both {who}; change the pattern"
            )
    if files and not names:
        listing = f"{format_count(len(files), 'file')}, for example {files[0].name}"
        raise BrioError(f"{src}: no file name fits --pattern '{pattern}' ({listing})")
    return names


Span = tuple[int, int]  # where a part of a text begins and ends


def _list_readings(tokens: Sequence[str], text: str) -> list[tuple[Span, Span]]:
    """List where participant and session may stand in a text.

    A session has letters and digits alone. Beside a wildcard, both begin and end where a word does.
    """
    free = [len(text), *(i for i in range(len(text)) if i == 0 or not (text[i - 1].isalnum() and text[i].isalnum()))]

    @cache
    def read(i: int, at: int) -> frozenset[tuple[Span, Span]]:
        if i == len(tokens):
            return frozenset([((0, 0), (0, 0))] if at == len(text) else [])
        token, found = tokens[i], set[tuple[Span, Span]]()
        if token == "*":
            return frozenset().union(*(read(i + 1, end) for end in range(at, len(text) + 1)))
        if token not in _FIELDS:
            fits = at < len(text) if token == "?" else text.startswith(token, at)
            return read(i + 1, at + len(token)) if fits else frozenset()
        if i > 0 and tokens[i - 1] in _WILDCARDS and at not in free:
            return frozenset()
        for end in range(at + 1, len(text) + 1):
            if token == "{session}" and not text[end - 1].isalnum():
                break
            if end in free or tokens[i + 1 : i + 2] not in (["*"], ["?"]):
                found |= {
                    ((at, end), session) if token == "{participant}" else (participant, (at, end))
                    for participant, session in read(i + 1, end)
                }
        return frozenset(found)

    return sorted(read(0, 0))


def _list_starts(stem: str) -> list[str]:
    """List a name and those of its starts that end where a word ends, so that ``p1`` does not match ``p10``."""
    return [stem, *(stem[:i] for i in range(1, len(stem)) if not stem[i].isalnum())]


def _compare_names(participants: Sequence[str], stems: Sequence[str]) -> str:
    """Suggest how file names differ from ids of participants without a file; empty if no rule fits more than half."""
    firsts = {start for stem in stems for start in _list_starts(stem)}
    unpadded = {first.lstrip("0") for first in firsts if first.isdecimal()}
    numbers = {re.sub(r"^.*[^0-9]0*(?=[0-9])", "", first) for first in firsts}  # sub-007 is 7
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
            if not (first[:i][-1:].isdecimal() and first[i].isdecimal()):  # 1 is not the end of 21
                prefixes[first[:i]] += wanted.get(first[i:], 0)
    prefix, count = max(prefixes.items(), key=lambda item: (item[1], item[0]), default=("", 0))
    if count:
        example = next(prefix + p for p in participants if prefix + p in firsts)
        remedy = f"add it to the ids in the table, for example {example}"
        rules[f"file names begin with '{prefix}'; {remedy}"] = lambda p: prefix + p in firsts
    inside, around = set[str](), Counter[str]()
    for stem in stems:
        begins = [0, *(i + 1 for i, c in enumerate(stem) if not c.isalnum())]
        for part, i in ((start[i:], i) for start in _list_starts(stem) for i in begins if start[i:] in wanted):
            inside.add(part)
            around[f"{stem[i - 1 : i]}{{participant}}{stem[i + len(part) :][:1]}"] += 1
    part = next(iter(around)) if len(around) == 1 else "{participant}"
    remedy = f"say where with --pattern '*{part}*'; {{session}} stands for a session"
    rules[f"file names have the ids elsewhere; {remedy}"] = inside.__contains__
    rules["ids in the table lack the prefix and the leading zeros of the file names"] = numbers.__contains__
    fitting = (words for words, fits in rules.items() if 2 * sum(map(fits, participants)) > len(participants))
    return next((f" ({words})" for words in fitting), "")


def find_files(src: Path, options: ImportOptions) -> Layout:
    """Find one time-series file per scan, and the participants table that lists them."""
    path, layout = find_rows(src, options, ("session", "file"))
    pattern = options.pattern
    if path is None:
        files = series.find_series(src, options.match)
        named = {} if pattern is None else read_pattern(pattern, src, files, ())
        scans: Scans = [(_make_row(name), file) for file, name in named.items()] or name_by_file(files)
        left_out = [series.get_series_stem(file) for file in files if named and file not in named]
        layout.skip("the file name does not fit --pattern", *left_out)
    elif layout.rows and "file" in layout.rows[0]:
        if pattern is not None:
            raise BrioError(f"{path}: column 'file' lists the file of each row; leave out --pattern")
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
        ids = [row["participant_id"] for row in layout.listed]
        names = None if pattern is None else read_pattern(pattern, src, files, ids)
        scans = match_by_name(layout, files, path.name, names)
    return _describe(options, layout, scans, path)


def _make_row(name: FileName) -> Row:
    return {"participant_id": name.participant} | ({"session": name.session} if name.session else {})


def _describe(options: ImportOptions, layout: Layout, scans: Scans, table: Path | None) -> Layout:
    atlas = None if options.atlas is None else canonicalise_atlas_name(options.atlas)
    found = {"atlas": atlas, "participants": table}
    beside = options.compare_first_rows([file for _, file in scans if isinstance(file, Path)])
    read = partial(read_file, beside=beside)
    return replace(layout, scans=scans, read=read, atlas=atlas or "unknown", options=found, strictness="count")


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
        scan = series.read_series(path, connectome=True, beside=beside)
        return path, replace(scan, frames=convert(scan.frames, str(path)))

    archives = [file for file in series.find_series(src, options.match) if file.suffix.lower() == ".npz"]
    if src.is_dir() and len(archives) != 1:
        layout = find_files(src, options)
        beside = series.FirstRows([file for _, file in layout.scans])
        return replace(layout, read=read, connectomes=True)
    if not archives:
        raise BrioError(
            f"{src}: is one file; give an npz file with all connectomes, or a folder with one file per scan"
        )
    if (sessions, options.session_column, options.pattern) != (None, None, None):
        remedy = "leave out --sessions and --session-column, and --pattern"
        raise BrioError(f"{archives[0]}: contains one connectome per participant; {remedy}")
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

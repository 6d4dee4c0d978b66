"""Read one file as the time series of a scan: finding files, limits on what is read, and each format.

:func:`read_series` reads text, numpy arrays, MATLAB and CIFTI files. Any irregularity raises a
:class:`~brio.errors.BrioError` that names the file; nothing is transposed, truncated or guessed.
"""

from __future__ import annotations

import csv
import filecmp
import json
import math
import os
import re
import shlex
import stat
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import IO, Any
from zipfile import ZipFile

import numpy as np

from ...errors import BrioError, find_control
from ...formatting import format_count
from ..scans import CONTENTS, convert_frames, is_repetition_time
from ..values import normalise_text, parse_number

TEXT = (".tsv", ".csv", ".txt", ".1d")  # suffixes of delimited text
SUFFIXES = (*TEXT, ".npy", ".npz", ".mat", ".ptseries.nii")

LIMIT_VARIABLE = "BRIO_LARGEST_FILE_MB"  # environment variable with the largest size of an input file, unpacked, in MB
USUAL_LIMIT_MB = 1024.0  # a scan of 10,000 frames and 1,000 ROIs in double precision has 80 MB
TEXT_SHARE = 0.25  # share of the limit that text may have: parsing it takes several times its size

BYTE_ORDER_MARKS = (b"\xff\xfe", b"\xfe\xff")
WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")  # how files of Excel begin, new and old


# ---------------------------------------------------------------- which files there are


def describe_name(name: str) -> str:
    r"""Return a name from the operating system as text; bytes that are not UTF-8 are written as ``\xe9``."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def get_series_suffix(path: Path) -> str | None:
    """Return the suffix of a time-series file."""
    name = path.name.lower()
    return next((s for s in SUFFIXES if name.endswith(s)), None)


def get_series_stem(path: Path) -> str:
    """Return the name of a time-series file without its suffix (``.ptseries.nii`` is one suffix)."""
    return path.name[: len(path.name) - len(get_series_suffix(path) or "")]


def find_series(src: Path, match: str | None = None) -> list[Path]:
    """List the files below a folder that may hold a time series. Hidden files and folders are ignored."""
    files = sorted(path for path in ([src] if src.is_file() else list_files(src)) if get_series_suffix(path))
    files = select_matching(src, files, match)
    for path in files:
        if (name := describe_name(path.name)) != path.name:
            raise BrioError(f"{src}: the file name {name} is not valid UTF-8; rename it")
        if control := find_control(path.name):
            raise BrioError(f"{path}: the file name contains the control character {control}; rename it")
    return files


def select_matching(src: Path, files: list[Path], match: str | None) -> list[Path]:
    """Select the files whose path below the folder contains a text, which may have wildcards."""
    folder = src if src.is_dir() else src.parent
    names = {file: (file.relative_to(folder) if file.is_relative_to(folder) else file).as_posix() for file in files}
    matching = [file for file in files if match is None or fnmatchcase(names[file], f"*{match}*")]
    if files and not matching:
        listing = f"{format_count(len(files), 'file')}, for example {files[0].name}"
        raise BrioError(f"{src}: no path matches --match '{match}' ({listing})")
    return matching


def list_files(src: Path) -> Iterator[Path]:
    """List all files below a folder. A folder that is linked to is listed once, so links may form a cycle."""

    def refuse(error: OSError) -> None:
        raise BrioError(f"{error.filename}: cannot be read ({error.strerror})") from error

    seen: set[str] = set()
    roots = [str(src)]
    while roots:  # links come last: a folder keeps its own name
        for folder, folders, files in os.walk(roots.pop(), onerror=refuse):
            folders[:] = [name for name in folders if not name.startswith(".")]
            if (real := os.path.realpath(folder)) in seen:
                folders.clear()
                continue
            seen.add(real)
            roots += [path for name in folders if os.path.islink(path := os.path.join(folder, name))]
            yield from (Path(folder, name) for name in files if not name.startswith("."))


# ---------------------------------------------------------------- what may be read at all


def is_regular(path: Path) -> bool:
    """Return whether a path is a regular file or a link to one; False for invalid names."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):  # ValueError: a null character in the name
        return False


def find_limit() -> int:
    """Return the largest size of an input file in bytes, unpacked."""
    text = os.environ.get(LIMIT_VARIABLE, "")
    limit = parse_number(normalise_text(text)) if text else USUAL_LIMIT_MB
    if limit is None or not 0 < limit < math.inf:
        raise BrioError(f"the environment variable {LIMIT_VARIABLE} is '{text}'; give megabytes, for example 4096")
    return int(limit * 2**20)


def require_bounded(size: int, path: Path, share: float = 1.0) -> None:
    """Refuse a size that is implausible for a scan or a table."""
    limit = find_limit() * share
    if size > limit:
        problem = f"contains {size / 2**20:,.0f} MB of data, but brio reads at most {limit / 2**20:,.0f} MB"
        remedy = f"set the environment variable {LIMIT_VARIABLE} to {math.ceil(size / share / 2**20)}"
        raise BrioError(f"{path}: {problem}; if this size is correct, {remedy}")


def require_regular(path: Path, file_format: str, share: float = 1.0) -> int:
    """Require that a path is a regular file of a bounded size."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BrioError(f"{path}: cannot be read as {file_format} ({reason})") from error
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a pipe, socket or device"
        raise BrioError(f"{path}: cannot be read as {file_format} (it is {kind})")
    require_bounded(status.st_size, path, share)
    return status.st_size


@contextmanager
def name_failure(path: Path, problem: str, remedy: str = "") -> Iterator[None]:
    """Turn any exception of another package into a :class:`BrioError` that names the file."""
    try:
        yield
    except BrioError:
        raise
    except Exception as error:  # exceptions of all kinds, on damaged files above all
        message = " ".join(str(error).split())[:300] or type(error).__name__
        raise BrioError(f"{path}: {problem} ({message}){remedy}") from error


def name_damaged_file(path: Path, file_format: str) -> AbstractContextManager[None]:
    """Turn any exception of a parser into a :class:`BrioError` that names the file."""
    return name_failure(path, f"cannot be read as {file_format}", "; it may be damaged or truncated")


def read_text_file(path: Path, file_format: str = "text") -> str:
    r"""Read a text file; all line ends become ``\n``."""
    require_regular(path, file_format, TEXT_SHARE)
    problem, remedy = "", "save it as UTF-8"
    try:
        content = path.read_bytes()
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise BrioError(f"{path}: cannot be read as {file_format} ({error.strerror})") from error
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problem = f"byte {content[error.start]:#04x} in line {line} is not UTF-8"
        problem = "it is UTF-16" if content.startswith(BYTE_ORDER_MARKS) else problem
    if content.startswith(WORKBOOKS):
        problem = "it is a workbook, for example from Excel, or an archive"
        remedy = "save the sheet as CSV in UTF-8, or unpack the archive"
    elif not problem and "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        problem, remedy = f"null character in line {line}", "it may be damaged"
    if problem:
        raise BrioError(f"{path}: cannot be read as {file_format} ({problem}); {remedy}")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a JSON file, which must hold an object."""
    text = read_text_file(path, "JSON")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise BrioError(f"{path}: is not valid JSON ({reason})") from error
    if not isinstance(content, dict):
        raise BrioError(f"{path}: must contain a JSON object")
    return content


# ---------------------------------------------------------------- a scan


@dataclass(frozen=True, eq=False)
class Series:
    """Time series of one scan, with what its file states about it.

    Shapes: frames [T, P].
    """

    frames: np.ndarray
    columns: tuple[str, ...] | None = None  # names of the P ROIs, where the file has them
    tr: float | None = None  # repetition time in seconds, where the file has it
    mean_fd: float | None = None  # mean framewise displacement in mm, where a file beside it has it
    parts: tuple[Series, ...] = ()  # the scans that it was joined of, as they were read; empty where it is one scan
    left_out: tuple[tuple[int, str], ...] = ()  # number and name of columns that count the rows and name no region


def read_series(
    path: str | Path, variable: str | None = None, connectome: bool = False, beside: FirstRows | None = None
) -> Series:
    """Read a time-series file, or a connectome, whose rows may have names. The array is never transposed.

    The first rows of the files that are read together decide whether numbers above whole numbers are a header.
    """
    path = Path(path)
    suffix = get_series_suffix(path)
    if suffix in TEXT:
        series = read_text(path, connectome, beside)
    elif suffix == ".ptseries.nii":
        series = read_cifti(path)
    elif suffix is not None:
        list_arrays = {".npy": list_npy_array, ".npz": list_npz_arrays, ".mat": list_mat_arrays}[suffix]
        series = Series(load_array(path, list_arrays(path), variable if suffix == ".mat" else None))
    else:
        raise BrioError(f"{path}: is not a time-series file; supported file types: {', '.join(SUFFIXES)}")
    array = series.frames
    if array.ndim != 2:
        raise BrioError(f"{path}: the array needs two axes (frames, ROIs), but has shape {array.shape}")
    if array.dtype.kind not in "fiu":
        content = CONTENTS.get(array.dtype.kind, array.dtype)
        raise BrioError(f"{path}: the array must contain real numbers, but contains {content}")
    if array.size == 0:
        raise BrioError(f"{path}: the array is empty (shape {array.shape})")
    return replace(series, frames=np.ascontiguousarray(convert_frames(array, str(path))))


# ---------------------------------------------------------------- text

MISSING = frozenset({"", "na", "n/a"})  # spellings of a missing value, besides those that ``float`` accepts (nan, NaN)

MOST_COMMENTS = 1000  # lines before the first row of a file that are looked at in others
NO_ROW_NAMES = "pandas: to_csv(index=False), R: row.names=FALSE"
# What to do about a header that is one cell shorter than the rows.
ROW_NAMES = "if the first column contains row names from R, write the file again with write.table(..., row.names=FALSE)"

_SEPARATOR = re.compile(r'"?sep=.?"?\s*', re.IGNORECASE)  # first line by which a file tells Excel its separator
_WITH_COMMA = re.compile(r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})*")
_WHOLE = re.compile(r"[+-]?\d+(\.0*)?")
_NAMELESS = re.compile(r"(Unnamed: \d+)?")  # a column that a header leaves without name, as pandas calls it

Line = tuple[int, str]  # number of a line in its file, from 1, and its text


def read_lines(path: Path, file_format: str = "text") -> list[str]:
    """Read the lines of a text file. A first line that tells Excel the separator (``sep=;``) is emptied."""
    lines = read_text_file(path, file_format).split("\n")
    return ["", *lines[1:]] if _SEPARATOR.fullmatch(lines[0]) else lines


def split_line(path: Path, number: int, line: str, delimiter: str | None) -> list[str]:
    """Split a line into cells without the blanks around them.

    A quote that is not closed on its line is an error, because it would otherwise include the rows that follow.
    """
    if delimiter is None:
        return line.split() if '"' not in line else [a or b for a, b in re.findall(r'"([^"]*)"|(\S+)', line)]
    if '"' not in line and len(line) < csv.field_size_limit():
        return [cell.strip() for cell in line.split(delimiter)]
    try:
        cells = next(csv.reader([line], delimiter=delimiter, strict=True))
    except csv.Error as error:
        problem = "an unclosed quote, or text next to a quoted cell"
        if "limit" in str(error):
            problem = f"a cell of more than {csv.field_size_limit():,} characters"
        raise BrioError(f"{path}: line {number} has {problem}; correct the line") from error
    return [cell.strip() for cell in cells]


def has_decimal_commas(cells: Iterable[str], delimiter: str | None) -> bool:
    """Return whether cells are numbers with decimal commas, as spreadsheets write them in many languages.

    Cells whose commas may be thousands separators (``1,250``) count only between semicolons, which are used as
    separators when the comma is not available.
    """
    cells = list(cells)
    if not any("," in cell for cell in cells) or not all(map(_WITH_COMMA.fullmatch, cells)):
        return False
    return delimiter == ";" or not all(map(_THOUSANDS.fullmatch, cells))


@dataclass(frozen=True)
class FirstRows:
    """The first rows of text files that are read together."""

    files: Sequence[Path]
    known: Sequence[Collection[str]] | None = None  # of scans to predict: the names that ROIs of their model may have

    def are_known(self, cells: Collection[str]) -> bool:
        """Return whether cells hold the names of all ROIs of the model."""
        return any({*names} <= {*cells} for names in self.known or ())

    @cached_property
    def shared(self) -> list[str] | None:
        """The cells of the first row that most files share; none if these are copies of one file.

        Numbers with decimals are shared by three files at least, since two may be copies of which one is cut off.
        """
        ((most, n),) = Counter(map(tuple, self.rows.values())).most_common(1) or [((), 0)]
        sharing = [file for file, row in self.rows.items() if tuple(row) == most]
        if 2 * n <= len(self.rows) or n < (2 if all(map(_WHOLE.fullmatch, most)) else 3):
            return None
        return None if all(filecmp.cmp(sharing[0], file, shallow=False) for file in sharing[1:]) else [*most]

    @cached_property
    def rows(self) -> dict[Path, list[str]]:
        """The cells of the first row of each text file that has one."""
        files = (file for file in self.files if get_series_suffix(file) in TEXT)
        return {file: re.split("[\t,; ]+", row) for file in files if (row := read_first_row(file))}

    @cached_property
    def differ(self) -> bool:
        """Whether the first rows differ."""
        return len({*map(tuple, self.rows.values())}) > 1

    @cached_property
    def are_codes(self) -> bool:
        """Whether most first rows are different whole numbers."""
        return 2 * sum(map(_are_codes, self.rows.values())) > len(self.rows)


def read_first_row(path: Path) -> str:
    """Read the first row of a text file, without quotes and comments; what is wrong with the file is said later."""
    with suppress(OSError), path.open(encoding="utf-8-sig", errors="replace") as file:
        lines = (line.replace('"', "").strip(" \r\n") for line in islice(file, MOST_COMMENTS))
        return next((line for line in lines if line.replace("\t", "") and line[0] != "#"), "")
    return ""


def read_text(path: Path, connectome: bool = False, beside: FirstRows | None = None) -> Series:
    """Read a text file whose rows are frames and whose columns are ROIs.

    :func:`_has_header` says what a header is; a leading ``#`` line with one name per column is one too (``#2001
    #2002``). Other lines that start with ``#`` are comments. Missing values are nan, inf, na, n/a or empty cells.
    Decimal commas are read where they cannot be anything else, see :func:`has_decimal_commas`. A column that the header
    does not name is left out if it counts the rows, as the index of pandas does. Rows of a connectome may have names,
    which must be those of the columns.
    """
    comments, lines = list[Line](), list[Line]()
    for number, line in enumerate(read_lines(path), start=1):
        if not line.startswith("#"):
            if line.replace("\t", ".").strip():  # a row of tabs alone is a row of missing values
                lines.append((number, line))
        elif not lines:
            comments.append((number, line))
    delimiter = _find_delimiter(path, lines[:2][-1][1]) if lines else None
    rows = [(number, cells) for number, line in lines if (cells := split_line(path, number, line, delimiter))]
    if not rows:
        unit = "ROI" if connectome else "frame"
        raise BrioError(f"{path}: has no {unit}s; each row must be one {unit}, and each column one ROI")
    if connectome and _has_row_names(path, rows):
        frames = _parse_frames(path, [(n, cells[1:]) for n, cells in rows[1:]], len(rows[1][1]) - 1, delimiter)
        names = rows[0][1][1 - len(rows[1][1]) :]
        return Series(frames, None if _is_consecutive(names) else _clean_names(path, names))
    first = rows[0][1]
    is_quoted = lines[0][1].count('"') == 2 * len(first) and '"' not in lines[:2][-1][1]
    in_comment = _find_header_comment(path, comments, len(first), delimiter)
    has_header = is_quoted or _has_header(path, [row for _, row in rows], None if in_comment else beside)
    if not has_header or has_decimal_commas(_drop_missing(first), delimiter):
        return Series(_parse_frames(path, rows, len(first), delimiter), in_comment)
    if len(rows) == 1:
        raise BrioError(f"{path}: has a header but no frames")
    if not first[0] and _parse_number(rows[1][1][0]) is None:  # names of the rows
        raise _name_missing_header(path, 0)
    frames = _parse_frames(path, rows[1:], len(first), delimiter)
    is_index, counters = _is_after_index(first), find_row_counters(frames).tolist()
    counters = [i for i in counters if (i == 0 if is_index else _NAMELESS.fullmatch(first[i]))]
    if is_index and not counters:
        raise _name_missing_header(path, 0)
    names = [name for i, name in enumerate(first) if i not in counters]
    columns = None if _is_consecutive(names) else _clean_names(path, names)
    return Series(np.delete(frames, counters, axis=1), columns, left_out=tuple((i + 1, first[i]) for i in counters))


def _find_delimiter(path: Path, row: str) -> str | None:
    """Find the character between the cells of the second row, which holds numbers; None means any run of blanks."""
    candidates = "\t;," if path.suffix.lower() in (".tsv", ".csv") else ";,"
    delimiter = next((c for c in candidates if c in row), None)
    blanks = delimiter == "," and len(row.split()) > 1 and has_decimal_commas(row.split(), None)
    return None if blanks else delimiter


def _drop_missing(cells: list[str]) -> list[str]:
    return [cell for cell in cells if cell.lower() not in (*MISSING, "nan")]


def _parse_number(cell: str) -> float | None:
    if cell.lower() in MISSING:
        return math.nan
    try:
        return None if "_" in cell else float(cell)  # Python reads 1_0 as ten, other programs do not
    except ValueError:
        return None


def _has_header(path: Path, rows: list[list[str]], beside: FirstRows | None) -> bool:
    """Return whether the first row names columns: by words, by numbers in order, or by codes.

    Codes are different whole numbers, perhaps after a word or an empty cell above numbers. They are a header if most
    numbers have decimals, and no other row has whole numbers alone. Otherwise the files that are read together decide:
    a row that most of them share is a header, and rows that differ are frames. Of scans to predict, the model knows its
    header.
    """
    first, below = rows[0], rows[1:]
    values = [_parse_number(cell) for cell in first]
    if None in values and not any(value is not None and math.isfinite(value) for value in values):
        return True
    if None in values[1:]:
        return False
    if beside is not None and beside.are_known(first):
        return True
    shared = None if beside is None or len({*_drop_missing(first)}) < 2 else beside.shared
    is_part = shared is not None and _are_codes(first) and ({*first} <= {*shared} or {*shared} <= {*first})
    if shared is not None and (first == shared or is_part):
        return True
    if values[0] is None or (not first[0] and all(row[0] for row in below)):
        counts = [_parse_number(row[0]) for row in below]
        is_index = not first[0] and counts in ([*range(len(below))], [*range(1, len(below) + 1)])
        return is_index or (len(first) > 3 and _are_codes(first[1:]))
    if not all(map(_WHOLE.fullmatch, first)):
        return False
    are_whole, are_codes = _are_whole(first, below), _are_codes(first)
    if _is_consecutive(first):
        return not (beside is not None and beside.differ and are_whole)
    if are_codes and len(first) > 2 and not are_whole and (beside is None or not beside.differ or beside.are_codes):
        return True
    if (are_codes or (not are_whole and len({*first}) > 1)) and beside is not None and not beside.differ:
        if beside.known is not None:
            return False
        remedy = "if it is a header, write # before it; if it is a frame, write a header above it"
        raise BrioError(f"{path}: the first row may be a header or a frame, since all its numbers are whole; {remedy}")
    return False


def _are_codes(cells: Sequence[str]) -> bool:
    """Return whether cells are different whole numbers; pandas may write them with decimals (2001.0)."""
    return len({*cells}) == len(cells) > 1 and all(cell.removesuffix(".0").isdecimal() for cell in cells)


def _are_whole(first: list[str], rows: list[list[str]]) -> bool:
    """Return whether half of the numbers below a row are whole, or all in another row; written like those above."""
    whole = re.compile(r"[+-]?\d+" if all(map(str.isdecimal, first)) else _WHOLE)
    fits = [[whole.fullmatch(cell) is not None for cell in _drop_missing(row)] for row in rows]
    is_other = any(all(own) and len({*row}) > 1 for own, row in zip(fits, rows, strict=True) if own)
    return is_other or 2 * sum(map(sum, fits)) >= sum(map(len, fits))


def _has_row_names(path: Path, rows: list[tuple[int, list[str]]]) -> bool:
    """Return whether the rows of a matrix have names, and require that they are those of the columns, in their order.

    The corner is empty or a word (pandas, XCP-D), or the header has no corner (R).
    """
    header, width = rows[0][1], len(rows[-1][1])
    labels, names = [cells[0] for _, cells in rows[1:]], header[1 - width :]
    if len(header) not in (width, width - 1) or (header[0] and _parse_number(header[0]) is not None):
        return False
    differing = [(i, *pair) for i, pair in enumerate(zip(labels, names, strict=False), 1) if pair[0] != pair[1]]
    if differing and any(_parse_number(label) is None for label in labels):
        problem = "row {0} is named '{1}', but column {0} is named '{2}'".format(*differing[0])
        raise BrioError(
            f"{path}: {problem}; a connectome must have the same regions in rows and columns, in the same order"
        )
    return labels == names


def _is_consecutive(cells: list[str]) -> bool:
    """Return whether cells are 0, 1, 2, ... or 1, 2, 3, ...; pandas may write them as 0.0, 1.0, 2.0, ..."""
    whole = [cell.removesuffix(".0") for cell in cells]
    return len(cells) > 2 and any(whole == [str(i + base) for i in range(len(cells))] for base in (0, 1))


def _is_after_index(cells: list[str]) -> bool:
    """Return whether a header numbers the columns after the first, which has another name or none."""
    return _is_consecutive(cells[1:]) and (not cells[0] or _parse_number(cells[0]) is None)


def _clean_names(path: Path, header: list[str]) -> tuple[str, ...]:
    names = tuple(c.lstrip("#").strip() for c in header)
    if "" in names:
        raise _name_missing_header(path, names.index(""))
    return names


def _name_missing_header(path: Path, column: int) -> BrioError:
    problem = (
        f"column {column + 1} has no name in the header; add one, or remove the column if it numbers or names the rows"
    )
    return BrioError(f"{path}: {problem} ({NO_ROW_NAMES})")


def _find_header_comment(path: Path, comments: list[Line], width: int, delimiter: str | None) -> tuple[str, ...] | None:
    """Find a comment with one name per column, from the last one on."""
    for number, line in reversed(comments):
        cells = split_line(path, number, line.lstrip("#").strip(), delimiter)
        if len(cells) == width:
            names = _clean_names(path, cells)
            is_roistats = all(name.startswith("Mean_") for name in names)  # of AFNI, which C-PAC runs
            return tuple(name.removeprefix("Mean_") for name in names) if is_roistats else names
        if len(cells) > 1 and all(cell.startswith("#") for cell in cells[1:]):
            problem = f"the header in line {number} names {len(cells)} columns"
            raise BrioError(f"{path}: {problem}, but the rows have {width}")
    return None


def _parse_frames(path: Path, rows: list[tuple[int, list[str]]], width: int, delimiter: str | None) -> np.ndarray:
    """Parse rows at once; cell by cell where there are words for missing values, or an error to be located."""
    for number, cells in rows:
        if len(cells) != width:
            is_first, has = number == rows[0][0], format_count(len(cells), "cell")
            remedy = ROW_NAMES if is_first and len(cells) == width + 1 else "the file may be damaged or truncated"
            raise BrioError(f"{path}: line {number} has {has} where {width} were expected; {remedy}")
    text = "".join("".join(cells) for _, cells in rows)
    numbers = (cell for _, cells in rows for cell in _drop_missing(cells))
    if "," in text and delimiter != "," and has_decimal_commas(numbers, delimiter):
        rows = [(number, [cell.replace(",", ".") for cell in cells]) for number, cells in rows]
    try:
        frames = np.array([list(map(float, cells)) for _, cells in rows])
        if not np.isinf(frames).any() and "_" not in text:
            return frames
    except ValueError:
        pass
    lines = [(f"{path}: line {number}", cells) for number, cells in rows]
    return np.array([[_parse_cell(cell, where, i) for i, cell in enumerate(cells)] for where, cells in lines])


def _parse_cell(cell: str, where: str, column: int) -> float:
    value = _parse_number(cell)
    if value is None:
        remedy = "; use a decimal point and no thousands separators" if "," in cell else ""
        if not remedy and column == 0:  # of scans to predict, every file is taken for one
            remedy = "; if this is the participants table, give it with --participants"
        raise BrioError(f"{where}, column {column + 1}: '{cell[:40]}' is not a number{remedy}")
    if math.isinf(value) and any(c.isdigit() for c in cell):  # 1e400, and not the word inf
        raise BrioError(f"{where}, column {column + 1}: {cell[:40]} is too large for a signal")
    return value


# ---------------------------------------------------------------- columns that count the rows

SHORTEST_SCAN = 20  # frames below which a column of a region may be a straight line by chance
# Largest distance from the straight line, as a share of the largest value: what rounding to float32 leaves.
TOLERANCE = 4 * float(np.finfo(np.float32).eps)


def find_row_counters(frames: np.ndarray) -> np.ndarray:
    """Find the columns that are a straight line over the rows, with steps too large to be due to rounding.

    Shapes: frames [T, P].
    """
    if len(frames) < 3:
        return np.zeros(0, dtype=np.int64)
    values, rows = frames.astype(np.float64), np.arange(len(frames))
    with np.errstate(invalid="ignore", over="ignore"):
        slope = (values[-1] - values[0]) / rows[-1]
        rounding = TOLERANCE * np.abs(values).max(axis=0)
        distance = np.abs(values - values[0] - rows[:, None] * slope).max(axis=0)
        return np.flatnonzero((distance <= rounding) & (np.abs(slope) > 8 * rounding))


def refuse_row_counters(frames: np.ndarray, names: Sequence[str], path: Path, drop: Iterable[str]) -> None:
    """Refuse a scan with a column that counts its rows, which no region does.

    Shapes: frames [T, P].
    """
    for i in find_row_counters(frames) if len(frames) >= SHORTEST_SCAN else ():
        if names[i] not in drop:
            first, second = (f"{value:g}" for value in frames[:2, i])
            problem = f"column {i + 1} ('{names[i]}') contains only row numbers ({first}, {second}, ...)"
            remedy = f"leave out the column with --drop-roi {shlex.quote(names[i])}"
            raise BrioError(f"{path}: {problem}; {remedy}")


# ---------------------------------------------------------------- arrays: npy, npz, MATLAB

PREFERRED = ("timeseries", "ROISignals")  # names of the array to read from a file that holds several


@dataclass(frozen=True)
class StoredArray:
    """An array of a file: what its header declares, and how to read it."""

    shape: tuple[int, ...]
    kind: str  # dtype.kind of numpy; "O" for anything that is no array of numbers or text
    n_bytes: int  # size in memory
    read: Callable[[], np.ndarray]


def load_array(path: Path, arrays: Mapping[str, StoredArray], variable: str | None = None) -> np.ndarray:
    """Load the array that contains the series: the named variable, one with a usual name, or the only matrix."""
    require_arrays(path, arrays, [] if variable is None else [variable], "variable")
    # MATLAB stores scalars as 1 x 1 matrices
    matrices = [k for k, v in arrays.items() if len(v.shape) == 2 and v.kind in "fiu" and min(v.shape) > 1]
    preferred = [variable] if variable is not None else [k for k in PREFERRED if k in arrays]
    if not preferred and len(matrices) != 1:
        shapes = ", ".join(f"{k} {'x'.join(map(str, v.shape))}" for k, v in arrays.items()) or "nothing"
        raise BrioError(f"{path}: contains {shapes}; save the array to read under the name 'timeseries'")
    return load_arrays(path, arrays, (preferred or matrices)[:1])[0]


def require_arrays(path: Path, arrays: Mapping[str, StoredArray], names: Iterable[str], what: str = "array") -> None:
    """Require that a file has arrays of some names."""
    for name in names:
        if name not in arrays:
            raise BrioError(f"{path}: has no {what} '{name}'; it has {', '.join(arrays) or 'none'}")


def load_arrays(path: Path, arrays: Mapping[str, StoredArray], names: Sequence[str]) -> list[np.ndarray]:
    """Load arrays of a file, after checking their names, kinds and sizes."""
    require_arrays(path, arrays, names)
    for name in names:
        if path.suffix.lower() == ".mat" and arrays[name].kind not in "fiu":
            content = "complex numbers, a sparse matrix, text, cells, structures or objects"
            raise BrioError(f"{path}: '{name}' must be a matrix of real numbers, but contains {content}")
        if arrays[name].kind == "O":
            problem = "contains pickled Python objects, which are never loaded; save plain arrays of numbers"
            raise BrioError(f"{path}: {problem}")
    require_bounded(sum(arrays[name].n_bytes for name in names), path)
    with name_damaged_file(path, "a MATLAB file" if path.suffix.lower() == ".mat" else path.suffix[1:].lower()):
        return [arrays[name].read() for name in names]


def list_npy_array(path: Path) -> dict[str, StoredArray]:
    """List the array of an npy file."""
    size = require_regular(path, "npy")
    with name_damaged_file(path, "npy"), path.open("rb") as file:
        if file.read(2) == b"PK":
            raise BrioError(f"{path}: is an npz archive, not an npy file; rename it so that it ends in .npz")
        file.seek(0)
        return {PREFERRED[0]: _declare_array(file, f"{path}:", size, partial(np.load, path, allow_pickle=False))}


def list_npz_arrays(path: Path) -> dict[str, StoredArray]:
    """List the arrays of an npz file without unpacking them. Other members of the archive are ignored."""
    require_regular(path, "npz")
    arrays = {}

    def read(name: str) -> np.ndarray:
        with ZipFile(path) as archive, archive.open(name) as stream:
            return np.lib.format.read_array(stream, allow_pickle=False)

    with name_damaged_file(path, "npz"), ZipFile(path) as archive:
        for member in archive.infolist():
            name = member.filename
            if name.endswith(".npy"):
                with archive.open(member) as stream:
                    size, unpack, key = member.file_size, partial(read, name), name.removesuffix(".npy")
                    arrays[key] = _declare_array(stream, f"{path}: array '{key}'", size, unpack)
    return arrays


def _declare_array(stream: IO[bytes], where: str, size: int, read: Callable[[], np.ndarray]) -> StoredArray:
    """Read the header of an npy stream of ``size`` bytes, and check that it can hold what it declares."""
    version = np.lib.format.read_magic(stream)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(stream)
    if dtype.hasobject:
        return StoredArray(shape, "O", 0, read)
    n_bytes, rest = math.prod(shape) * dtype.itemsize, size - stream.tell()
    if n_bytes > rest:
        problem = f"should have {n_bytes:,} bytes of data, but has {rest:,}"
        raise BrioError(f"{where} {problem}; the file may be damaged or truncated")
    return StoredArray(shape, dtype.kind, n_bytes, read)


def read_packed_ids(path: Path, arrays: Mapping[str, StoredArray]) -> list[str]:
    """Read the array ``participant_id`` of an archive of many scans."""
    (ids,) = load_arrays(path, arrays, ["participant_id"])
    if ids.ndim != 1 or ids.dtype.kind not in "USiu":
        raise BrioError(
            f"{path}: 'participant_id' must be a list of names, but has shape {ids.shape} and type {ids.dtype}"
        )
    names = ids.tolist()
    return [name.decode(errors="backslashreplace") if isinstance(name, bytes) else str(name) for name in names]


_MATRIX, _COMPRESSED = 14, 15  # types of data elements
_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_CHAR, _SPARSE, _OPAQUE = 4, 5, 17  # classes with a layout of their own
_COMPLEX = 0x800  # flag of a matrix
_V4_TYPES = ("f8", "f4", "i4", "i2", "u2", "u1")
_HEADER_BYTES = 128


def list_mat_arrays(path: Path) -> dict[str, StoredArray]:
    """List the variables of a MATLAB file, oriented as MATLAB shows them.

    Files of v4 to v7 are parsed here: scipy's parser has crashed Python on damaged files.
    """
    import h5py

    require_regular(path, "a MATLAB file")
    with name_damaged_file(path, "a MATLAB file"):
        if h5py.is_hdf5(path):
            return _list_hdf5(path)
        content = path.read_bytes()
        return dict(_list_v4(content) if 0 in content[:4] else _list_v5(content, path))


def _declare_matrix(
    name: str, shape: tuple[int, ...], kind: str, data: bytes = b"", stored: str = "u1", number_type: str = "u1"
) -> tuple[str, StoredArray]:
    """Declare a variable of a file of v4 to v7, whose numbers lie column by column as they are stored."""

    def read() -> np.ndarray:
        if len(data) != math.prod(shape) * np.dtype(stored).itemsize:
            raise ValueError(f"variable '{name}' does not have as many numbers as its shape {shape} requires")
        return np.frombuffer(data, stored).astype(number_type).reshape(shape, order="F")

    return name, StoredArray(shape, kind, math.prod(shape) * np.dtype(number_type).itemsize, read)


def _list_v4(content: bytes) -> Iterator[tuple[str, StoredArray]]:
    """List the variables of a file of MATLAB v4."""
    order = "<" if 0 <= struct.unpack("<i", content[:4])[0] < 5000 else ">"
    at = 0
    while at < len(content):
        kind, rows, columns, is_complex, n_name = struct.unpack_from(f"{order}5i", content, at)
        if not 0 <= kind < 5000 or min(rows, columns, n_name) < 0:
            raise ValueError("the header of a matrix is missing")
        name = content[at + 20 : at + 20 + n_name].rstrip(b"\0").decode("latin-1")
        stored = f"{order}{_V4_TYPES[kind // 10 % 10]}"
        n_bytes = rows * columns * np.dtype(stored).itemsize
        data = content[at + 20 + n_name : at + 20 + n_name + n_bytes]
        letter = "O" if kind % 10 or is_complex else stored[1]  # text and sparse matrices end in 1 and 2
        yield _declare_matrix(name, (rows, columns), letter, data, stored, stored[1:])
        at += 20 + n_name + n_bytes * (2 if is_complex else 1)


def _list_v5(content: bytes, path: Path) -> Iterator[tuple[str, StoredArray]]:
    """List the variables of a file of MATLAB v5 to v7."""
    order = {b"IM": "<", b"MI": ">"}.get(content[_HEADER_BYTES - 2 : _HEADER_BYTES])
    if order is None:
        raise ValueError("it has no MATLAB header")
    at, total = _HEADER_BYTES, 0
    while at + 8 <= len(content):
        kind, n_bytes = struct.unpack_from(f"{order}2I", content, at)
        body = content[at + 8 : at + 8 + n_bytes]
        at += 8 + n_bytes
        if len(body) < n_bytes:
            raise ValueError("it ends inside a variable")
        if kind == _COMPRESSED:
            inflate, limit = zlib.decompressobj(), max(find_limit() - total, 0)
            body = inflate.decompress(body, limit + 1)
            if len(body) > limit:
                problem = f"is larger than {find_limit() / 2**20:,.0f} MB when unpacked"
                raise BrioError(
                    f"{path}: {problem}; if this size is correct, set the environment variable "
                    f"{LIMIT_VARIABLE} to a larger number of MB"
                )
            if not inflate.eof:
                raise ValueError("it ends inside a variable")
            kind, n_bytes = struct.unpack_from(f"{order}2I", body)
            body = body[8 : 8 + n_bytes]
        total += len(body)
        if kind == _MATRIX and body:
            yield _parse_matrix(body, order)


def _parse_matrix(body: bytes, order: str) -> tuple[str, StoredArray]:
    """Parse the parts of a matrix: flags, shape, name and, of real numbers, the data."""
    flags, _, at = _read_part(body, 0, order)
    (word,) = struct.unpack_from(f"{order}I", flags)
    matlab_class = word & 0xFF
    if matlab_class == _OPAQUE:
        return _declare_matrix("object", (), "O")
    sizes, _, at = _read_part(body, at, order)
    shape = tuple(np.frombuffer(sizes, f"{order}i4").tolist())
    label, _, at = _read_part(body, at, order)
    name = label.rstrip(b"\0").decode("latin-1")
    number_type = _CLASSES.get(matlab_class)
    if number_type is None or word & _COMPLEX or min(shape, default=-1) < 0:
        kind = "c" if number_type else "U" if matlab_class == _CHAR else "S" if matlab_class == _SPARSE else "O"
        return _declare_matrix(name, shape, kind)
    data, stored, _ = _read_part(body, at, order)
    return _declare_matrix(name, shape, number_type[0], data, f"{order}{stored}", number_type)


def _read_part(body: bytes, at: int, order: str) -> tuple[bytes, str, int]:
    """Read a part of a matrix: its bytes, their type, and where the next part starts."""
    kind, n_bytes = struct.unpack_from(f"{order}2I", body, at)
    start, end = at + 8, at + 8 + -(-n_bytes // 8) * 8  # parts are padded to eight bytes
    if kind >> 16:  # up to four bytes stand in the place of their length
        kind, n_bytes, start, end = kind & 0xFFFF, kind >> 16, at + 4, at + 8
    if kind not in _TYPES and kind != 16:  # 16 is UTF-8 text
        raise ValueError(f"it has a part of unknown type {kind}")
    if start + n_bytes > len(body):
        raise ValueError("it ends inside a variable")
    return body[start : start + n_bytes], _TYPES.get(kind, "u1"), end


def _list_hdf5(path: Path) -> dict[str, StoredArray]:
    """List the variables of a file of MATLAB v7.3."""
    import h5py

    def read(name: str) -> np.ndarray:
        with h5py.File(path, "r") as file:
            return file[name][()].T

    arrays = {}
    with h5py.File(path, "r") as file:
        for name in file:
            # links to other files, and data kept in them, are not followed
            node = file[name] if isinstance(file.get(name, getlink=True), h5py.HardLink) else None
            if isinstance(node, h5py.Dataset) and node.shape and not node.external and not node.is_virtual:
                kind = node.attrs.get("MATLAB_class", b"")
                if (kind.decode() if isinstance(kind, bytes) else str(kind)) in ("char", "cell", "logical"):
                    continue  # stored as numbers too
                # MATLAB stores columns first, so that a matrix arrives transposed
                n_bytes = math.prod(node.shape) * node.dtype.itemsize
                arrays[name] = StoredArray(node.shape[::-1], node.dtype.kind, n_bytes, partial(read, name))
    return arrays


# ---------------------------------------------------------------- CIFTI


def read_cifti(path: Path) -> Series:
    """Read a parcellated CIFTI series (``ptseries.nii``)."""
    import nibabel

    require_regular(path, "a CIFTI file")
    # nibabel prints what it mends in a header; what it cannot mend is an error
    with name_damaged_file(path, "a CIFTI file"), nibabel.imageglobals.LoggingOutputSuppressor():
        image = nibabel.load(path)
        if not isinstance(image, nibabel.Cifti2Image):
            raise BrioError(f"{path}: is not a CIFTI file")
        axes = [image.header.get_axis(i) for i in range(image.ndim)]
        kinds = [type(a).__name__.removesuffix("Axis").lower() for a in axes]
        if kinds != ["series", "parcels"]:
            raise BrioError(f"{path}: has the axes {', '.join(kinds)}; give a parcellated series (ptseries) instead")
        series, parcels = axes
        require_bounded(math.prod(image.shape) * 8, path)
        tr = float(series.step) if series.unit == "SECOND" and is_repetition_time(series.step) else None
        return Series(np.asarray(image.dataobj), tuple(map(str, parcels.name)), tr)

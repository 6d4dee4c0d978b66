"""Read one file: what may be read at all, then text, numpy arrays, MATLAB and CIFTI as the time courses of a scan."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import shlex
import stat
import struct
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from zipfile import ZipFile

import numpy as np

from ...errors import BrioError, find_control
from ...storage import hash_file, write_atomically
from ..scans import convert_frames, is_repetition_time

LIMIT_VARIABLE = "BRIO_LARGEST_FILE_MB"  # environment variable with the largest size of an input file, unpacked, in MB
USUAL_LIMIT_MB = 1024.0  # a scan of 10,000 frames and 1,000 ROIs in double precision has 80 MB
TEXT_SHARE = 0.25  # share of the limit that text may have: parsing it takes several times its size

BYTE_ORDER_MARKS = (b"\xff\xfe", b"\xfe\xff")
WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")  # how files of Excel begin, new and old


def find_limit() -> int:
    """Return the largest size of an input file in bytes, unpacked."""
    text = os.environ.get(LIMIT_VARIABLE, "")
    try:
        limit = float(text or USUAL_LIMIT_MB)
    except ValueError:
        limit = math.nan
    if not 0 < limit < math.inf:
        raise BrioError(f"the environment variable {LIMIT_VARIABLE} is '{text}'; give megabytes, for example 4096")
    return int(limit * 2**20)


def require_bounded(size: int, path: Path, share: float = 1.0) -> None:
    """Refuse a size that no scan or table has."""
    limit = find_limit() * share
    if size > limit:
        raise BrioError(
            f"{path}: holds {size / 2**20:,.0f} MB unpacked, more than the {limit / 2**20:,.0f} MB that brio reads; if "
            f"the file is right, set the environment variable {LIMIT_VARIABLE} to {math.ceil(size / share / 2**20)}"
        )


def is_regular(path: Path) -> bool:
    """Return whether a path is a regular file, or a link to one; a name that cannot be one is not."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):  # ValueError: a null character in the name
        return False


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


def read_text_file(path: Path, file_format: str = "text") -> str:
    r"""Read a text file; all line ends become ``\n``."""
    require_regular(path, file_format, TEXT_SHARE)
    try:
        content = path.read_bytes()
        if content.startswith(WORKBOOKS):
            problem = "it is a workbook, such as Excel writes, or an archive"
            raise BrioError(f"{path}: cannot be read as {file_format} ({problem}); save the sheet as CSV in UTF-8")
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if content.startswith(BYTE_ORDER_MARKS):
            problem = "it is UTF-16"
        else:
            line = content.count(b"\n", 0, error.start) + 1
            problem = f"byte {content[error.start]:#04x} in line {line} is not UTF-8"
        raise BrioError(f"{path}: cannot be read as {file_format} ({problem}); save it as UTF-8") from error
    except OSError as error:
        raise BrioError(f"{path}: cannot be read as {file_format} ({error.strerror})") from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise BrioError(f"{path}: cannot be read as {file_format} (null character in line {line}); it may be damaged")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that must hold an object."""
    text = read_text_file(path, "JSON")
    try:
        content = json.loads(text)
    except ValueError as error:
        raise BrioError(f"{path}: not valid JSON ({error})") from error
    except RecursionError as error:
        raise BrioError(f"{path}: not valid JSON (it is nested too deeply)") from error
    if not isinstance(content, dict):
        raise BrioError(f"{path}: must hold a JSON object")
    return content


def describe_name(name: str) -> str:
    r"""Return a name, as the system gives it, as text; bytes that are not UTF-8 are written as ``\xe9``."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def compare_digests(folder: Path, files: Sequence[Path], record: Path) -> None:
    """Compare files with a record of their digests; a record that does not exist is written."""
    found = {path.relative_to(folder).as_posix(): hash_file(path) for path in files}
    if not record.exists():
        lines = "".join(f"{digest}  {name}\n" for name, digest in found.items())
        return write_atomically(record, lines)
    known = {}
    for number, line in enumerate(read_text_file(record, "a list of digests").splitlines(), 1):
        digest, separator, name = line.partition("  ")
        if not separator or len(digest) != 64 or not set(digest.lower()) <= set("0123456789abcdef"):
            raise BrioError(f"{record}, line {number}: is no digest as 'sha256sum' writes it")
        known[name] = digest.lower()
    for name, digest in found.items():
        if name not in known:
            raise BrioError(f"{record}: has no digest of {name}; remove the file from {folder}, or record anew")
        if known[name] != digest:
            raise BrioError(
                f"{folder / name}: differs from the digest in {record}; it is damaged or another version. Remove it "
                "and fetch again"
            )


_WITH_COMMA = re.compile(r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?")
_SEPARATOR = re.compile(r'"?sep=.?"?\s*', re.IGNORECASE)  # first line by which a file tells Excel its separator
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})*")


def read_lines(path: Path, file_format: str = "text") -> list[str]:
    """Read the lines of a text file. A first line that tells Excel the separator (``sep=;``) is emptied."""
    lines = read_text_file(path, file_format).split("\n")
    return ["", *lines[1:]] if _SEPARATOR.fullmatch(lines[0]) else lines


def split_line(path: Path, number: int, line: str, delimiter: str | None) -> list[str]:
    """Split a line into cells without the blanks around them.

    A quote that is not closed in its line is an error: read on, it would swallow the rows that follow.
    """
    if delimiter is None:
        return line.split()
    if '"' not in line and len(line) < csv.field_size_limit():
        return [cell.strip() for cell in line.split(delimiter)]
    try:
        cells = next(csv.reader([line], delimiter=delimiter, strict=True))
    except csv.Error as error:
        if "limit" in str(error):
            problem = f"a cell of more than {csv.field_size_limit():,} characters"
        else:
            problem = "a quote that is not closed in this line, or text beside a quoted cell"
        raise BrioError(f"{path}: line {number} has {problem}; correct it") from error
    return [cell.strip() for cell in cells]


def has_decimal_commas(cells: Iterable[str], delimiter: str | None) -> bool:
    """Return whether cells are numbers with decimal commas, as spreadsheets write them in many languages.

    Cells that may as well have thousands separators (``1,250``) count only between semicolons, which are there because
    the comma is in use.
    """
    cells = list(cells)
    if not any("," in cell for cell in cells) or not all(map(_WITH_COMMA.fullmatch, cells)):
        return False
    return delimiter == ";" or not all(map(_THOUSANDS.fullmatch, cells))


_SIGNAL = "(mean|avg)?(global|glob|gs|gsr|csf|wm|whitematter|wmcsf|csfwm)(mean|sig|signal|ts|meansignal|regressor)?"
_MOTION = (
    "(mean|power|jenkinson)?fd(power|jenkinson)?|framewise(displacement)?|(std)?dvars|rmsd|(rel|abs)(mean)?rms|"
    "(trans|rot|hm|motion)[xyz]|[xyz](trans|rot)|(head)?motion(parameters?)?[0-9]*|rp[0-9]+|pitch|yaw"
)
_REGRESSOR = "[actw]compcor[0-9]+|edgecomp[0-9]+|cosine[0-9]+|aroma(motion|motioncomponent)?[0-9]+"
_OUTLIER = "(motion|nonsteadystate)outlier[0-9]+"
_COUNTER = "time|timepoint|frame|volume|vol|index|unnamed0"
# Names of columns, in small letters and without signs, that are hardly a region: fMRIPrep, CONN, C-PAC, AFNI, FSL.
_NUISANCE = re.compile(f"(({_SIGNAL}|{_MOTION})(derivative1)?(power2)?)|{_REGRESSOR}|{_OUTLIER}|{_COUNTER}")
SHORTEST_SCAN = 20  # frames below which a column of a region may be a straight line by chance
# Largest distance from the straight line, as a share of the largest value: what rounding to float32 leaves.
TOLERANCE = 4 * float(np.finfo(np.float32).eps)
_NAMELESS = re.compile(r"(Unnamed: \d+)?")  # a column that a header leaves without name, as pandas calls it


def find_nuisance(names: Sequence[str]) -> list[str]:
    """Find the names of columns that are hardly a region."""
    return [name for name in names if _NUISANCE.fullmatch("".join(filter(str.isalnum, name.lower())))]


def refuse_nuisance(names: Sequence[str], path: Path) -> None:
    """Refuse columns whose names are those of nuisance signals. Whoever means regions lists them in a table of ROIs."""
    nuisance = find_nuisance(names)
    if 2 * len(nuisance) > len(names):
        raise BrioError(
            f"{path}: {len(nuisance)} of its {len(names)} columns are confounds ({', '.join(nuisance[:3])}, ...), as "
            "fMRIPrep writes them to desc-confounds_timeseries.tsv; give the files with the time series of regions"
        )
    if nuisance:
        flags = " ".join(f"--drop-roi {shlex.quote(name)}" for name in nuisance)
        listed = ", ".join(f"'{name}'" for name in nuisance[:6]) + (", ..." if len(nuisance) > 6 else "")
        is_named = f"column {listed} is" if len(nuisance) == 1 else f"columns {listed} are"
        raise BrioError(
            f"{path}: {is_named} named like a nuisance signal, not a region; leave it out with {flags}, or, if it is a "
            "region, list the regions in a table (--atlas-table)"
        )


def find_row_counters(frames: np.ndarray) -> np.ndarray:
    """Find the columns that are a straight line over the rows, rising or falling.

    Shapes: frames [T, P].
    """
    n_frames = len(frames)
    if n_frames < 3:
        return np.zeros(0, dtype=np.int64)
    # five rows tell nearly all columns from a line, so that few are compared as a whole
    probes = np.unique(np.linspace(0, n_frames - 1, 5).astype(np.int64))
    candidates = np.flatnonzero(_is_line(frames[probes].astype(np.float64), probes))
    return candidates[_is_line(frames[:, candidates].astype(np.float64), np.arange(n_frames))]


def _is_line(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Tell which columns are a + b * row. A step b that rounding may have made is no step."""
    with np.errstate(invalid="ignore", over="ignore"):
        slope = (values[-1] - values[0]) / (rows[-1] - rows[0])
        rounding = TOLERANCE * np.abs(values).max(axis=0)
        distance = np.abs(values - values[0] - rows[:, None] * slope).max(axis=0)
        return (distance <= rounding) & (np.abs(slope) > 8 * rounding)


def refuse_row_counters(frames: np.ndarray, names: tuple[str, ...], path: Path, drop: frozenset[str]) -> None:
    """Refuse a scan with a column that counts its rows. No region does, in any scan.

    Shapes: frames [T, P].
    """
    if len(frames) < SHORTEST_SCAN:
        return
    for i in find_row_counters(frames):
        if names[i] not in drop:
            first, second = (f"{value:g}" for value in frames[:2, i])
            raise BrioError(
                f"{path}: column {i + 1} ('{names[i]}') counts the rows ({first}, {second}, ...), so it is no region; "
                f"leave it out with --drop-roi {shlex.quote(names[i])}, or write the files without it (pandas: "
                "to_csv(index=False), R: row.names=FALSE)"
            )


def describe_left_out(left_out: Mapping[tuple[int, str], Sequence[Path]], n_scans: int) -> list[str]:
    """Describe the columns that were left out since they count the rows and have no name of a region."""
    sentences = []
    for (number, name), paths in left_out.items():
        column = f"column {number}" + (f" ('{name}')" if name else "")
        share = f"all {n_scans}" if len(paths) == n_scans else f"{len(paths)} of {n_scans}"
        share = "" if n_scans == 1 else f" (in {share} scans)"
        sentences.append(f"{paths[0]}: {column} counts the rows and has no name of a region, so it was left out{share}")
    return sentences


PREFERRED = ("timeseries", "ROISignals")  # names of the array to read from a file that holds several


@dataclass(frozen=True)
class DeclaredArray:
    """What the header of an array declares."""

    shape: tuple[int, ...]
    kind: str  # dtype.kind of numpy; "O" for anything that is no array of numbers or text
    n_bytes: int  # size in memory


@contextmanager
def name_damaged_file(path: Path, file_format: str) -> Iterator[None]:
    """Turn any exception of a parser into a :class:`BrioError` that names the file."""
    try:
        yield
    except BrioError:
        raise
    except Exception as error:  # parsers raise exceptions of all kinds on damaged files
        message = (str(error).splitlines() or [type(error).__name__])[0]
        raise BrioError(
            f"{path}: cannot be read as {file_format} ({message}); it may be damaged or cut short"
        ) from error


def _read_npy_header(stream: IO[bytes], path: Path, size: int) -> DeclaredArray:
    """Read the header of an npy stream of ``size`` bytes, and check that it can hold what it declares."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    if dtype.hasobject:
        return DeclaredArray(shape, "O", 0)
    declared = DeclaredArray(shape, dtype.kind, math.prod(shape) * dtype.itemsize)
    if declared.n_bytes > size - stream.tell():
        raise BrioError(
            f"{path}: declares {declared.n_bytes} bytes of data, but holds {size - stream.tell()}; it may be damaged "
            "or cut short"
        )
    return declared


def read_npy(path: Path) -> np.ndarray:
    """Read the array of an npy file."""
    size = require_regular(path, "npy")
    with name_damaged_file(path, "npy"), path.open("rb") as file:
        if file.read(2) == b"PK":
            raise BrioError(f"{path}: is an npz archive, not an npy file; rename it to .npz")
        file.seek(0)
        _refuse_objects(path, _read_npy_header(file, path, size))
        file.seek(0)
        return np.lib.format.read_array(file, allow_pickle=False)


def _refuse_objects(path: Path, declared: DeclaredArray) -> None:
    if declared.kind == "O":
        raise BrioError(f"{path}: holds pickled Python objects, which are never loaded; save plain arrays of numbers")


def list_npz_arrays(path: Path) -> dict[str, DeclaredArray]:
    """List the arrays of an npz file without unpacking them. Other members of the archive are ignored."""
    require_regular(path, "npz")
    arrays = {}
    with name_damaged_file(path, "npz"), ZipFile(path) as archive:
        for member in archive.infolist():
            if member.filename.endswith(".npy"):
                with archive.open(member) as stream:
                    arrays[member.filename.removesuffix(".npy")] = _read_npy_header(stream, path, member.file_size)
    return arrays


def read_npz_arrays(path: Path, keys: Iterable[str]) -> dict[str, np.ndarray]:
    """Read arrays of an npz file."""
    declared, arrays = list_npz_arrays(path), {}
    require_arrays(path, keys, declared)
    require_bounded(sum(declared[key].n_bytes for key in keys), path)
    with name_damaged_file(path, "npz"), ZipFile(path) as archive:
        for key in keys:
            _refuse_objects(path, declared[key])
            with archive.open(f"{key}.npy") as stream:
                arrays[key] = np.lib.format.read_array(stream, allow_pickle=False)
    return arrays


def require_arrays(path: Path, keys: Iterable[str], known: Collection[str]) -> None:
    """Raise :class:`BrioError` unless an archive has all these arrays."""
    for key in keys:
        if key not in known:
            raise BrioError(f"{path}: has no array '{key}'; it has {', '.join(known) or 'none'}")


def read_packed_ids(ids: np.ndarray, path: Path) -> list[str]:
    """Read the array ``participant_id`` of an archive of many scans.

    Shapes: ids [N].
    """
    if ids.ndim != 1 or ids.dtype.kind not in "USiu":
        raise BrioError(f"{path}: 'participant_id' has shape {ids.shape} and holds {ids.dtype}; a list of names is due")
    names = ids.tolist()
    return [name.decode(errors="backslashreplace") if isinstance(name, bytes) else str(name) for name in names]


def choose_array(path: Path, arrays: Mapping[str, DeclaredArray], variable: str | None) -> str:
    """Choose the array of a file that is the series."""
    if variable is not None:
        if variable not in arrays:
            raise BrioError(f"{path}: has no variable '{variable}'; it has {', '.join(arrays) or 'none'}")
        return variable
    # MATLAB stores scalars as 1 x 1 matrices
    matrices = [k for k, v in arrays.items() if len(v.shape) == 2 and v.kind in "fiu" and min(v.shape) > 1]
    chosen = next((k for k in PREFERRED if k in arrays), matrices[0] if len(matrices) == 1 else None)
    if chosen is None:
        shapes = ", ".join(f"{k} {'x'.join(map(str, v.shape))}" for k, v in arrays.items()) or "nothing"
        raise BrioError(f"{path}: cannot tell which array is the series. It holds {shapes}; name one 'timeseries'")
    return chosen


def read_cifti(path: Path) -> tuple[np.ndarray, tuple[str, ...], float | None]:
    """Read a parcellated CIFTI series (``ptseries.nii``).

    Shapes: returns frames [T, P].
    """
    import nibabel

    require_regular(path, "a CIFTI file")
    # nibabel prints what it mends in a header; what it cannot mend is an error
    with name_damaged_file(path, "a CIFTI file"), nibabel.imageglobals.LoggingOutputSuppressor():
        image = nibabel.load(path)
        if not isinstance(image, nibabel.Cifti2Image):
            raise BrioError(f"{path}: is not a CIFTI file")
        axes = [image.header.get_axis(i) for i in range(image.ndim)]
        kinds = [type(a).__name__ for a in axes]
        if kinds != ["SeriesAxis", "ParcelsAxis"]:
            raise BrioError(f"{path}: has the axes {', '.join(kinds)}; a parcellated series (ptseries) is needed")
        series, parcels = axes
        require_bounded(math.prod(image.shape) * 8, path)
        tr = float(series.step) if series.unit == "SECOND" and is_repetition_time(series.step) else None
        return np.asarray(image.dataobj), tuple(str(n) for n in parcels.name), tr


MISSING = frozenset({"", "na", "n/a"})  # spellings of a missing value, besides those that ``float`` accepts (nan, NaN)

# What to do about a header that is one cell shorter than the rows.
ROW_NAMES = "if the first are row names of R, write the file again with write.table(..., row.names=FALSE)"

_WHOLE = re.compile(r"[+-]?\d+(\.0*)?")

Line = tuple[int, str]  # number of a line in its file, from 1, and its text


def read_text(path: Path) -> tuple[np.ndarray, tuple[str, ...] | None, tuple[tuple[int, str], ...]]:
    """Read a text file whose rows are frames and whose columns are ROIs.

    A header is a first row without any number, a first row of consecutive numbers (0, 1, 2, ... or 1, 2, 3, ..., which
    are not taken as names), perhaps after an empty cell or a word, a first row of codes (2001, 2002, 2101, ...:
    different whole numbers above a row that has none), or a leading ``#`` line with one name per column
    (``#2001  #2002``). Other lines that start with ``#`` are comments. Missing values are nan, inf, na, n/a or empty
    cells. Decimal commas are read where they cannot be anything else, see
    :func:`~brio.cohort.readers.series.has_decimal_commas`. A column that the header does not name is left out if it
    counts the rows, as the index of pandas does.

    Shapes: returns frames [T, P].
    """
    comments, body = list[Line](), list[Line]()
    for number, line in enumerate(read_lines(path), start=1):
        if not line.startswith("#"):
            if line.replace("\t", ".").strip():  # a row of tabs alone is a row of missing values
                body.append((number, line))
        elif not body:
            comments.append((number, line))
    if not body:
        raise BrioError(f"{path}: holds no frames; each row must be one frame, each column one ROI")
    delimiter = _find_delimiter(path, body[min(1, len(body) - 1)][1])
    first = split_line(path, *body[0], delimiter)
    columns, header = None, None
    second = split_line(path, *body[1], delimiter) if len(body) > 1 else []
    named = _is_header(first) or _is_row_of_codes(first, second)
    if named and not has_decimal_commas(_drop_missing(first), delimiter):
        header, body = first, body[1:]
        if not body:
            raise BrioError(f"{path}: has a header but holds no frames")
        cells = split_line(path, *body[0], delimiter)
        if len(cells) == len(header) + 1:
            raise BrioError(f"{path}: line {body[0][0]} has {len(cells)} cells, the header {len(header)}; {ROW_NAMES}")
        _check_width(path, len(header), cells, body[0][0])
        if not header[0] and _parse_number(cells[0]) is None:  # names of the rows
            raise _name_missing_header(path, 0)
    else:
        for number, line in reversed(comments):
            cells = split_line(path, number, line.lstrip("#").strip(), delimiter)
            if len(cells) == len(first):
                columns = _clean_names(path, cells)
                break
            if len(cells) > 1 and all(c.startswith("#") for c in cells[1:]):
                raise BrioError(
                    f"{path}: the header in line {number} names {len(cells)} columns, the rows have {len(first)}"
                )
    if delimiter != "," and any("," in text for _, text in body):
        numbers = (cell for line in body for cell in _drop_missing(split_line(path, *line, delimiter)))
        if has_decimal_commas(numbers, delimiter):
            body = [(number, text.replace(",", ".")) for number, text in body]
    frames = _parse_frames(path, body, delimiter)
    if header is None:
        return frames, columns, ()
    after_index = _is_after_index(header)
    nameless = {0} if after_index else {i for i, name in enumerate(header) if _NAMELESS.fullmatch(name)}
    counters = sorted(nameless.intersection(find_row_counters(frames).tolist())) if nameless else []
    if after_index and not counters:
        raise _name_missing_header(path, 0)
    left_out = tuple((i + 1, header[i]) for i in counters)
    if counters:
        kept = np.delete(np.arange(len(header)), counters)
        header, frames = [header[i] for i in kept], frames[:, kept]
    return frames, None if _is_consecutive(header) else _clean_names(path, header), left_out


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


def _is_consecutive(cells: list[str]) -> bool:
    """Return whether cells are 0, 1, 2, ... or 1, 2, 3, ...; pandas may write them as 0.0, 1.0, 2.0, ..."""
    whole = [cell.removesuffix(".0") for cell in cells]
    return len(cells) > 2 and any(whole == [str(i + base) for i in range(len(cells))] for base in (0, 1))


def _is_row_of_codes(first: list[str], second: list[str]) -> bool:
    """Return whether a row names columns by codes: different whole numbers above a row that has none."""
    codes = {cell.removesuffix(".0") for cell in first}
    are_whole = all(code.isdecimal() for code in codes) and not any(_WHOLE.fullmatch(cell) for cell in second)
    return len(first) > 2 and len(codes) == len(first) and are_whole and len(_drop_missing(second)) > 0


def _is_after_index(cells: list[str]) -> bool:
    """Return whether a header numbers the columns after the first, which has another name or none."""
    return _is_consecutive(cells[1:]) and (not cells[0] or _parse_number(cells[0]) is None)


def _is_header(cells: list[str]) -> bool:
    if _is_consecutive(cells) or _is_after_index(cells):
        return True
    values = [_parse_number(c) for c in cells]
    return None in values and not any(v is not None and math.isfinite(v) for v in values)


def _clean_names(path: Path, header: list[str]) -> tuple[str, ...]:
    names = tuple(c.lstrip("#").strip() for c in header)
    if "" in names:
        raise _name_missing_header(path, names.index(""))
    return names


def _name_missing_header(path: Path, column: int) -> BrioError:
    return BrioError(
        f"{path}: column {column + 1} has no name in the header; remove the column if it holds numbers or names of the "
        "rows (pandas: to_csv(index=False), R: row.names=FALSE)"
    )


def _check_width(path: Path, width: int, cells: list[str], number: int) -> None:
    if len(cells) != width:
        raise BrioError(
            f"{path}: line {number} has {len(cells)} cells where {width} were expected; the file may be cut short"
        )


def _parse_frames(path: Path, body: list[Line], delimiter: str | None) -> np.ndarray:
    try:
        frames = np.loadtxt([line for _, line in body], delimiter=delimiter, comments=None, ndmin=2)
    except ValueError:
        frames = None
    if frames is None or np.isinf(frames).any():
        # words for missing values, or an error whose line and column are worth naming: parse cell by cell
        width = len(split_line(path, *body[0], delimiter))
        frames = np.array([_parse_row(path, *line, delimiter, width) for line in body])
    return frames


def _parse_row(path: Path, number: int, line: str, delimiter: str | None, width: int) -> list[float]:
    cells = split_line(path, number, line, delimiter)
    _check_width(path, width, cells, number)
    values = []
    for column, cell in enumerate(cells):
        where, value = f"{path}: line {number}, column {column + 1}", _parse_number(cell)
        if value is None:
            remedy = ""
            if "," in cell:
                remedy = "; write a decimal point, and nothing between thousands"
            elif column == 0:  # of scans to predict, every file is taken for one
                remedy = "; if this is the participants table, name it with --participants"
            raise BrioError(f"{where}: '{cell[:40]}' is not a number{remedy}")
        if math.isinf(value) and any(c.isdigit() for c in cell):  # 1e400, and not the word inf
            raise BrioError(f"{where}: {cell[:40]} is too large for a signal")
        values.append(value)
    return values


_MATRIX, _COMPRESSED = 14, 15  # types of data elements
_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_CHAR, _SPARSE, _OPAQUE = 4, 5, 17  # classes with a layout of their own
_COMPLEX = 0x800  # flag of a matrix
_V4_TYPES = ("f8", "f4", "i4", "i2", "u2", "u1")
_HEADER_BYTES = 128


@dataclass(frozen=True)
class _Variable:
    """A variable of a file of v4 to v7: what it declares, and its numbers, column by column, as they are stored."""

    name: str
    declared: DeclaredArray
    data: bytes
    stored_type: str
    type: str


def read_mat(path: Path, variable: str | None = None) -> np.ndarray:
    """Read a numeric matrix of a MATLAB file, oriented as MATLAB shows it.

    Shapes: returns [T, P].
    """
    import h5py

    require_regular(path, "a MATLAB file")
    with name_damaged_file(path, "a MATLAB file"):
        if h5py.is_hdf5(path):
            return _read_hdf5(path, variable)
        content = path.read_bytes()
        listed = _list_v4(content) if 0 in content[:4] else _list_v5(content, path)
        variables = {one.name: one for one in listed}
        one = variables[_choose(path, {name: one.declared for name, one in variables.items()}, variable)]
        shape, stored = one.declared.shape, np.dtype(one.stored_type)
        if len(one.data) != math.prod(shape) * stored.itemsize:
            raise ValueError(f"variable '{one.name}' has not as many numbers as its shape {shape}")
        return np.frombuffer(one.data, stored).astype(one.type).reshape(shape, order="F")


def _choose(path: Path, arrays: dict[str, DeclaredArray], variable: str | None) -> str:
    """Choose the matrix; text, cells, structures, objects, complex numbers and too many of them are refused."""
    chosen = choose_array(path, arrays, variable)
    if arrays[chosen].kind not in "fiu":
        raise BrioError(
            f"{path}: '{chosen}' holds no matrix of real numbers, but complex ones, text, cells, structures or objects"
        )
    require_bounded(arrays[chosen].n_bytes, path)
    return chosen


def _list_v4(content: bytes) -> Iterator[_Variable]:
    """List the variables of a file of MATLAB v4."""
    order = "<" if 0 <= struct.unpack("<i", content[:4])[0] < 5000 else ">"
    at = 0
    while at < len(content):
        kind, rows, columns, is_complex, n_name = struct.unpack_from(f"{order}5i", content, at)
        if not 0 <= kind < 5000 or min(rows, columns, n_name) < 0:
            raise ValueError("it has no header of a matrix where one should be")
        name = content[at + 20 : at + 20 + n_name].rstrip(b"\0").decode("latin-1")
        stored = f"{order}{_V4_TYPES[kind // 10 % 10]}"
        n_bytes = rows * columns * np.dtype(stored).itemsize
        data = content[at + 20 + n_name : at + 20 + n_name + n_bytes]
        letter = "O" if kind % 10 or is_complex else stored[1]  # text and sparse matrices end in 1 and 2
        yield _Variable(name, DeclaredArray((rows, columns), letter, n_bytes), data, stored, stored[1:])
        at += 20 + n_name + n_bytes * (2 if is_complex else 1)


def _list_v5(content: bytes, path: Path) -> Iterator[_Variable]:
    """List the variables of a file of MATLAB v5 to v7."""
    order = {b"IM": "<", b"MI": ">"}.get(content[_HEADER_BYTES - 2 : _HEADER_BYTES])
    if order is None:
        raise ValueError("it has no header of MATLAB")
    at, total = _HEADER_BYTES, 0
    while at + 8 <= len(content):
        kind, n_bytes = struct.unpack_from(f"{order}2I", content, at)
        body = content[at + 8 : at + 8 + n_bytes]
        if len(body) < n_bytes:
            raise ValueError("it ends inside a variable")
        if kind == _COMPRESSED:
            body = _inflate(body, path, max(find_limit() - total, 0))
            kind, n_bytes = struct.unpack_from(f"{order}2I", body)
            body = body[8 : 8 + n_bytes]
        total += len(body)
        if kind == _MATRIX and body:
            yield _parse_matrix(body, order)
        at += 8 + struct.unpack_from(f"{order}2I", content, at)[1]


def _inflate(packed: bytes, path: Path, limit: int) -> bytes:
    """Inflate a variable, but no more than the largest size that is read."""
    inflate = zlib.decompressobj()
    body = inflate.decompress(packed, limit + 1)
    if len(body) > limit:
        raise BrioError(
            f"{path}: unpacks to more than the {find_limit() / 2**20:,.0f} MB that brio reads; if the file is right, "
            f"set the environment variable {LIMIT_VARIABLE} to a larger number"
        )
    if not inflate.eof:
        raise ValueError("it ends inside a variable")
    return body


def _parse_matrix(body: bytes, order: str) -> _Variable:
    """Parse the parts of a matrix: flags, shape, name and, of real numbers, the data."""
    flags, _, at = _read_part(body, 0, order)
    (word,) = struct.unpack_from(f"{order}I", flags)
    matlab_class = word & 0xFF
    if matlab_class == _OPAQUE:
        return _Variable("object", DeclaredArray((), "O", 0), b"", "u1", "u1")
    sizes, _, at = _read_part(body, at, order)
    shape = tuple(np.frombuffer(sizes, f"{order}i4").tolist())
    name, _, at = _read_part(body, at, order)
    label = name.rstrip(b"\0").decode("latin-1")
    number_type = _CLASSES.get(matlab_class)
    if number_type is None or word & _COMPLEX or min(shape, default=-1) < 0:
        kind = "c" if number_type else "U" if matlab_class == _CHAR else "S" if matlab_class == _SPARSE else "O"
        return _Variable(label, DeclaredArray(shape, kind, 0), b"", "u1", "u1")
    data, stored, _ = _read_part(body, at, order)
    n_bytes = math.prod(shape) * np.dtype(number_type).itemsize
    return _Variable(label, DeclaredArray(shape, number_type[0], n_bytes), data, f"{order}{stored}", number_type)


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


def _read_hdf5(path: Path, variable: str | None) -> np.ndarray:
    """Read a variable of a file of MATLAB v7.3."""
    import h5py

    with h5py.File(path, "r") as file:
        arrays = {}
        for name in file:
            # links to other files, and data kept in them, are not followed
            node = file[name] if isinstance(file.get(name, getlink=True), h5py.HardLink) else None
            if isinstance(node, h5py.Dataset) and node.shape and not node.external and not node.is_virtual:
                kind = node.attrs.get("MATLAB_class", b"")
                if (kind.decode() if isinstance(kind, bytes) else str(kind)) in ("char", "cell", "logical"):
                    continue  # stored as numbers too
                # MATLAB stores columns first, so that a matrix arrives transposed
                n_bytes = math.prod(node.shape) * node.dtype.itemsize
                arrays[name] = DeclaredArray(node.shape[::-1], node.dtype.kind, n_bytes)
        return file[_choose(path, arrays, variable)][()].T


TEXT = (".tsv", ".csv", ".txt", ".1d")  # suffixes of delimited text
SUFFIXES = (*TEXT, ".npy", ".npz", ".mat", ".ptseries.nii")


@dataclass(frozen=True, eq=False)
class Series:
    """Time series of one scan, with what its file states about it.

    Shapes: frames [T, P].
    """

    frames: np.ndarray
    columns: tuple[str, ...] | None = None  # names of the P ROIs, where the file has them
    tr: float | None = None  # repetition time in seconds, where the file has it
    parts: tuple[Series, ...] = ()  # the scans that it was joined of, as they were read; empty where it is one scan
    left_out: tuple[tuple[int, str], ...] = ()


def get_series_suffix(path: Path) -> str | None:
    """Return the suffix of a time-series file."""
    name = path.name.lower()
    return next((s for s in SUFFIXES if name.endswith(s)), None)


def get_series_stem(path: Path) -> str:
    """Return the name of a time-series file without its suffix (``.ptseries.nii`` is one suffix)."""
    return path.name[: len(path.name) - len(get_series_suffix(path) or "")]


def find_series(src: Path) -> list[Path]:
    """List the files below a folder that may hold a time series. Hidden files and folders are ignored."""
    files = sorted(path for path in ([src] if src.is_file() else _list_files(src)) if get_series_suffix(path))
    for path in files:
        if (name := describe_name(path.name)) != path.name:
            raise BrioError(f"{src}: the name of the file {name} is not valid UTF-8; rename it")
        if control := find_control(path.name):
            raise BrioError(f"{path}: the name of this file has the control character {control}; rename it")
    return files


def _list_files(src: Path) -> Iterator[Path]:
    """List all files below a folder. A folder that is linked to is listed once, so links may form a circle."""
    seen: set[tuple[int, int]] = set()
    folders, links = [src], list[Path]()
    while folders or links:
        folder = folders.pop() if folders else links.pop()  # links last: a folder keeps its own name
        try:
            status = folder.stat()
            entries = [entry for entry in os.scandir(folder) if not entry.name.startswith(".")]
        except OSError as error:
            raise BrioError(f"{folder}: cannot be read ({error.strerror})") from error
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        for entry in entries:
            path = Path(entry.path)
            if path.is_dir():
                (links if entry.is_symlink() else folders).append(path)
            else:
                yield path


def read_series(path: str | Path, variable: str | None = None) -> Series:
    """Read a time-series file. The array is never transposed."""
    path, columns, tr = Path(path), None, None
    left_out: tuple[tuple[int, str], ...] = ()
    suffix = get_series_suffix(path)
    if suffix in TEXT:
        array, columns, left_out = read_text(path)
    elif suffix == ".npy":
        array = read_npy(path)
    elif suffix == ".npz":
        chosen = choose_array(path, list_npz_arrays(path), None)
        array = read_npz_arrays(path, (chosen,))[chosen]
    elif suffix == ".mat":
        array = read_mat(path, variable)
    elif suffix == ".ptseries.nii":
        array, columns, tr = read_cifti(path)
    else:
        raise BrioError(f"{path}: not a time-series file; supported: {', '.join(SUFFIXES)}")
    if array.ndim != 2:
        raise BrioError(f"{path}: two axes are needed (frames, ROIs), this array has shape {array.shape}")
    if array.dtype.kind not in "fiu":
        raise BrioError(f"{path}: the array holds {array.dtype}, not numbers")
    if array.size == 0:
        raise BrioError(f"{path}: is empty, its shape is {array.shape}")
    return Series(np.ascontiguousarray(convert_frames(array, str(path))), columns, tr, left_out=left_out)

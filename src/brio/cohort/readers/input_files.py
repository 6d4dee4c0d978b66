"""Files that a reader is given: what may be read, and their digests."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...errors import BrioError
from ...storage import hash_file, write_atomically

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


def is_utf8(name: str) -> bool:
    """Return whether a name, as the system gives it, is valid UTF-8 and can be written to a table."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def describe_name(name: str) -> str:
    r"""Return a name, as the system gives it, as text; bytes that are not UTF-8 are written as ``\xe9``."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def compare_digests(folder: Path, files: Sequence[Path], record: Path) -> None:
    """Compare files with a record of their digests; a record that does not exist is written."""
    found = {path.relative_to(folder).as_posix(): hash_file(path) for path in files}
    if not record.exists():
        lines = "".join(f"{digest}  {name}\n" for name, digest in found.items())
        return write_atomically(record, lines)
    known = _read_record(record)
    for name, digest in found.items():
        if name not in known:
            raise BrioError(f"{record}: has no digest of {name}; remove the file from {folder}, or record anew")
        if known[name] != digest:
            raise BrioError(
                f"{folder / name}: differs from the digest in {record}; it is damaged or another version. Remove it "
                "and fetch again"
            )


def _read_record(record: Path) -> dict[str, str]:
    known = {}
    for number, line in enumerate(read_text_file(record, "a list of digests").splitlines(), 1):
        digest, separator, name = line.partition("  ")
        if not separator or len(digest) != 64 or not set(digest.lower()) <= set("0123456789abcdef"):
            raise BrioError(f"{record}, line {number}: is no digest as 'sha256sum' writes it")
        known[name] = digest.lower()
    return known

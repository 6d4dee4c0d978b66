"""Read the content of a file of a known largest size, and decode it."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import REPEAT_JOB, file_error


def read_bounded(path: Path, max_bytes: int, remedy: str = REPEAT_JOB) -> bytes:
    """Read a regular file."""
    try:
        if path.exists() and not path.is_file():
            raise file_error(path, "is no regular file", remedy)
        with path.open("rb") as file:
            # memory is reserved for all that is asked for, so no more than the file has
            content = file.read(min(os.fstat(file.fileno()).st_size, max_bytes) + 1)
    except OSError as error:
        raise file_error(path, f"cannot be read ({error})", remedy) from error
    except MemoryError:
        raise file_error(path, "does not fit into memory", remedy) from None
    if len(content) > max_bytes:
        raise file_error(path, f"is larger than {max_bytes >> 20} MiB, and brio writes no such file", remedy)
    return content


def decode(content: bytes, path: Path, remedy: str = REPEAT_JOB) -> str:
    """Decode the content of a file as UTF-8."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = content[error.start]
        raise file_error(path, f"is not UTF-8 text (byte 0x{byte:02x} at position {error.start})", remedy) from None

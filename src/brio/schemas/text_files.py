"""Read a text file of a known largest size."""

from __future__ import annotations

from pathlib import Path

from ..errors import file_error

__all__ = ["read_text"]


def read_text(path: Path, remedy: str, max_bytes: int) -> str:
    """Read a regular file as UTF-8 text.

    Parameters
    ----------
    path : Path
    remedy : str
        What to do where it cannot be read, for the error.
    max_bytes : int
        A larger file is not read.

    Returns
    -------
    str

    Raises
    ------
    BrioError
        If it is no regular file, larger, not UTF-8, or cannot be read.
    """
    try:
        if path.exists() and not path.is_file():
            raise file_error(path, "is no regular file", remedy)
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise file_error(path, f"cannot be read ({error})", remedy) from error
    if len(content) > max_bytes:
        raise file_error(path, f"is larger than {max_bytes >> 20} MiB, and brio writes no such file", remedy)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = content[error.start]
        raise file_error(path, f"is not UTF-8 text (byte 0x{byte:02x} at position {error.start})", remedy) from None

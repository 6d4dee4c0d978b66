"""SHA-256 digests of downloaded files: recorded once, compared at every later download."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...errors import BrioError
from ...storage import hash_file, write_atomically
from .input_files import read_text_file


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

"""``SHA256SUMS``: the hash of every file of a folder, checked when a file is read.

``sha256sum --check SHA256SUMS`` reads the file too. While files are replaced it also has their new hashes, in lines
that begin with ``#``, so that a process which is killed at any moment leaves files that fit it.

Folders of version 0.1.0, and of early versions of 0.2.0, have none. They are read with a warning. Later ones say in a
file of theirs that there is one, and where it is missing, the folder is damaged.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import re
import stat
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import BrioError
from .writing import encode_text, make_folders, refuse_special, replace_content, write_atomically, write_new

SUMS = "SHA256SUMS"
MAX_SUMS_BYTES = 64 << 20
"""A larger file of hashes is damaged."""
_LINE = re.compile(r"(# being written: )?([0-9a-f]{64})  ([^/\\\x00]+)\n")
_UNHASHED = (
    f"some of these folders have no {SUMS}: version 0.1.0 or an early 0.2.0 wrote them. They are read, but damage to "
    "their files would not be noticed"
)


class UnhashedFilesWarning(UserWarning):
    """Files of an earlier version are read, which have no hashes."""


@functools.cache
def warn_unhashed() -> None:
    """Warn of files without hashes, once in a process; a command clears the cache when it begins."""
    warnings.warn(_UNHASHED, UnhashedFilesWarning, stacklevel=2)


@dataclass(frozen=True)
class Sums:
    """Hashes of the files of a folder."""

    listed: dict[str, str] = field(default_factory=dict)  # file -> hash
    coming: dict[str, str] = field(default_factory=dict)

    def to_text(self) -> str:
        """Return the text of the file."""
        lines = [f"{digest}  {name}\n" for name, digest in self.listed.items()]
        return "".join(lines + [f"# being written: {digest}  {name}\n" for name, digest in self.coming.items()])


def hash_file(path: Path) -> str:
    """Compute the SHA-256 of a regular file; a pipe would wait for a writer, and a device has no end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is no ordinary file", str(path))
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_sums(folder: Path, remedy: str) -> Sums | None:
    """Read the hashes of a folder; None where it has none."""
    path = folder / SUMS
    if not os.path.lexists(path):
        return None
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > MAX_SUMS_BYTES:  # a pipe waits, a device has no end
            raise BrioError(f"{path}: was changed or damaged; {remedy}")
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BrioError(f"{path}: cannot be read ({error}); {remedy}") from error
    sums = Sums()
    for line in text.splitlines(keepends=True):
        match = _LINE.fullmatch(line)
        if match is None:
            raise BrioError(f"{path}: was changed or damaged; {remedy}")
        (sums.coming if match[1] else sums.listed)[match[3]] = match[2]
    return sums


def write_sums(folder: Path, names: Iterable[str] | None = None) -> None:
    """Write the hashes of files of a folder that has no name yet, see :func:`brio.storage.create_whole_folder`."""
    names = sorted(os.listdir(folder)) if names is None else names
    write_new(folder / SUMS, Sums({name: hash_file(folder / name) for name in names}).to_text())


def write_recorded(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files of a folder, one after the other, and their hashes; nothing where all are there as they shall be."""
    make_folders(folder)
    data = {name: encode_text(folder / name, text) for name, text in files.items()}
    new = {name: hashlib.sha256(content).hexdigest() for name, content in data.items()}
    for name in new:  # before the first is replaced
        refuse_special(folder / name)
    sums = _read_undamaged(folder)
    if sums == Sums(sums.listed | new) and all(_has_hash(folder / name, digest) for name, digest in new.items()):
        return
    # of a file that a killed process was writing, the hash that it has now
    before = sums.listed | {name: digest for name, digest in sums.coming.items() if _has_hash(folder / name, digest)}
    write_atomically(folder / SUMS, Sums(before, new).to_text())
    for name, content in data.items():
        replace_content(folder / name, content)
    after = dict(sorted((before | new).items()))  # the same, whatever was interrupted before
    write_atomically(folder / SUMS, Sums(after).to_text())


def _read_undamaged(folder: Path) -> Sums:
    """Read the hashes of a folder; none where they are damaged, so that it is noticed with files not written now."""
    try:
        return read_sums(folder, "") or Sums()
    except BrioError:
        return Sums()


def _has_hash(path: Path, digest: str) -> bool:
    """Return whether a file is there, can be read, and has a hash."""
    try:
        return hash_file(path) == digest
    except OSError:
        return False


def check_stored(path: Path, remedy: str, promised: Callable[[], bool], content: bytes | None = None) -> None:
    """Check the hash of a file."""
    digest = _hash_readable(path, remedy) if content is None else hashlib.sha256(content).hexdigest()
    sums = read_sums(path.parent, remedy)
    allowed = set() if sums is None else {sums.listed.get(path.name), sums.coming.get(path.name)} - {None}
    if digest in allowed:
        return
    if allowed:
        raise BrioError(f"{path}: was changed or damaged since it was written; {remedy}")
    if not promised():
        warn_unhashed()
    elif sums is None:
        raise BrioError(f"{path.parent / SUMS}: is missing; {remedy}")
    else:
        raise BrioError(f"{path.parent / SUMS}: has no line for {path.name}; {remedy}")


def _hash_readable(path: Path, remedy: str) -> str:
    """Compute the hash of a file; an error that names it and says what to do where it cannot be read."""
    try:
        return hash_file(path)
    except OSError as error:
        raise BrioError(f"{path}: cannot be read ({error.strerror}); {remedy}") from error


def is_kept(path: Path, remedy: str) -> bool:
    """Return whether a file is there that a folder need not have."""
    if path.is_file():
        return True
    sums = read_sums(path.parent, remedy)
    if sums is not None and path.name in sums.listed:
        raise BrioError(
            f"{path}: is missing, though {SUMS} lists it; {remedy}, or remove its line if it was left out on purpose"
        )
    return False


def check_all(folder: Path, remedy: str, required: Iterable[str] = ()) -> list[str]:
    """Check every file of a folder that has hashes and was written as a whole."""
    sums = read_sums(folder, remedy)
    if sums is None:
        raise BrioError(f"{folder / SUMS}: is missing; {remedy}")
    for name, digest in sums.listed.items():
        if not (folder / name).is_file():
            raise BrioError(f"{folder / name}: is missing, though {SUMS} lists it; {remedy}")
        if _hash_readable(folder / name, remedy) != digest:
            raise BrioError(f"{folder / name}: was changed or damaged since it was written; {remedy}")
    for name in required:
        if name not in sums.listed:
            raise BrioError(f"{folder / SUMS}: has no line for {name}; {remedy}")
    return list(sums.listed)

"""Every call by which brio changes a disk.

:mod:`brio.storage` uses nothing else to write, rename or remove. Tests replace these functions, so that any
of them can fail or be the last call of a process.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path


def create_file(path: Path) -> int:
    """Create a file that must not exist, not even as a link, and return its descriptor."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)


def write(descriptor: int, content: bytes | memoryview) -> None:
    """Write all of the content at the position of a descriptor."""
    rest = memoryview(content).cast("B")
    while len(rest):
        rest = rest[os.write(descriptor, rest) :]


def sync(descriptor: int) -> None:
    """Wait until what was written to a descriptor is on the disk."""
    os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Wait until new names in a folder are on the disk, if the system can report this."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network drives cannot
            raise
    finally:
        os.close(descriptor)


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make a folder that must not exist, inside one that does."""
    os.mkdir(folder, mode)


def rename(source: Path, target: Path) -> None:
    """Give a folder its final name; fail if another folder with files has it."""
    os.rename(source, target)


def replace(source: Path, target: Path) -> None:
    """Give a file its final name and replace the file that has it; a link is replaced, not followed."""
    os.replace(source, target)


def remove_file(path: Path) -> None:
    """Remove a file."""
    os.unlink(path)


def remove_folder(folder: Path) -> None:
    """Remove an empty folder."""
    os.rmdir(folder)


def remove_tree(folder: Path) -> None:
    """Remove a folder and all that is in it; links in it are not followed."""
    shutil.rmtree(folder)

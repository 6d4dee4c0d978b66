"""Locks of folders: two processes that write to one folder at once would undo each other's work."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BrioError
from . import disk
from .writing import explain_failure, make_folders, remove_made

if TYPE_CHECKING:
    from filelock import FileLock

LOCK = ".lock"


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Reserve a folder for this process; it is made where it is missing.

    The lock file stays in the folder; a lock ends with its process, also when that is killed. Where the block fails
    before anything else was written, folder and lock file are removed again.
    """
    from filelock import FileLock

    made = make_folders(folder)
    lock = FileLock(folder / LOCK)
    try:
        with explain_failure(folder / LOCK):
            _acquire(lock, folder)
    except BaseException:
        remove_made(made)  # unless another process has its lock there
        raise
    try:
        yield
    except BaseException:
        _remove_if_unused(folder, made)
        raise
    finally:
        lock.release()


def _acquire(lock: FileLock, folder: Path) -> None:
    from filelock import Timeout

    try:
        lock.acquire(blocking=False)
    except Timeout:  # an OSError, but nothing that cannot be written
        raise BrioError(f"{folder}: another brio is at work there; wait for it or choose another --out") from None


def _remove_if_unused(folder: Path, made: list[Path]) -> None:
    """Remove a folder that was made for the lock, and those made above it, if they hold nothing else."""
    with contextlib.suppress(OSError):
        if folder in made and os.listdir(folder) == [LOCK]:
            disk.remove_file(folder / LOCK)  # a process that has it open will see that it has no name any more
            remove_made(made)

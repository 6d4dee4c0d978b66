"""Locks of folders: two processes that write to one folder at once would undo each other's work."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import BrioError
from . import disk
from .writing import explain_failure, make_folders

__all__ = ["LOCK", "lock_folder"]

LOCK = ".lock"


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Reserve a folder for this process; it is made where it is missing.

    The lock file stays in the folder; a lock ends with its process, also when that is killed. Where the block fails
    before anything else was written, folder and lock file are removed again.

    Raises
    ------
    BrioError
        If another process has reserved it, or it cannot be written.
    """
    from filelock import FileLock, Timeout

    made = make_folders(folder)
    lock = FileLock(folder / LOCK)
    with explain_failure(folder / LOCK):
        try:
            lock.acquire(blocking=False)
        except Timeout:
            raise BrioError(f"{folder}: another brio is at work there; wait for it or choose another --out") from None
    try:
        yield
    except BaseException:
        _remove_if_unused(folder, made)
        raise
    finally:
        lock.release()


def _remove_if_unused(folder: Path, made: list[Path]) -> None:
    """Remove a folder that was made for the lock, and those made above it, if they hold nothing else."""
    with contextlib.suppress(OSError):
        if folder in made and os.listdir(folder) == [LOCK]:
            disk.remove_file(folder / LOCK)  # a process that has it open will see that it has no name any more
            for place in reversed(made):
                disk.remove_folder(place)

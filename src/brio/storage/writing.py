"""Files and folders that are there whole or not at all.

What is being written has a name of its own (:mod:`brio.storage.partial`). It is on the disk before it gets its final
name, and it is removed when anything fails, Ctrl-C included.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import BrioError
from . import disk
from .partial import is_being_written, remove_leftovers, remove_quietly, reserve_name


@contextmanager
def explain_failure(path: Path) -> Iterator[None]:
    """Turn an error of the system, while a file or folder is written, into one that names it and says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise BrioError(
                f"{path}: cannot be written, the disk is full; free some space and give the same command again: it "
                "goes on from what is finished"
            ) from error
        reason = error.strerror or str(error)
        remedy = "see that its folder can be written to, then give the same command again"
        raise BrioError(f"{path}: cannot be written ({reason}); {remedy}") from error


def refuse_existing(out: str | Path) -> None:
    """Refuse a folder that is to be created, before any work is done."""
    _refuse_name(Path(out))
    if is_being_written(Path(out)):
        raise BrioError(f"{out}: another brio is writing it; wait for it or choose another --out")


def require_creatable(out: Path) -> None:
    """Refuse a folder that could not be created, before work that takes long; nothing is left."""
    refuse_existing(out)
    made = make_folders(out.parent)
    trial = reserve_name(out.parent)
    try:
        with explain_failure(out):
            disk.make_folder(trial)
    finally:
        try:
            remove_quietly(trial)
        finally:
            remove_made(made)


def _refuse_name(path: Path) -> None:
    if os.path.lexists(path):
        raise BrioError(f"{path}: exists already; choose another --out or remove it")


def make_folders(folder: Path) -> list[Path]:
    """Make a folder and those above it that are missing."""
    missing = [place for place in (folder, *folder.parents) if not os.path.lexists(place)]
    made: list[Path] = []
    with explain_failure(folder):
        try:
            for place in reversed(missing):
                with contextlib.suppress(FileExistsError):  # another process was faster
                    disk.make_folder(place)
                    made.append(place)
            if not folder.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "a file is in the way")
        except BaseException:
            remove_made(made)
            raise
    return made


def remove_made(made: list[Path]) -> None:
    """Remove folders that :func:`make_folders` made, unless something is in them; tried twice, as files are."""
    try:
        _remove_folders(made)
    finally:
        _remove_folders(made)


def _remove_folders(made: list[Path]) -> None:
    for place in reversed(made):
        if place.is_dir():
            remove_empty_folder(place)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file: a reader, or a process that is killed, sees the old one or the new one."""
    replace_content(path, encode_text(path, content))
    with explain_failure(path):
        disk.sync_folder(path.parent)


def replace_content(path: Path, content: bytes) -> None:
    """Write a file as :func:`write_atomically` does, but do not wait until its new name is on the disk."""
    refuse_special(path)
    partial = reserve_name(path.parent)
    with explain_failure(path):
        try:
            with NewFile(partial, path) as file:
                file.write(content)
            disk.replace(partial, path)
        except BaseException:
            remove_quietly(partial)
            raise


def write_new(path: Path, content: str | bytes) -> None:
    """Write a file of a folder that has no name yet (:func:`create_whole_folder`), where nobody can see it half."""
    with NewFile(path, path) as file:
        file.write(encode_text(path, content))


def encode_text(path: Path, content: str | bytes) -> bytes:
    """Encode the text of a file as UTF-8; bytes stay as they are."""
    try:
        return content.encode() if isinstance(content, str) else content
    except UnicodeEncodeError as error:
        raise BrioError(f"{path}: cannot be written: a name in it is not valid text ({error.reason})") from error


def refuse_special(path: Path) -> None:
    """Refuse to replace a folder, a pipe or a device such as ``/dev/null`` by a file."""
    try:
        kind = os.stat(path).st_mode
    except OSError:  # it is not there, or points nowhere
        return
    if not stat.S_ISREG(kind):
        raise BrioError(f"{path}: is {'a folder' if stat.S_ISDIR(kind) else 'no ordinary file'}; give another name")


class NewFile:
    """A file that is written piece by piece and is on the disk when the block ends; made exclusively."""

    def __init__(self, path: Path, shown: Path) -> None:
        self._shown = shown
        with explain_failure(shown):
            self._descriptor = disk.create_file(path)

    def __enter__(self) -> NewFile:
        return self

    def write(self, content: bytes | memoryview) -> int:
        """Write all of the content; returns its size in bytes."""
        with explain_failure(self._shown):
            disk.write(self._descriptor, content)
        return memoryview(content).nbytes

    def rewind(self) -> None:
        """Go back to the start of the file."""
        os.lseek(self._descriptor, 0, os.SEEK_SET)

    def sync(self) -> None:
        """Wait until the content is on the disk."""
        with explain_failure(self._shown):
            disk.sync(self._descriptor)

    def close(self) -> None:
        """Close the file; a network drive may say only here that something was not written."""
        with explain_failure(self._shown):
            os.close(self._descriptor)

    def __exit__(self, kind: type[BaseException] | None, *further: object) -> None:
        try:
            if kind is None:
                self.sync()
        finally:
            self.close()


@contextmanager
def create_whole_folder(folder: Path) -> Iterator[Path]:
    """Create a folder whole or not at all.

    Yields a folder beside it under a name of its own, which gets its name at the end of the block. If the block fails,
    nothing is left. Of two processes that create the same folder at once, the first to end wins; a command asks
    :func:`refuse_existing` first, so that the second learns of the other before it begins.
    """
    _refuse_name(folder)
    made = make_folders(folder.parent)
    remove_leftovers(folder.parent)
    partial = reserve_name(folder.parent, folder.name)
    try:
        with explain_failure(folder):
            disk.make_folder(partial)
        yield partial
        with explain_failure(folder):
            disk.sync_folder(partial)
            _give_name(partial, folder)
    except BaseException as error:
        remove_quietly(partial)
        remove_made(made)
        if isinstance(error, BrioError) and str(partial) in str(error):  # nobody knows that name
            raise BrioError(str(error).replace(str(partial), str(folder))) from error
        raise
    with contextlib.suppress(OSError):  # the folder is there, and whole
        disk.sync_folder(folder.parent)


def _give_name(partial: Path, folder: Path) -> None:
    """Rename a folder that is whole, unless another process was faster."""
    if not os.path.lexists(folder):  # an empty folder would be replaced
        try:
            disk.rename(partial, folder)
            return
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR):
                raise
    raise BrioError(f"{folder}: another process has written it in the meantime; choose another --out or remove it")


def remove_file(path: Path) -> None:
    """Remove a file that brio wrote, if it is there."""
    with explain_failure(path), contextlib.suppress(FileNotFoundError):
        disk.remove_file(path)


def remove_empty_folder(folder: Path) -> None:
    """Remove a folder that brio made, if it is there and empty."""
    with contextlib.suppress(OSError):
        disk.remove_folder(folder)

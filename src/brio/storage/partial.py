"""Names of files and folders that are being written, and removal of those that a dead process left.

Such a name says which process made it, so that nothing is removed that brio did not make, and nothing that a process is
still writing.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
import platform
import re
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

from . import disk

_NAME = re.compile(r"\.brio-([0-9a-f]{8})-([0-9]+)-(s?[0-9a-f]{8})-[0-9]+(?:-([0-9a-f]{8}))?\.partial")
_numbers = itertools.count()


@functools.cache
def _get_machine() -> str:
    """Return eight digits for this machine, since a folder may be shared with others.

    A container counts as a machine of its own, because it numbers its processes by itself.
    """
    try:
        container = os.readlink("/proc/self/ns/pid")
    except OSError:  # not Linux
        container = ""
    return _shorten(platform.node() + container)


def _shorten(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:8]


def _identify_start(number: int) -> str:
    """Return "s" and eight digits for when a process started, by which numbers that are given again are told apart."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        return f"s{_shorten(boot + fields[19])}"
    except (OSError, IndexError):  # not Linux, or it has ended
        return ""


@functools.cache
def _identify_process(number: int) -> str:
    """Return what tells this process, of this number, from an earlier one that had it; a fork is another process."""
    return _identify_start(number) or secrets.token_hex(4)


def reserve_name(folder: Path, final: str = "") -> Path:
    """Return a new name in a folder for something that is being written."""
    ending = f"-{_shorten(final)}" if final else ""
    number = os.getpid()
    return folder / f".brio-{_get_machine()}-{number}-{_identify_process(number)}-{next(_numbers)}{ending}.partial"


def is_being_written(path: Path) -> bool:
    """Return whether a live process of this machine is writing what will get a name; of others nothing is known."""
    try:
        matches = filter(None, map(_NAME.fullmatch, os.listdir(path.parent)))
    except OSError:
        return False
    here, final = _get_machine(), _shorten(path.name)
    return any(match[1] == here and match[4] == final and not _is_dead(match[0]) for match in matches)


def is_partial(name: str) -> bool:
    """Return whether brio gives such a name to what is being written."""
    return _NAME.fullmatch(name) is not None


def remove_leftovers(folder: Path, reserved: bool = False) -> None:
    """Remove what dead processes of brio left in a folder while they were writing."""
    try:
        names = [name for name in os.listdir(folder) if is_partial(name)]
    except OSError:
        return
    for name in names:
        if reserved or _is_dead(name):
            remove_quietly(folder / name)


def _is_dead(name: str) -> bool:
    """Return whether the process that made a name is known to be dead."""
    match = _NAME.fullmatch(name)
    assert match is not None
    machine, number, process = match[1], int(match[2]), match[3]
    if machine != _get_machine() or os.name != "posix":
        return False
    if number == os.getpid():
        return process != _identify_process(number)
    try:
        os.kill(number, 0)  # sends nothing
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:  # it belongs to somebody else
        pass
    return process.startswith("s") and _identify_start(number) not in ("", process)


@contextlib.contextmanager
def open_scratch_folder() -> Iterator[Path]:
    """Make a folder for what a command needs for itself, readable for its user alone, and remove it at the end."""
    remove_old_scratch()
    folder = reserve_name(Path(tempfile.gettempdir()), secrets.token_hex(8))
    try:
        disk.make_folder(folder, mode=0o700)
        yield folder
    finally:
        remove_quietly(folder)


def remove_old_scratch() -> None:
    """Remove scratch folders of this user whose process was killed."""
    place = Path(tempfile.gettempdir())
    with contextlib.suppress(OSError):
        for name in filter(is_partial, os.listdir(place)):
            if _is_dead(name) and os.lstat(place / name).st_uid == os.getuid():
                remove_quietly(place / name)


def remove_quietly(path: Path) -> None:
    """Remove a file or folder that this room made, if it is there and can be removed.

    It is tried twice, since Ctrl-C or an error that passes may come while it is removed.
    """
    try:
        _remove(path)
    finally:
        _remove(path)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            disk.remove_tree(path)
        elif os.path.lexists(path):
            disk.remove_file(path)

"""Writing and removing files: the only package that changes a disk, and the hashes that reveal damage.

A file or folder exists completely or not at all. Unfinished files have temporary names that identify the process that
writes them, so brio removes nothing that it did not make and nothing that a process is still writing. A file is on
the disk before it gets its final name, and it is removed if anything fails, including Ctrl-C. Every call that changes
a disk is in :mod:`brio.storage.disk`.

``SHA256SUMS`` has the hash of every file of a folder. Hashes are checked when files are read;
``sha256sum --check SHA256SUMS`` can check them, too. While files are replaced, it also has their new hashes, in lines
that begin with ``#``. A process that is killed at any moment therefore leaves files that match it. If it is missing,
the folder is damaged.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import itertools
import os
import platform
import re
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from ..errors import BrioError
from . import disk

Target = TypeVar("Target")

# ---------------------------------------------------------------- names of what is being written

_NAME = re.compile(r"\.brio-([0-9a-f]{8})-([0-9]+)-(s?[0-9a-f]{8})-[0-9]+(?:-([0-9a-f]{8}))?\.partial")
_numbers = itertools.count()
MAX_NAME_BYTES = 255
"""Longest name of a file on common disks."""


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
    """Return "s" and eight digits for the start time of a process, which distinguishes reused process numbers."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        return f"s{_shorten(boot + fields[19])}"
    except (OSError, IndexError):  # not Linux, or it has ended
        return ""


@functools.cache
def _identify_process(number: int) -> str:
    """Return text that distinguishes this process from an earlier one with its number; a fork is another process."""
    return _identify_start(number) or secrets.token_hex(4)


def reserve_name(folder: Path, final: str = "") -> Path:
    """Return a new temporary name in a folder for something that is being written."""
    ending = f"-{_shorten(final)}" if final else ""
    number = os.getpid()
    return folder / f".brio-{_get_machine()}-{number}-{_identify_process(number)}-{next(_numbers)}{ending}.partial"


def name_beside(path: Path, ending: str) -> Path:
    """Name what lies beside a file or folder; of a name too long for a disk, a hash stands for the end."""
    name = path.name
    if len(os.fsencode(name + ending)) > MAX_NAME_BYTES:
        start = os.fsencode(name)[: MAX_NAME_BYTES - len(ending) - 9]
        name = f"{start.decode(errors='ignore')}-{_shorten(name)}"
    return path.with_name(name + ending)


def is_partial(name: str) -> bool:
    """Return whether a name has the form of brio's temporary names."""
    return _NAME.fullmatch(name) is not None


def _list_partial(folder: Path) -> list[re.Match[str]]:
    """List unfinished files in a folder, also those left behind; empty if the folder cannot be read."""
    try:
        return list(filter(None, map(_NAME.fullmatch, os.listdir(folder))))
    except OSError:
        return []


def _is_dead(name: re.Match[str]) -> bool:
    """Return whether the process that made a name is known to be dead; unknown on other machines, so False."""
    number, process = int(name[2]), name[3]
    if name[1] != _get_machine() or os.name != "posix":
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


def remove_leftovers(folder: Path, reserved: bool = False) -> None:
    """Remove unfinished files of dead processes from a folder; all unfinished files if no one else may write there."""
    for name in _list_partial(folder):
        if reserved or _is_dead(name):
            remove_quietly(folder / name[0])


@contextmanager
def open_scratch_folder() -> Iterator[Path]:
    """Make a temporary folder for a command, readable only by its user, and remove it at the end."""
    remove_old_scratch()
    folder = reserve_name(Path(tempfile.gettempdir()), secrets.token_hex(8))
    try:
        with explain_failure(folder):
            disk.make_folder(folder, mode=0o700)
        yield folder
    finally:
        remove_quietly(folder)


def remove_old_scratch() -> None:
    """Remove scratch folders of this user whose process was killed."""
    place = Path(tempfile.gettempdir())
    with contextlib.suppress(OSError):
        for name in _list_partial(place):
            if _is_dead(name) and os.lstat(place / name[0]).st_uid == os.getuid():
                remove_quietly(place / name[0])


def _try_twice(remove: Callable[[Target], None]) -> Callable[[Target], None]:
    """Try a removal twice, because Ctrl-C or a transient error may interrupt it."""

    @functools.wraps(remove)
    def try_twice(target: Target) -> None:
        try:
            remove(target)
        finally:
            remove(target)

    return try_twice


@_try_twice
def remove_quietly(path: Path) -> None:
    """Remove a file or folder that this package made, if it exists and can be removed."""
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            disk.remove_tree(path)
        elif os.path.lexists(path):
            disk.remove_file(path)


def remove_file(path: Path) -> None:
    """Remove a file that brio wrote, if it exists."""
    with explain_failure(path), contextlib.suppress(FileNotFoundError):
        disk.remove_file(path)


def remove_empty_folder(folder: Path) -> None:
    """Remove a folder that brio made, if it exists and is empty."""
    with contextlib.suppress(OSError):
        disk.remove_folder(folder)


# ---------------------------------------------------------------- whole files


@contextmanager
def explain_failure(path: Path) -> Iterator[None]:
    """Turn a system error during writing into an error that names the file or folder and says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = "free some space and try again"
            raise BrioError(f"{path}: cannot be written because the disk is full; {remedy}") from error
        reason = error.strerror or str(error)
        denied = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
        remedy = f"{'make its folder writable' if denied else 'correct this'}, then try again"
        raise BrioError(f"{path}: cannot be written ({reason}); {remedy}") from error


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
        """Close the file; a network drive may report only now that something was not written."""
        with explain_failure(self._shown):
            os.close(self._descriptor)

    def __exit__(self, kind: type[BaseException] | None, *further: object) -> None:
        try:
            if kind is None:
                self.sync()
        finally:
            self.close()


def _encode_text(path: Path, content: str | bytes) -> bytes:
    """Encode the text of a file as UTF-8; bytes stay as they are."""
    try:
        return content.encode() if isinstance(content, str) else content
    except UnicodeEncodeError as error:
        raise BrioError(
            f"{path}: cannot be written because a name in it is not valid UTF-8; change this name"
        ) from error


def _refuse_special(path: Path) -> None:
    """Refuse to replace a folder, a pipe or a device such as ``/dev/null`` with a file."""
    try:
        kind = os.stat(path).st_mode
    except OSError:  # it is not there, or points nowhere
        return
    if not stat.S_ISREG(kind):
        raise BrioError(f"{path}: is {'a folder' if stat.S_ISDIR(kind) else 'not a regular file'}; choose another name")


def write_atomically(path: Path, content: str | bytes, wait: bool = True) -> None:
    """Write a file so that readers, even after the process was killed, see the old file or the new one.

    Without ``wait``, its new name need not be on the disk yet.
    """
    data = _encode_text(path, content)
    _refuse_special(path)
    partial = reserve_name(path.parent)
    with explain_failure(path):
        try:
            with NewFile(partial, path) as file:
                file.write(data)
            disk.replace(partial, path)
        except BaseException:
            remove_quietly(partial)
            raise
        if wait:
            disk.sync_folder(path.parent)


def write_new(path: Path, content: str | bytes) -> None:
    """Write a file of a folder without its final name (:func:`create_whole_folder`), so no one sees it unfinished."""
    with NewFile(path, path) as file:
        file.write(_encode_text(path, content))


# ---------------------------------------------------------------- whole folders, and folders of one process


def refuse_existing(out: str | Path) -> None:
    """Refuse a folder that is to be created, before any work is done."""
    out = Path(out)
    if os.path.lexists(out):
        raise BrioError(f"{out}: already exists; remove it, or choose another --out")
    if len(os.fsencode(out.name)) > MAX_NAME_BYTES:
        raise BrioError(f"{out.name[:40]}...: a name of more than {MAX_NAME_BYTES} bytes; choose another --out")
    final = _shorten(out.name)
    if any(name[4] == final and name[1] == _get_machine() and not _is_dead(name) for name in _list_partial(out.parent)):
        raise BrioError(f"{out}: another brio process is writing this folder; wait or choose another --out")


def require_creatable(out: Path) -> None:
    """Refuse a folder that could not be created, before long work begins; leave nothing behind."""
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
            _remove_made(made)


def make_folders(folder: Path) -> list[Path]:
    """Make a folder and its missing parents; return those that were made."""
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
            _remove_made(made)
            raise
    return made


@_try_twice
def _remove_made(made: list[Path]) -> None:
    """Remove folders that :func:`make_folders` made, unless something is in them."""
    for place in reversed(made):
        if place.is_dir():
            remove_empty_folder(place)


@contextmanager
def create_whole_folder(folder: Path) -> Iterator[Path]:
    """Create a folder completely or not at all.

    Yields a folder beside it under a temporary name, which gets the final name at the end of the block. If the block
    fails, nothing is left. If two processes create the same folder at once, the first to finish wins. A command calls
    :func:`refuse_existing` first, so that the second process learns of the first before it begins.
    """
    if os.path.lexists(folder):
        raise BrioError(f"{folder}: already exists; remove it, or choose another --out")
    made = make_folders(folder.parent)
    remove_leftovers(folder.parent)
    partial = reserve_name(folder.parent, folder.name)
    try:
        with explain_failure(folder):
            disk.make_folder(partial)
        yield partial
        with explain_failure(folder):
            disk.sync_folder(partial)
            try:
                if os.path.lexists(folder):  # an empty folder would be replaced
                    raise FileExistsError(errno.EEXIST, "it exists")
                disk.rename(partial, folder)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR):
                    raise
                raise BrioError(f"{folder}: another process has written this folder; choose another --out") from None
    except BaseException as error:
        remove_quietly(partial)
        _remove_made(made)
        if isinstance(error, BrioError) and str(partial) in str(error):  # nobody knows that name
            raise BrioError(str(error).replace(str(partial), str(folder))) from error
        raise
    with contextlib.suppress(OSError):  # the folder is there, and whole
        disk.sync_folder(folder.parent)


LOCK = ".lock"


@contextmanager
def lock_folder(folder: Path, wait: float = 0.0, remedy: str = "wait or choose another --out") -> Iterator[None]:
    """Reserve a folder for this process, because two processes that write to it would undo each other's work.

    Another process that has it is given ``wait`` seconds to finish.

    The folder is made if it is missing. The lock file stays in it; the lock ends with its process, even if that is
    killed. If the block fails before anything else was written, folder and lock file are removed again.
    """
    from filelock import FileLock, Timeout

    made = make_folders(folder)
    lock = FileLock(folder / LOCK)
    try:
        with explain_failure(folder / LOCK):
            try:
                lock.acquire(timeout=wait, blocking=wait > 0)
            except Timeout:  # an OSError, but nothing that cannot be written
                raise BrioError(f"{folder}: another brio process is using this folder; {remedy}") from None
    except BaseException:
        _remove_made(made)  # unless another process has its lock there
        raise
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            if folder in made and os.listdir(folder) == [LOCK]:
                disk.remove_file(folder / LOCK)  # a process that has it open will see that it has no name any more
                _remove_made(made)
        raise
    finally:
        lock.release()


# ---------------------------------------------------------------- hashes

SUMS = "SHA256SUMS"
MAX_SUMS_BYTES = 64 << 20
"""A larger file of hashes is damaged."""
_LINE = re.compile(r"(# being written: )?([0-9a-f]{64})  ([^/\\\x00]+)\n")


@dataclass(frozen=True)
class Sums:
    """Hashes of the files of a folder, by name: as they are, and as they will be once they are written."""

    listed: dict[str, str] = field(default_factory=dict)
    coming: dict[str, str] = field(default_factory=dict)

    def to_text(self) -> str:
        """Return the text of the file."""
        lines = [f"{digest}  {name}\n" for name, digest in self.listed.items()]
        return "".join(lines + [f"# being written: {digest}  {name}\n" for name, digest in self.coming.items()])


def hash_file(path: Path) -> str:
    """Compute the SHA-256 of a regular file; a pipe would wait for a writer, and a device has no end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hash_readable(path: Path, remedy: str) -> str:
    """Compute the hash of a file; if it cannot be read, raise an error that names it and says what to do."""
    try:
        return hash_file(path)
    except OSError as error:
        raise BrioError(f"{path}: cannot be read ({error.strerror}); {remedy}") from error


def read_sums(folder: Path, remedy: str) -> Sums | None:
    """Read the hashes of a folder; None if it has none."""
    path = folder / SUMS
    if not os.path.lexists(path):
        return None
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > MAX_SUMS_BYTES:  # a pipe waits, a device has no end
            raise BrioError(f"{path}: has been changed or damaged; {remedy}")
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BrioError(f"{path}: cannot be read ({reason}); {remedy}") from error
    sums = Sums()
    for line in text.splitlines(keepends=True):
        match = _LINE.fullmatch(line)
        if match is None:
            raise BrioError(f"{path}: has been changed or damaged; {remedy}")
        (sums.coming if match[1] else sums.listed)[match[3]] = match[2]
    return sums


def write_sums(folder: Path, names: Iterable[str] | None = None) -> None:
    """Write the hashes of files of a folder that has no final name yet, see :func:`create_whole_folder`."""
    names = sorted(os.listdir(folder)) if names is None else names
    write_new(folder / SUMS, Sums({name: hash_file(folder / name) for name in names}).to_text())


def write_recorded(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files of a folder, one after the other, and their hashes; nothing if all exist with this content."""

    def has_hash(name: str, digest: str) -> bool:
        try:
            return hash_file(folder / name) == digest
        except OSError:
            return False

    make_folders(folder)
    data = {name: _encode_text(folder / name, text) for name, text in files.items()}
    new = {name: hashlib.sha256(content).hexdigest() for name, content in data.items()}
    for name in new:  # before the first is replaced
        _refuse_special(folder / name)
    try:
        sums = read_sums(folder, "") or Sums()
    except BrioError:  # damaged: that is noticed with files not written now
        sums = Sums()
    if sums == Sums(sums.listed | new) and all(has_hash(name, digest) for name, digest in new.items()):
        return
    # of a file that a killed process was writing, the hash that it has now
    before = sums.listed | {name: digest for name, digest in sums.coming.items() if has_hash(name, digest)}
    write_atomically(folder / SUMS, Sums(before, new).to_text())
    for name, content in data.items():
        write_atomically(folder / name, content, wait=False)
    after = dict(sorted((before | new).items()))  # the same, whatever was interrupted before
    write_atomically(folder / SUMS, Sums(after).to_text())


def check_stored(path: Path, remedy: str, content: bytes | None = None) -> None:
    """Check the hash of a file, or of the content that was read from it."""
    digest = _hash_readable(path, remedy) if content is None else hashlib.sha256(content).hexdigest()
    sums = read_sums(path.parent, remedy)
    allowed = set() if sums is None else {sums.listed.get(path.name), sums.coming.get(path.name)} - {None}
    if digest in allowed:
        return
    if allowed:
        raise BrioError(f"{path}: has been changed or damaged since it was written; {remedy}")
    problem = "is missing" if sums is None else f"has no line for {path.name}"
    raise BrioError(f"{path.parent / SUMS}: {problem}; {remedy}")


def is_kept(path: Path, remedy: str) -> bool:
    """Return whether an optional file of a folder exists."""
    if path.is_file():
        return True
    sums = read_sums(path.parent, remedy)
    if sums is not None and path.name in sums.listed:
        raise BrioError(f"{path}: is missing, although {SUMS} lists it; {remedy}, or remove its line from {SUMS}")
    return False


def check_all(folder: Path, remedy: str, required: Iterable[str] = ()) -> list[str]:
    """Check every file of a folder that has hashes and was written as a whole; return their names."""
    sums = read_sums(folder, remedy)
    if sums is None:
        raise BrioError(f"{folder / SUMS}: is missing; {remedy}")
    for name, digest in sums.listed.items():
        if not (folder / name).is_file():
            raise BrioError(f"{folder / name}: is missing, although {SUMS} lists it; {remedy}")
        if _hash_readable(folder / name, remedy) != digest:
            raise BrioError(f"{folder / name}: has been changed or damaged since it was written; {remedy}")
    for name in required:
        if name not in sums.listed:
            raise BrioError(f"{folder / SUMS}: has no line for {name}; {remedy}")
    return list(sums.listed)

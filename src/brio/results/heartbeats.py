"""Who is training which stack of a job: small files that a worker renews and that expire with it.

A file of a live worker lies in ``workers/`` of the job folder. It is no lock: whoever reads it learns what is being
done, and a worker that dies can hold nothing up. What ended a stack stays there until the stack is finished.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from ..errors import WHILE_TRAINING, BrioError, describe_error
from ..schemas import StoredPositiveCount, StoredShare, from_json, parse_json, read_bounded
from ..storage import make_folders, remove_empty_folder, remove_file, remove_leftovers, write_atomically

T = TypeVar("T")

WORKERS = "workers"
MAX_BYTES = 1 << 20
BEAT_SECONDS = 20.0
EXPIRES = 120.0
"""Seconds after which a file that was not renewed is of a dead worker; clocks of machines may differ by a minute."""


@dataclass(frozen=True)
class Heartbeat:
    """What a worker says about the stack that it trains."""

    stack: StoredPositiveCount  # number of the stack in its plan, from 1
    title: str  # method and folds
    host: str
    process: StoredPositiveCount
    started: float  # seconds since 1970
    share: StoredShare = 0.0  # of the stack that is done

    def describe_place(self) -> str:
        """Return host and process in words."""
        return f"{self.host}, process {self.process}"


@dataclass(frozen=True)
class Failure:
    """Why a stack could not be trained."""

    stack: StoredPositiveCount
    title: str
    host: str
    reason: str


def write_beside_others(path: Path, content: str | bytes) -> None:
    """Write a file to a folder that another process may be removing because it is empty."""
    for attempt in range(5):
        make_folders(path.parent)
        try:
            return write_atomically(path, content)
        except BrioError:
            if path.parent.is_dir() or attempt == 4:
                raise


@contextmanager
def report_stack(folder: Path, stack: int, title: str) -> Iterator[Callable[[float], None]]:
    """Report that this process trains a stack, until the block ends; what fails is recorded."""
    place = folder / WORKERS
    path = place / f"stack-{stack}-{secrets.token_hex(4)}.json"
    facts = asdict(Heartbeat(stack, title, platform.node(), os.getpid(), time.time()))
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(BEAT_SECONDS):
            with contextlib.suppress(BrioError):  # a full disk is reported by what the stack itself writes
                write_beside_others(path, json.dumps(facts))

    def report(share: float) -> None:
        facts["share"] = share

    write_beside_others(path, json.dumps(facts))
    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield report
    except Exception as error:
        error.add_note(f"{WHILE_TRAINING}{title}")
        with contextlib.suppress(BrioError):  # the error itself matters more
            record_failure(folder, Failure(stack, title, platform.node(), describe_error(error)))
        raise
    else:
        remove_file(_failure_path(folder, stack))
        for dead in _list_files(folder, f"stack-{stack}-*.json"):  # of workers that had the stack before
            remove_file(dead)
    finally:
        ended.set()
        thread.join()
        with contextlib.suppress(BrioError):  # it expires
            remove_file(path)
        remove_empty_folder(place)


def record_failure(folder: Path, failure: Failure) -> None:
    """Record why a stack of a job could not be trained; it stays until the stack is finished."""
    write_beside_others(_failure_path(folder, failure.stack), json.dumps(asdict(failure)))


def _failure_path(folder: Path, stack: int) -> Path:
    return folder / WORKERS / f"failed-{stack}.json"


def list_heartbeats(folder: Path) -> list[Heartbeat]:
    """List what live workers of a job are doing, by number of the stack."""
    live = (_read_live(path) for path in _list_files(folder, "stack-*.json"))
    return sorted(filter(None, live), key=lambda heartbeat: (heartbeat.stack, heartbeat.started))


def _list_files(folder: Path, pattern: str) -> list[Path]:
    """List files of the workers of a job; none where another process has just removed their empty folder."""
    try:
        return sorted((folder / WORKERS).glob(pattern))
    except FileNotFoundError:
        return []


def _read_live(path: Path) -> Heartbeat | None:
    """Read what a worker says; None where it is dead."""
    try:
        if time.time() - path.stat().st_mtime > EXPIRES:
            return None
    except OSError:  # just removed
        return None
    heartbeat = _read(Heartbeat, path)
    return heartbeat if heartbeat is not None and _may_live(heartbeat) else None


def _may_live(heartbeat: Heartbeat) -> bool:
    """Return whether a process can still be there; of another machine nothing is known but the time."""
    if heartbeat.host != platform.node() or os.name != "posix":
        return True
    try:
        os.kill(heartbeat.process, 0)  # sends nothing
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it belongs to somebody else
        return True
    return True


def list_failures(folder: Path) -> list[Failure]:
    """List why stacks of a job could not be trained, by number of the stack."""
    failures = (_read(Failure, path) for path in _list_files(folder, "failed-*.json"))
    return sorted(filter(None, failures), key=lambda failure: failure.stack)


def _read(kind: type[T], path: Path) -> T | None:
    """Read a file that another process may be removing; None where it is not there any more, or cannot be read."""
    try:
        return from_json(kind, parse_json(read_bounded(path, MAX_BYTES), path), path)
    except (OSError, BrioError):  # whatever it is, nothing depends on it
        return None


def remove_dead_heartbeats(folder: Path, at_work: bool = True) -> None:
    """Remove the files of workers that are dead, also those that they were writing."""
    here = (platform.node(), os.getpid())
    remove_leftovers(folder / WORKERS)
    for path in _list_files(folder, "stack-*.json"):
        heartbeat = _read_live(path)
        if heartbeat is None or (not at_work and (heartbeat.host, heartbeat.process) == here):
            remove_file(path)
    remove_empty_folder(folder / WORKERS)

"""The store of runs, checkpoints of stacks, and heartbeats of processes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from safetensors import SafetensorError, safe_open

from ..errors import WHILE_TRAINING, BrioError, describe_error, file_error
from ..schemas import StoredPositiveCount, StoredShare, from_json, parse_json, read_bounded
from ..storage import (
    check_all,
    check_stored,
    create_whole_folder,
    make_folders,
    remove_empty_folder,
    remove_file,
    remove_leftovers,
    write_atomically,
    write_new,
    write_sums,
)
from .files import CHECKPOINTS, RECORD, WEIGHTS, format_json, is_kept, read_file, read_json
from .records import RunDetails, RunRecord

if TYPE_CHECKING:
    from torch import Tensor

    from ..training import StackCheckpoint, Tensors


T = TypeVar("T")

WORKERS = "workers"
MAX_BYTES = 1 << 20
BEAT_SECONDS = 20.0
EXPIRES = 120.0
"""Seconds without renewal after which a worker counts as dead; clocks of machines may differ by a minute."""


@dataclass(frozen=True)
class Heartbeat:
    """What a worker reports about the stack that it trains."""

    stack: StoredPositiveCount  # number of the stack in its plan, from 1
    title: str  # method and folds
    host: str
    process: StoredPositiveCount
    started: float  # seconds since 1970
    share: StoredShare = 0.0  # of the stack that is done


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
    """List files of the workers of a job; none if another process has just removed their empty folder."""
    try:
        return sorted((folder / WORKERS).glob(pattern))
    except FileNotFoundError:
        return []


def _read_live(path: Path) -> Heartbeat | None:
    """Read what a worker reports; None if it is dead. For other machines, only the time can be checked."""
    try:
        if time.time() - path.stat().st_mtime > EXPIRES:
            return None
    except OSError:  # just removed
        return None
    heartbeat = _read(Heartbeat, path)
    if heartbeat is None or heartbeat.host != platform.node() or os.name != "posix":
        return heartbeat
    try:
        os.kill(heartbeat.process, 0)  # sends nothing
    except (ProcessLookupError, OverflowError):
        return None
    except OSError:  # it belongs to somebody else
        return heartbeat
    return heartbeat


def list_failures(folder: Path) -> list[Failure]:
    """List why stacks of a job could not be trained, by number of the stack."""
    failures = (_read(Failure, path) for path in _list_files(folder, "failed-*.json"))
    return sorted(filter(None, failures), key=lambda failure: failure.stack)


def _read(kind: type[T], path: Path) -> T | None:
    """Read a file that another process may be removing; None if it was removed or cannot be read."""
    try:
        return from_json(kind, parse_json(read_bounded(path, MAX_BYTES), path), path)
    except (OSError, BrioError):  # whatever it is, nothing depends on it
        return None


def remove_dead_heartbeats(folder: Path, at_work: bool = True) -> None:
    """Remove the files of dead workers, including those that they were writing."""
    here = (platform.node(), os.getpid())
    remove_leftovers(folder / WORKERS)
    for path in _list_files(folder, "stack-*.json"):
        heartbeat = _read_live(path)
        if heartbeat is None or (not at_work and (heartbeat.host, heartbeat.process) == here):
            remove_file(path)
    remove_empty_folder(folder / WORKERS)


RUN_AGAIN = "remove the folder of this run and run the command of the job again; finished runs of other stacks are kept"
STATE_GROUPS = ("learned.", "training.", "inference.")
"""Groups of tensors besides the parameters."""


class RunStore:
    """Finished runs under ``folder/<key>/``: ``run.json`` and, unless ``records_only``, the weights."""

    def __init__(self, folder: Path, records_only: bool = False) -> None:
        self.folder, self.records_only = folder, records_only

    def __contains__(self, key: str) -> bool:
        return (self.folder / key).is_dir()

    def remove_partial_runs(self, reserved: bool = True) -> None:
        """Make the folder, and remove what a job that was killed while writing a run left behind."""
        make_folders(self.folder)
        remove_leftovers(self.folder, reserved=reserved)

    def checkpoint_path(self, stack: Sequence[str]) -> Path:
        """Return the path of the checkpoint of a stack in training, beside the folder of runs."""
        return self.folder.parent / CHECKPOINTS / f"{stack[0]}.safetensors"

    def write(self, key: str, record: RunRecord, weights: Mapping[str, Tensor]) -> None:
        """Store a finished run; a run that is already stored is not changed."""
        from safetensors.torch import save

        files: dict[str, str | bytes] = {} if self.records_only else {WEIGHTS: save(dict(weights))}
        self._write_files(key, files | {RECORD: format_json(record)})

    def _write_files(self, key: str, files: Mapping[str, str | bytes]) -> None:
        if key in self:
            return
        try:
            with create_whole_folder(self.folder / key) as partial:
                for name, content in files.items():
                    write_new(partial / name, content)
                write_sums(partial, files)
        except BrioError:
            if key not in self:  # else another process has finished the same run, and its record stays
                raise

    def copy_finished_runs(self, other: Path, keys: Iterable[str]) -> None:
        """Copy the given runs that are finished in another store but not in this one."""
        for key in keys:
            if key not in self and (other / key).is_dir():
                names = [name for name in (WEIGHTS, RECORD) if is_kept(other / key / name, RUN_AGAIN)]
                self._write_files(key, {name: read_file(other / key / name, RUN_AGAIN) for name in names})

    def check(self, keys: Iterable[str]) -> None:
        """Check every file of the given runs that are finished."""
        for key in keys:
            if key in self:
                check_all(self.folder / key, RUN_AGAIN, [RECORD])

    def read_record(self, key: str) -> RunRecord:
        """Read the record of a finished run."""
        path = self.folder / key / RECORD
        record = from_json(RunRecord, read_json(path, RUN_AGAIN), path, RUN_AGAIN)
        from_json(RunDetails, record.details, path, RUN_AGAIN, "details")
        return record

    def estimate_rest(self, methods: Mapping[str, str]) -> tuple[float, Counter[str]]:
        """Estimate the seconds of the unfinished runs of methods (by key), each as long as the finished ones.

        Also returns how many runs are left of methods that have no finished one.
        """
        left = Counter(name for key, name in methods.items() if key not in self)
        seconds: dict[str, list[float]] = {}
        for key, name in methods.items():
            if name in left and key in self:
                seconds.setdefault(name, []).append(self.read_record(key).row.seconds)
        total = sum(left[name] * sum(measured) / len(measured) for name, measured in seconds.items())
        return total, Counter({name: n for name, n in left.items() if name not in seconds})

    def read_weights(self, key: str) -> dict[str, Tensor]:
        """Read the tensors of a finished run."""
        from safetensors.torch import load

        path = self.folder / key / WEIGHTS
        if not is_kept(path, RUN_AGAIN):
            raise file_error(
                path, "was not kept (--records-only)", "run the job again without --records-only and with another --out"
            )
        try:
            return load(read_file(path, RUN_AGAIN))
        except SafetensorError as error:
            raise file_error(path, f"cannot be read ({error})", RUN_AGAIN) from error

    def read_tensors(self, key: str, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Read some tensors of a finished run that are not parameters, by their names without the group.

        ``g`` reads ``training.g``. Missing names are left out; all are missing where weights were not kept.
        """
        path, wanted = self.folder / key / WEIGHTS, set(names)
        if not is_kept(path, RUN_AGAIN):
            return {}
        check_stored(path, RUN_AGAIN)
        try:
            with safe_open(str(path), framework="numpy") as file:
                full_names = [name for name in file.keys() if name.startswith(STATE_GROUPS)]  # noqa: SIM118 - no dict
                stored_names = {full.partition(".")[2]: full for full in full_names}
                return {n: file.get_tensor(stored_names[n]).astype(np.float64) for n in wanted & stored_names.keys()}
        except (SafetensorError, OSError, TypeError) as error:
            raise file_error(path, f"cannot be read ({error})", RUN_AGAIN) from error


NOT_USED = "it is not used, and the stack is trained from its first epoch"


def write_checkpoint(path: Path, identity: str, seconds: float, checkpoint: StackCheckpoint) -> None:
    """Write the checkpoint of a stack in place of the one before; a killed process leaves the old or the new."""
    from safetensors.torch import save

    document = json.dumps({"identity": identity, "seconds": seconds, "facts": checkpoint.facts})
    metadata = {"document": document, "sha256": _hash(document, checkpoint.tensors)}
    write_beside_others(path, save(checkpoint.tensors, metadata))


def read_checkpoint(path: Path, identity: str) -> tuple[StackCheckpoint, float]:
    """Read the checkpoint of a stack."""
    from ..training import StackCheckpoint

    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        document, stored_hash = metadata["document"], metadata["sha256"]
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise file_error(path, f"cannot be read ({error})", NOT_USED) from error
    if _hash(document, tensors) != stored_hash:
        raise file_error(path, "is damaged", NOT_USED)
    content: dict[str, Any] = json.loads(document)
    if content["identity"] != identity:
        raise file_error(path, "belongs to another plan, version or device", NOT_USED)
    return StackCheckpoint(content["facts"], tensors), content["seconds"]


def remove_checkpoint(path: Path) -> None:
    """Remove the checkpoint of a stack that is finished, if there is one, and its folder once that is empty."""
    remove_file(path)
    remove_empty_folder(path.parent)  # unless it holds the checkpoint of another stack


def _hash(document: str, tensors: Tensors) -> str:
    """Hash the facts and every tensor with its name, type and shape."""
    import torch

    digest = hashlib.sha256(document.encode())
    for name in sorted(tensors):
        t = tensors[name]
        digest.update(f"{name} {t.dtype} {tuple(t.shape)}".encode())
        digest.update(t.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()

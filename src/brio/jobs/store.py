"""The store of finished runs: one folder a run, there whole or not at all."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from ..errors import BrioError

__all__ = ["RunStore", "write_atomically"]

RECORD, WEIGHTS = "run.json", "weights.safetensors"


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that a reader, or a kill, sees the old one or the new one."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


class RunStore:
    """Finished runs under ``folder/<key>/``: ``run.json`` and, unless records alone count, the weights."""

    def __init__(self, folder: Path, records_only: bool = False) -> None:
        self.folder, self.records_only = folder, records_only

    def __enter__(self) -> RunStore:
        """Take the folder for this process; two that write to it at once would undo each other's work."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = (self.folder.parent / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise BrioError(
                f"{self.folder.parent}: another brio is at work there; wait for it or choose another --out"
            ) from None
        for leftover in self.folder.glob("*.partial"):  # of a job that was killed while writing
            shutil.rmtree(leftover)
        return self

    def __exit__(self, *_: object) -> None:
        (self.folder.parent / ".lock").unlink(missing_ok=True)
        self._lock.close()  # the system gives the lock back, also when a process is killed

    def __contains__(self, key: str) -> bool:
        return (self.folder / key).is_dir()

    def write(self, key: str, record: dict[str, Any], weights: dict[str, Tensor]) -> None:
        """Keep a finished run; a run that is there already stays as it is."""
        if key in self:
            return
        partial = self.folder / f"{key}.partial"
        partial.mkdir()
        if not self.records_only:
            save_file(weights, partial / WEIGHTS)
        write_atomically(partial / RECORD, json.dumps(record, indent=1) + "\n")
        partial.rename(self.folder / key)

    def adopt(self, other: Path, key: str) -> None:
        """Take over a run that was finished in another store."""
        if key not in self and (other / key).is_dir():
            partial = self.folder / f"{key}.partial"
            shutil.copytree(other / key, partial)
            partial.rename(self.folder / key)

    def record(self, key: str) -> dict[str, Any]:
        """The record of a finished run."""
        path = self.folder / key / RECORD
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, json.JSONDecodeError) as error:
            raise BrioError(f"{path}: cannot be read ({error}); remove its folder and run again") from error

    def weights(self, key: str) -> dict[str, Tensor]:
        """The weights of a finished run."""
        path = self.folder / key / WEIGHTS
        if not path.is_file():
            raise BrioError(f"{path}: was not kept (--records-only); run again without it into another --out")
        return load_file(path)

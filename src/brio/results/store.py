"""The store of finished runs: one folder per run, there whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open

from ..schemas import from_json
from .files import CHECKPOINTS, LOCK, PARTIAL, RECORD, WEIGHTS, file_error, read_json, write_json
from .run_record import RunRecord

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["RunStore", "lock_folder", "read_tensors"]

RUN_AGAIN = "remove its folder and run again"
STATE_GROUPS = ("learned.", "training.", "inference.", "context.")
"""Groups of tensors besides the parameters; the last one in files of version 0.1.0."""


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Reserve a job folder for this process: two jobs that write to it at once would undo each other's work.

    The lock file stays in the folder; a lock ends with its process, also when that is killed.

    Raises
    ------
    BrioError
        If another process has reserved it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise file_error(folder, "another brio is at work there", "wait for it or choose another --out") from None
    try:
        yield
    finally:
        lock.release()


class RunStore:
    """Finished runs under ``folder/<key>/``: ``run.json`` and, unless ``records_only``, the weights."""

    def __init__(self, folder: Path, records_only: bool = False) -> None:
        self.folder, self.records_only = folder, records_only

    def __contains__(self, key: str) -> bool:
        return (self.folder / key).is_dir()

    def remove_partial_runs(self) -> None:
        """Make the folder, and remove what a job left that was killed while it was writing a run."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for leftover in self.folder.glob(f"*{PARTIAL}"):
            shutil.rmtree(leftover)

    def checkpoint_path(self, stack: Sequence[str]) -> Path:
        """Return where the checkpoint of a stack lies while it trains, beside the folder of runs."""
        return self.folder.parent / CHECKPOINTS / f"{stack[0]}.safetensors"

    def write(self, key: str, record: RunRecord, weights: Mapping[str, Tensor]) -> None:
        """Store a finished run; a run that is stored already stays as it is.

        Parameters
        ----------
        key : str
            Of the run, see :func:`brio.jobs.plan.run_key`.
        record : RunRecord
        weights : dict of Tensor
            All tensors of the fitted run.
        """
        from safetensors.torch import save_file

        if key in self:
            return
        partial = self.folder / f"{key}{PARTIAL}"
        partial.mkdir()
        if not self.records_only:
            save_file(dict(weights), partial / WEIGHTS)
        write_json(partial / RECORD, record.to_json())
        partial.rename(self.folder / key)

    def copy_finished_runs(self, other: Path, keys: Iterable[str]) -> None:
        """Copy those of some runs that are finished in another store and not in this one."""
        for key in keys:
            if key not in self and (other / key).is_dir():
                partial = self.folder / f"{key}{PARTIAL}"
                shutil.copytree(other / key, partial)
                partial.rename(self.folder / key)

    def read_record(self, key: str) -> RunRecord:
        """Read the record of a finished run."""
        path = self.folder / key / RECORD
        return from_json(RunRecord, read_json(path, RUN_AGAIN), path, RUN_AGAIN)

    def read_weights(self, key: str) -> dict[str, Tensor]:
        """Read the tensors of a finished run."""
        from safetensors.torch import load_file

        path = self.folder / key / WEIGHTS
        if not path.is_file():
            raise file_error(path, "was not kept (--records-only)", "run again without it into another --out")
        return load_file(path)

    def read_tensors(self, key: str, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Read some tensors of a finished run, see :func:`read_tensors`; none where weights were not kept."""
        path = self.folder / key / WEIGHTS
        return read_tensors(path, names) if path.is_file() else {}


def read_tensors(path: Path, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Read some tensors of a fitted run that are not parameters, by their names without the group.

    ``g`` reads ``training.g`` and, from files of version 0.1.0, ``context.g``; names that are not there are left out.

    Returns
    -------
    dict of ndarray of float64
    """
    wanted = set(names)
    try:
        with safe_open(str(path), framework="numpy") as file:
            full_names = [name for name in file.keys() if name.startswith(STATE_GROUPS)]  # noqa: SIM118 - not a dict
            stored_names = {full.partition(".")[2]: full for full in full_names}
            return {n: file.get_tensor(stored_names[n]).astype(np.float64) for n in wanted & stored_names.keys()}
    except (SafetensorError, OSError, TypeError) as error:
        raise file_error(path, f"cannot be read ({error})", RUN_AGAIN) from error

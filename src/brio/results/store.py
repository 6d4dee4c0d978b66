"""The store of finished runs: one folder per run, there whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors import SafetensorError, safe_open

from ..errors import BrioError, file_error
from ..schemas import from_json
from ..storage import (
    SUMS,
    check_all,
    create_whole_folder,
    make_folders,
    remove_leftovers,
    write_new,
    write_sums,
)
from .files import CHECKPOINTS, RECORD, WEIGHTS, check_file, format_json, is_kept, read_file, read_json
from .run_record import RunRecord

if TYPE_CHECKING:
    from torch import Tensor

RUN_AGAIN = "remove its folder and give the command of the job again: its stack alone is trained again"
STATE_GROUPS = ("learned.", "training.", "inference.", "context.")
"""Groups of tensors besides the parameters; the last one in files of version 0.1.0."""


class RunStore:
    """Finished runs under ``folder/<key>/``: ``run.json`` and, unless ``records_only``, the weights."""

    def __init__(self, folder: Path, records_only: bool = False) -> None:
        self.folder, self.records_only = folder, records_only

    def __contains__(self, key: str) -> bool:
        return (self.folder / key).is_dir()

    def remove_partial_runs(self, reserved: bool = True) -> None:
        """Make the folder, and remove what a job left that was killed while it was writing a run."""
        make_folders(self.folder)
        remove_leftovers(self.folder, reserved=reserved)

    def checkpoint_path(self, stack: Sequence[str]) -> Path:
        """Return where the checkpoint of a stack lies while it trains, beside the folder of runs."""
        return self.folder.parent / CHECKPOINTS / f"{stack[0]}.safetensors"

    def write(self, key: str, record: RunRecord, weights: Mapping[str, Tensor]) -> None:
        """Store a finished run; a run that is stored already stays as it is."""
        from safetensors.torch import save

        files: dict[str, str | bytes] = {} if self.records_only else {WEIGHTS: save(dict(weights))}
        self._write_files(key, files | {RECORD: format_json(record.to_json())})

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
        """Copy those of some runs that are finished in another store and not in this one."""
        for key in keys:
            if key not in self and (other / key).is_dir():
                names = [name for name in (WEIGHTS, RECORD) if is_kept(other / key / name, RUN_AGAIN)]
                self._write_files(key, {name: read_file(other / key / name, RUN_AGAIN) for name in names})

    def check(self, keys: Iterable[str]) -> None:
        """Check every file of those of some runs that are finished; one that an earlier version wrote has no hashes."""
        for folder in (self.folder / key for key in keys if key in self):
            if (folder / SUMS).is_file():
                check_all(folder, RUN_AGAIN, [RECORD])
            else:
                check_file(folder / RECORD, RUN_AGAIN)

    def read_record(self, key: str) -> RunRecord:
        """Read the record of a finished run."""
        path = self.folder / key / RECORD
        return from_json(RunRecord, read_json(path, RUN_AGAIN), path, RUN_AGAIN)

    def read_weights(self, key: str) -> dict[str, Tensor]:
        """Read the tensors of a finished run."""
        from safetensors.torch import load

        path = self.folder / key / WEIGHTS
        if not is_kept(path, RUN_AGAIN):
            raise file_error(path, "was not kept (--records-only)", "run again without it into another --out")
        try:
            return load(read_file(path, RUN_AGAIN))
        except SafetensorError as error:
            raise file_error(path, f"cannot be read ({error})", RUN_AGAIN) from error

    def read_tensors(self, key: str, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Read some tensors of a finished run, see :func:`read_tensors`; none where weights were not kept."""
        path = self.folder / key / WEIGHTS
        if not is_kept(path, RUN_AGAIN):
            return {}
        check_file(path, RUN_AGAIN)
        return read_tensors(path, names)


def read_tensors(path: Path, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Read some tensors of a fitted run that are not parameters, by their names without the group.

    ``g`` reads ``training.g`` and, from files of version 0.1.0, ``context.g``; names that are not there are left out.
    """
    wanted = set(names)
    try:
        with safe_open(str(path), framework="numpy") as file:
            full_names = [name for name in file.keys() if name.startswith(STATE_GROUPS)]  # noqa: SIM118 - not a dict
            stored_names = {full.partition(".")[2]: full for full in full_names}
            return {n: file.get_tensor(stored_names[n]).astype(np.float64) for n in wanted & stored_names.keys()}
    except (SafetensorError, OSError, TypeError) as error:
        raise file_error(path, f"cannot be read ({error})", RUN_AGAIN) from error

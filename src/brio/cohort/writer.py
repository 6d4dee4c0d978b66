"""Write a cohort folder scan by scan. The folder appears complete or not at all."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pandas as pd

from ..errors import BrioError
from ..storage import SUMS, NewFile, create_whole_folder, write_new, write_sums
from .atlas import Atlas
from .content import hash_content, hash_tables
from .folder import (
    ATLAS,
    FORMAT,
    FRAMES,
    HEADER,
    PARTICIPANTS,
    check_participants,
    format_table,
)
from .names import refuse_unsafe_names
from .signal import convert_frames


class CohortWriter:
    """Context manager that writes scans one by one to a new cohort folder.

    Scans go to a folder beside ``out`` under a name of its own. Leaving the block without an error checks the
    participants, computes the fingerprint and the hashes, and renames the folder to ``out``. An error removes it. One
    scan is in memory at a time.
    """

    def __init__(
        self,
        out: str | Path,
        name: str,
        atlas: Atlas,
        classes: tuple[str, str] = ("0", "1"),
        provenance: dict[str, Any] | None = None,
        labels_required: bool = True,
    ) -> None:
        refuse_unsafe_names([name, atlas.name, *classes], "name of the cohort, its atlas or a class")
        self.out = Path(out)
        self.name = name
        self.atlas = atlas
        self.classes = classes
        self.provenance = provenance or {}
        self.labels_required = labels_required
        self._rows: list[dict[str, Any]] = []
        self._length = 0

    def __enter__(self) -> CohortWriter:
        with ExitStack() as stack:
            self._partial = stack.enter_context(create_whole_folder(self.out))
            self._file = NewFile(self._partial / FRAMES, self.out / FRAMES)
            stack.callback(self._file.close)
            self._write_npy_header()
            self._stack = stack.pop_all()
        return self

    def add(self, scan: np.ndarray, participant: dict[str, Any]) -> None:
        """Append one scan.

        Shapes: scan [T, P].
        """
        participant_id = participant.get("participant_id", f"row {len(self._rows) + 1}")
        frames = convert_frames(scan, f"participant {participant_id}")
        if frames.shape[1] != len(self.atlas):
            raise BrioError(
                f"participant {participant_id}: scan of shape {frames.shape}, "
                f"but atlas '{self.atlas.name}' has {len(self.atlas)} ROIs"
            )
        if not np.isfinite(frames).any():
            raise BrioError(f"participant {participant_id}: the scan holds no finite value")
        self._file.write(np.ascontiguousarray(frames, dtype="<f4").data)
        self._rows.append({**participant, "n_frames": len(frames)})
        self._length += len(frames)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._stack.__exit__(kind, error, trace)
            return
        with self._stack:
            self._finish()

    def _write_npy_header(self) -> None:
        # numpy leaves room in the header for the first axis to grow, so it can be rewritten in place
        np.lib.format.write_array_header_1_0(
            self._file, {"descr": "<f4", "fortran_order": False, "shape": (self._length, len(self.atlas))}
        )

    def _finish(self) -> None:
        if not self._rows:
            raise BrioError(f"{self.out}: there is no scan to write")
        self._file.rewind()
        self._write_npy_header()
        self._file.sync()
        source = str(self.provenance.get("source") or self.out)  # an error is about the input
        table = check_participants(pd.DataFrame(self._rows), source, self.labels_required)
        for name, part in ((PARTICIPANTS, table), (ATLAS, self.atlas.rois)):
            write_new(self._partial / name, format_table(part))
        frames = np.load(self._partial / FRAMES, mmap_mode="r", allow_pickle=False)
        header = {
            "format": FORMAT,
            "name": self.name,
            "atlas": self.atlas.name,
            "classes": list(self.classes),
            "n_scans": len(table),
            "n_rois": len(self.atlas),
            "provenance": self.provenance,
            "tables": hash_tables(self._partial),
            "fingerprint": hash_content(frames, format_table(table), format_table(self.atlas.rois), self.classes),
            "hashes": SUMS,
        }
        write_new(self._partial / HEADER, json.dumps(header, indent=2) + "\n")
        write_sums(self._partial, (HEADER, PARTICIPANTS, ATLAS, FRAMES))

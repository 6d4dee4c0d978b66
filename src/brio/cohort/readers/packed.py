"""Read ABIDE packed as 8-bit integers: ``participants.tsv`` and one ``<atlas>.npz`` per atlas."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import BrioError
from ..cohort import Cohort
from ..signal import find_live_rois
from .arrays import read_npz_arrays
from .assembly import check_source_folder, choose_atlas_label, describe_import, write_scans
from .participants import read_participants
from .series import Series

__all__ = ["read_packed"]

ARRAYS = ("frames", "scale", "n_frames", "participant_id")
COVARIATES = {
    "age": "age",
    "sex": "sex",
    "mean_fd": "mean_fd",
    "fiq": "fiq",
    "eye_status": "eye_status",
    "tr": "tr_s",
}
"""Column of the source for each covariate."""


def read_packed(src: str | Path, out: str | Path, *, atlas: str | None = None, name: str | None = None) -> Cohort:
    """Import packed scans: z-scored series stored as 8-bit integers, ``x = frames * scale``.

    Parameters
    ----------
    src : str or Path
        Folder with ``participants.tsv`` and ``<atlas>.npz`` (``frames``, ``scale``, ``n_frames``, ``participant_id``).
    out : str or Path
        Cohort folder to write.
    atlas : str, optional
        The archive to read, for example ``aal116``; required if there are several.
    name : str, optional
        Name of the cohort; ``abide-<atlas>`` by default.

    Returns
    -------
    Cohort
        The participants table has a column ``dead_fraction_<atlas>`` for every atlas in ``src``, so that an audit
        excludes the same participants whichever atlas is used.
    """
    src = check_source_folder(src)
    archives = {p.stem: p for p in sorted(src.glob("*.npz"))}
    if not archives:
        raise BrioError(f"{src}: holds no <atlas>.npz")
    chosen = choose_atlas_label(archives, atlas, src)
    participants = _read_participants(src / "participants.tsv")
    for label, path in archives.items():
        for row, scan in zip(participants, _read_scans(path, participants), strict=True):
            row[f"dead_fraction_{label}"] = round(1.0 - float(find_live_rois(scan).mean()), 6)
    rows = [{k: v for k, v in row.items() if k != "n_frames"} for row in participants]
    path = archives[chosen]
    return write_scans(
        out,
        ((row, path, Series(scan)) for row, scan in zip(rows, _read_scans(path, participants), strict=True)),
        atlas=chosen,
        name=name or f"abide-{chosen}",
        classes=("TD", "ASD"),
        provenance=describe_import("packed", src, {"atlas": chosen}, 1, []),
        strictness="count",
    )


def _read_participants(path: Path) -> list[dict[str, Any]]:
    """Read the rows of the participants table, with ``n_frames`` as text."""
    table = read_participants(path)
    for column in ("site", "diagnosis", "n_frames"):
        table.require_column(column)
    participants = []
    for participant, row in zip(table.read_ids("participant_id"), table.rows, strict=True):
        if row["diagnosis"] not in ("0", "1"):
            raise BrioError(
                f"{path}: participant {participant} has diagnosis '{row['diagnosis']}'; 1 (ASD) or 0 (TD) is needed"
            )
        values: dict[str, Any] = {"participant_id": participant, "site": row["site"], "label": int(row["diagnosis"])}
        values |= {ours: row[theirs] for ours, theirs in COVARIATES.items() if theirs in table.columns}
        participants.append(values | {"n_frames": row["n_frames"]})
    return participants


def _read_scans(path: Path, participants: list[dict[str, Any]]) -> Iterator[np.ndarray]:
    """Unpack the scans of an archive, float32 [T, P] each; they must be in the order of the participants table."""
    packed = read_npz_arrays(path, ARRAYS)
    frames, scale, lengths = packed["frames"], packed["scale"], packed["n_frames"]
    ids = [str(i) for i in packed["participant_id"]]
    if len(ids) != len(participants):
        raise BrioError(f"{path}: has {len(ids)} participants, participants.tsv has {len(participants)}")
    for number, (packed_id, length, row) in enumerate(zip(ids, lengths, participants, strict=True), start=1):
        if packed_id != row["participant_id"]:
            raise BrioError(
                f"{path}: participant {number} is {packed_id}, but {row['participant_id']} in participants.tsv"
            )
        if str(length) != row["n_frames"]:
            raise BrioError(f"{path}: {packed_id} has {length} frames, but {row['n_frames']} in participants.tsv")
    if frames.ndim != 2 or scale.shape != (len(ids), frames.shape[1]) or lengths.sum() != len(frames):
        raise BrioError(f"{path}: frames {frames.shape}, scale {scale.shape} and n_frames do not fit together")
    ends = np.cumsum(lengths)
    for end, length, factor in zip(ends, lengths, scale, strict=True):
        yield frames[end - length : end] * factor.astype(np.float32)

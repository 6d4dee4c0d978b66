"""ABIDE packed in 8 bits: ``participants.tsv`` and one ``<atlas>.npz`` for each atlas."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import BrioError
from ..cohort import Cohort
from ..signal import live_rois
from .arrays import open_npz
from .assembly import choose, describe, source_folder, write_scans
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


def read_packed(src: str | Path, out: str | Path, *, atlas: str | None = None, name: str | None = None) -> Cohort:
    """Import packed scans: series z-scored and stored as 8-bit integers, ``x = frames * scale``.

    Parameters
    ----------
    src : str or Path
        Folder with ``participants.tsv`` and ``<atlas>.npz`` (``frames``, ``scale``, ``n_frames``, ``participant_id``).
    out : str or Path
        The cohort folder to write.
    atlas : str, optional
        Which archive, for example ``aal116``; may be left out where there is one only.
    name : str, optional
        Name of the cohort.

    Returns
    -------
    Cohort
        Its participants have a column ``dead_fraction_<atlas>`` for every atlas in ``src``, so that an audit
        leaves out the same people whichever atlas it looks at.
    """
    src = source_folder(src)
    archives = {p.stem: p for p in sorted(src.glob("*.npz"))}
    if not archives:
        raise BrioError(f"{src}: no <atlas>.npz in it")
    chosen = choose(archives, atlas, src)
    people = _people(src / "participants.tsv")
    for label, path in archives.items():
        for person, scan in zip(people, _scans(path, people), strict=True):
            person[f"dead_fraction_{label}"] = round(1.0 - float(live_rois(scan).mean()), 6)
    rows = [{k: v for k, v in person.items() if k != "n_frames"} for person in people]
    path = archives[chosen]
    return write_scans(
        out,
        ((row, path, Series(scan)) for row, scan in zip(rows, _scans(path, people), strict=True)),
        atlas=chosen,
        name=name or f"abide-{chosen}",
        classes=("TD", "ASD"),
        provenance=describe("packed", src, {"atlas": chosen}, 1, []),
        strictness="count",
    )


def _people(path: Path) -> list[dict[str, Any]]:
    table = read_participants(path)
    for column in ("site", "diagnosis", "n_frames"):
        table.require(column)
    people = []
    for who, row in zip(table.ids("participant_id"), table.rows, strict=True):
        if row["diagnosis"] not in ("0", "1"):
            raise BrioError(
                f"{path}: participant {who} has diagnosis '{row['diagnosis']}'; 1 (ASD) or 0 (TD) is needed"
            )
        person: dict[str, Any] = {"participant_id": who, "site": row["site"], "label": int(row["diagnosis"])}
        person |= {ours: row[theirs] for ours, theirs in COVARIATES.items() if theirs in table.columns}
        people.append(person | {"n_frames": row["n_frames"]})
    return people


def _scans(path: Path, people: list[dict[str, Any]]) -> Iterator[np.ndarray]:
    """The scans of an archive in the order of the table, float32 [T, P] each."""
    packed = open_npz(path, ARRAYS)
    frames, scale, lengths = packed["frames"], packed["scale"], packed["n_frames"]
    ids = [str(i) for i in packed["participant_id"]]
    if len(ids) != len(people):
        raise BrioError(f"{path}: has {len(ids)} participants, participants.tsv has {len(people)}")
    for row, (packed_id, length, person) in enumerate(zip(ids, lengths, people, strict=True), start=1):
        if packed_id != person["participant_id"]:
            raise BrioError(
                f"{path}: participant {row} is {packed_id}, but {person['participant_id']} in participants.tsv"
            )
        if str(length) != person["n_frames"]:
            raise BrioError(f"{path}: {packed_id} has {length} frames, but {person['n_frames']} in participants.tsv")
    if frames.ndim != 2 or scale.shape != (len(ids), frames.shape[1]) or lengths.sum() != len(frames):
        raise BrioError(f"{path}: frames {frames.shape}, scale {scale.shape} and n_frames do not fit together")
    ends = np.cumsum(lengths)
    for end, length, factor in zip(ends, lengths, scale, strict=True):
        yield frames[end - length : end] * factor.astype(np.float32)

"""Read ABIDE packed as 8-bit integers: ``participants.tsv`` and one ``<atlas>.npz`` per atlas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

import numpy as np

from ...errors import BrioError
from ..cohort import Cohort
from ..scans import find_live_rois
from .assembly import (
    ImportOptions,
    check_sessions_option,
    check_source,
    choose_atlas_label,
    choose_sessions,
    describe_import,
    read_chosen,
    write_scans,
)
from .input_files import is_regular
from .participants import Roster, describe_skipped, read_participants
from .series import Series, list_npz_arrays, name_damaged_file, read_npz_arrays, read_packed_ids, require_arrays

LABELS = {"1": 1, "0": 0}
CLASSES = ("TD", "ASD")
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


def read_packed(src: str | Path, out: str | Path, options: ImportOptions) -> Cohort:
    """Import packed scans: z-scored series stored as 8-bit integers, ``x = frames * scale``."""
    src, sessions = check_source(src, options), options.sessions
    check_sessions_option(sessions)
    archives = {p.stem: p for p in ([src] if src.is_file() else sorted(src.glob("*.npz")))}
    if not archives:
        raise BrioError(f"{src}: holds no <atlas>.npz")
    atlas_name = choose_atlas_label(archives, options.atlas, src)
    path, stated = archives[atlas_name], {"atlas": atlas_name, "sessions": sessions}
    if not options.labels_required and not is_regular(src / "participants.tsv"):
        roster = _list_participants(path)
    else:
        roster = _read_participants(src / "participants.tsv", options.labels_required)
    participants = roster.rows
    for label, archive in archives.items():
        unpack = _open_archive(archive, participants)
        for i, row in enumerate(participants):
            row[f"dead_fraction_{label}"] = round(1.0 - float(find_live_rois(unpack(i)).mean()), 6)
    rows = [{k: v for k, v in row.items() if k != "n_frames"} for row in participants]
    scans = list(zip(rows, range(len(rows)), strict=True))
    chosen, skipped = choose_sessions(scans, sessions or (None if options.labels_required else "all"))
    unpack = _open_archive(path, participants)
    return write_scans(
        out,
        read_chosen(chosen, lambda i: (path, Series(unpack(i))), sessions),
        options,
        atlas=atlas_name,
        name=f"abide-{atlas_name}",
        classes=roster.classes,
        provenance=describe_import("packed", src, stated, 1, skipped, roster.unlabelled),
        strictness="count",
    )


def is_packed_file(path: Path) -> bool:
    """Return whether a file is an archive of packed scans, by the names of its arrays."""
    if path.suffix.lower() != ".npz" or not is_regular(path) or not is_zipfile(path):
        return False
    with name_damaged_file(path, "npz"), ZipFile(path) as archive:
        return {f"{name}.npy" for name in ARRAYS} <= set(archive.namelist())


def _list_participants(path: Path) -> Roster:
    """List the participants that an archive names, with ``n_frames`` as text."""
    packed = read_npz_arrays(path, ("participant_id", "n_frames"))
    ids, lengths = read_packed_ids(packed["participant_id"], path), packed["n_frames"]
    if lengths.shape != (len(ids),):
        raise BrioError(f"{path}: 'n_frames' must have one number for each of the {len(ids)} participants")
    repeated = next((name for name, n in Counter(ids).items() if n > 1), None)
    if repeated is not None:
        raise BrioError(f"{path}: 'participant_id' names {repeated} more than once")
    return Roster([{"participant_id": p, "n_frames": str(n)} for p, n in zip(ids, lengths.tolist(), strict=True)])


def _read_participants(path: Path, labels_required: bool) -> Roster:
    """Read the rows of the participants table, with ``n_frames`` as text."""
    table = read_participants(path)
    for column in ("participant_id", "n_frames", *(("site", "diagnosis") if labels_required else ())):
        table.require_column(column)
    roster = Roster([], CLASSES)
    n_rows = Counter(row["participant_id"] for row in table.rows)
    for participant, row in zip(table.read_ids("participant_id", "session"), table.rows, strict=True):
        diagnosis = row.get("diagnosis")
        label = LABELS.get(diagnosis or "")
        if label is None and labels_required:
            raise BrioError(
                f"{path}: participant {participant} has diagnosis '{diagnosis}'; 1 (ASD) or 0 (TD) is needed"
            )
        if label is None and diagnosis is not None:
            roster.unlabelled.append(describe_skipped(participant, f"diagnosis '{diagnosis}' is neither 0 nor 1"))
        values: dict[str, Any] = {"participant_id": participant, "site": row.get("site"), "label": label}
        values |= {ours: row[theirs] for ours, theirs in COVARIATES.items() if theirs in table.columns}
        if "session" in table.columns and n_rows[participant] > 1:
            values["session"] = row["session"]
        roster.rows.append(values | {"n_frames": row["n_frames"]})
    return roster


def _open_archive(path: Path, participants: list[dict[str, Any]]) -> Callable[[int], np.ndarray]:
    """Return a function that unpacks scan i, float32 [T, P]; scans must be in the order of the participants table."""
    declared = list_npz_arrays(path)
    require_arrays(path, ARRAYS, declared)
    # the names and lengths first: nothing larger is unpacked unless it is what the table lists
    packed = read_npz_arrays(path, ("n_frames", "participant_id"))
    ids, lengths = read_packed_ids(packed["participant_id"], path), packed["n_frames"]
    if len(ids) != len(participants):
        raise BrioError(f"{path}: has {len(ids)} participants, participants.tsv has {len(participants)}")
    frames, scale = declared["frames"], declared["scale"]
    if not set(frames.kind + scale.kind) <= set("fiu") or lengths.dtype.kind not in "iu":
        raise BrioError(f"{path}: frames and scale must be real numbers, and n_frames whole numbers")
    if lengths.shape != (len(ids),) or (lengths < 1).any():
        raise BrioError(f"{path}: 'n_frames' must have a positive number for each of the {len(ids)} participants")
    for number, (packed_id, length, row) in enumerate(zip(ids, lengths.tolist(), participants, strict=True), start=1):
        if packed_id != row["participant_id"]:
            raise BrioError(
                f"{path}: participant {number} is {packed_id}, but {row['participant_id']} in participants.tsv"
            )
        if str(length) != row["n_frames"]:
            raise BrioError(f"{path}: {packed_id} has {length} frames, but {row['n_frames']} in participants.tsv")
    ends = np.cumsum(lengths, dtype=np.int64)
    n_rois = frames.shape[-1] if len(frames.shape) == 2 else 0
    if frames.shape != (ends[-1], n_rois) or scale.shape != (len(ids), n_rois) or n_rois == 0:
        raise BrioError(f"{path}: frames {frames.shape}, scale {scale.shape} and n_frames do not fit together")
    arrays = read_npz_arrays(path, ("frames", "scale"))
    unusable = ~np.isfinite(arrays["scale"]).all(axis=1)
    if unusable.any():
        raise BrioError(f"{path}: the scale of participant {ids[int(np.flatnonzero(unusable)[0])]} is not finite")
    return lambda i: arrays["frames"][ends[i] - lengths[i] : ends[i]] * arrays["scale"][i].astype(np.float32)

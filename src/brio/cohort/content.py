"""Hashes of the content of a cohort folder: the fingerprint that names it, and those by which damage is noticed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BrioError
from ..storage import SUMS, check_stored
from .folder import ATLAS, FRAMES, HEADER, IMPORT_AGAIN, PARTICIPANTS

HASH_CHUNK_BYTES = 64 << 20


def hash_content(frames: np.ndarray, participants: str, atlas: str, classes: tuple[str, str]) -> str:
    """Compute the fingerprint of a cohort: SHA-256 of its frames, both tables and the class names.

    Shapes: frames [sum of T_i, P].
    """
    head = f"{frames.shape} {frames.dtype.str}\n{participants}\n{atlas}\n{json.dumps(list(classes))}"
    digest = hashlib.sha256(head.encode())
    rows = max(1, HASH_CHUNK_BYTES // max(1, frames.shape[1] * frames.itemsize))
    for start in range(0, len(frames), rows):
        digest.update(np.ascontiguousarray(frames[start : start + rows]).data)
    return digest.hexdigest()


def hash_tables(folder: Path) -> str:
    """Compute the hash of both tables of a folder, which is cheap enough to check on every load."""
    return hashlib.sha256((folder / PARTICIPANTS).read_bytes() + (folder / ATLAS).read_bytes()).hexdigest()


def check_tables(folder: Path, header: dict[str, Any]) -> None:
    """Check that all files of a cohort folder are there, and the hashes of all but the frames; takes no time."""
    for part in (FRAMES, PARTICIPANTS, ATLAS):
        if not (folder / part).is_file():
            raise BrioError(f"{folder}: {part} is missing; {IMPORT_AGAIN}")
    if "hashes" in header or (folder / SUMS).is_file():
        for part in (HEADER, PARTICIPANTS, ATLAS):
            check_stored(folder / part, IMPORT_AGAIN, lambda: True)
    if hash_tables(folder) != header["tables"]:
        raise BrioError(f"{folder}: {PARTICIPANTS} or {ATLAS} changed since the cohort was written; import it again")


def check_frames_hash(folder: Path) -> None:
    """Check the hash of the frames of a cohort folder, where it has one; reads all of them."""
    if (folder / SUMS).is_file():
        check_stored(folder / FRAMES, IMPORT_AGAIN, lambda: True)

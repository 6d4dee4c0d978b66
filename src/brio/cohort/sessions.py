"""Participants with several scans: which scan belongs to whom, how scans are named, and means over them.

A participants table has one row per scan. Where a participant has several, the column ``session`` tells them apart and
the column ``brio_scan_id`` names each scan. A participant has one site and one label, so that a split by
sites is a split by participants too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..errors import BrioError

SCAN_ID = "brio_scan_id"
"""Column with a unique name of each scan. Only cohorts with repeated scans have it."""
SESSION_FRAMES = "averaged_frames"
"""Column with the frames of each session (``120+118``) of scans whose connectome is the mean over sessions."""
JOINED_SCANS = "joined_scans"
"""Entry of the provenance: for the hash of each scan that was joined of several, the hashes of these."""


def index_participants(participant_ids: Sequence[str] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the first scan of each participant, and the participant of each scan.

    Shapes: participant_ids [N]; returns first [n], member [N].
    """
    _, first, member = np.unique(np.asarray(participant_ids), return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return first[order].astype(np.int64), rank[member.reshape(-1)]


def average_over_scans(values: np.ndarray, member: np.ndarray) -> np.ndarray:
    """Average values over the scans of each participant. Values of participants with one scan stay as they are.

    Shapes: values [N, ...], member [N]; returns [n, ...].
    """
    values = np.asarray(values, dtype=np.float64)
    count = np.bincount(member)
    if len(count) == len(values):  # a sum would turn -0.0 into 0.0
        averaged = np.empty_like(values)
        averaged[member] = values
        return averaged
    total = np.zeros((len(count), *values.shape[1:]))
    np.add.at(total, member, values)
    return total / count.reshape(-1, *[1] * (values.ndim - 1))


def name_scan(participant_id: str, session: str) -> str:
    """Name a scan of a participant who has several."""
    return f"{participant_id}_{session if re.match('[A-Za-z]+-', session) else f'ses-{session}'}"


def name_repeated_scans(table: pd.DataFrame, where: str) -> pd.DataFrame:
    """Check the rows of participants with several scans and name every scan in a column ``brio_scan_id``.

    Returns the same table if nobody has several scans. Otherwise ``session`` is text and ``brio_scan_id`` is unique.
    """
    owner = table["participant_id"]
    repeated = owner.duplicated(keep=False).to_numpy()
    if not repeated.any():
        return table
    if "session" not in table:
        raise BrioError(
            f"{where}: participant {owner[repeated].iloc[0]} appears more than once; keep one row, or tell the scans "
            "apart in a column 'session'"
        )
    session = table["session"].where(table["session"].notna(), "").astype(str).str.strip()
    empty = repeated & (session == "").to_numpy()
    if empty.any():
        raise BrioError(
            f"{where}: participant {owner[empty].iloc[0]} has several scans, but column 'session' is empty in row "
            f"{int(np.flatnonzero(empty)[0]) + 1}"
        )
    for column in (name for name in ("site", "label") if name in table):
        known = table[column].astype(str).mask(table[column].isna() | (table[column].astype(str) == ""))
        several = known.groupby(owner).nunique()
        if (several > 1).any():
            participant = several.index[several > 1][0]
            values = " and ".join(known[owner == participant].dropna().unique()[:2])
            raise BrioError(
                f"{where}: participant {participant} has scans with {column} {values}; splits keep all scans of a "
                f"participant together, so they need one {column}: correct the table, or keep one scan with "
                "--sessions first"
            )
    names = [name_scan(o, s) if s else o for o, s in zip(owner, session, strict=True)]
    table = table.assign(session=session, **{SCAN_ID: names})
    twice = table[SCAN_ID].duplicated()
    if twice.any():
        row = table[twice].iloc[0]
        raise BrioError(
            f"{where}: participant {row['participant_id']} has two scans of session '{row['session']}' (scan "
            f"{row[SCAN_ID]}); give each scan a session of its own"
        )
    return table


def read_session_frames(participants: pd.DataFrame) -> list[np.ndarray] | None:
    """Read the frames of the sessions of each scan, where connectomes are averaged over sessions.

    Returns an empty array for a scan of one session. None where no scan is made of several.
    """
    if SESSION_FRAMES not in participants or participants[SESSION_FRAMES].isna().all():
        return None
    texts = participants[SESSION_FRAMES].where(participants[SESSION_FRAMES].notna(), "").astype(str)
    return [np.array([int(n) for n in text.split("+") if n], dtype=np.int64) for text in texts]


def hash_scan(frames: np.ndarray) -> str:
    """Compute the SHA-256 of the frames of a scan as a cohort folder holds them.

    Shapes: frames [T, P].
    """
    return hashlib.sha256(np.ascontiguousarray(frames, dtype="<f4").data).hexdigest()


def find_joined_scans(provenance: Mapping[str, Any]) -> dict[str, list[str]]:
    """Find the hashes of the scans that each joined scan of a cohort was made of."""
    inner = provenance.get("cohort")
    stored = (inner if isinstance(inner, Mapping) else provenance).get(JOINED_SCANS)
    return dict(stored) if isinstance(stored, Mapping) else {}

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

__all__ = [
    "JOINED_SCANS",
    "SCAN_ID",
    "SESSION_FRAMES",
    "average_over_scans",
    "find_joined_scans",
    "hash_scan",
    "index_participants",
    "name_repeated_scans",
    "name_scan",
    "read_session_frames",
]

SCAN_ID = "brio_scan_id"
"""Column with a unique name of each scan. Only cohorts with repeated scans have it."""
SESSION_FRAMES = "averaged_frames"
"""Column with the frames of each session (``120+118``) of scans whose connectome is the mean over sessions."""
JOINED_SCANS = "joined_scans"
"""Entry of the provenance: for the hash of each scan that was joined of several, the hashes of these."""


def index_participants(participant_ids: Sequence[str] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the first scan of each participant, and the participant of each scan.

    Parameters
    ----------
    participant_ids : sequence of str, or ndarray of any type, shape [N]
        Participant of each scan.

    Returns
    -------
    first : ndarray of int64, shape [n]
        Positions of the first scans, in increasing order.
    member : ndarray of int64, shape [N]
        Position in ``first`` of the participant of each scan. If nobody has several scans, both are 0, 1, 2, ...

    Examples
    --------
    >>> first, member = index_participants(["b", "a", "b"])
    >>> first.tolist(), member.tolist()
    ([0, 1], [0, 1, 0])
    """
    _, first, member = np.unique(np.asarray(participant_ids), return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return first[order].astype(np.int64), rank[member.reshape(-1)]


def average_over_scans(values: np.ndarray, member: np.ndarray) -> np.ndarray:
    """Average values over the scans of each participant. Values of participants with one scan stay as they are.

    Parameters
    ----------
    values : ndarray, shape [N, ...]
        One value, or one row, for each scan.
    member : ndarray of int64, shape [N]
        Participant of each scan, see :func:`index_participants`.

    Returns
    -------
    ndarray of float64, shape [n, ...]

    Examples
    --------
    >>> average_over_scans(np.array([1.0, 5.0, 2.0]), np.array([0, 1, 0])).tolist()
    [1.5, 5.0]
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
    """Name a scan of a participant who has several.

    Parameters
    ----------
    participant_id, session : str
        A session may be written as a BIDS entity.

    Returns
    -------
    str

    Examples
    --------
    >>> name_scan("p1", "2"), name_scan("sub-01", "run-2")
    ('p1_ses-2', 'sub-01_run-2')
    """
    return f"{participant_id}_{session if re.match('[A-Za-z]+-', session) else f'ses-{session}'}"


def name_repeated_scans(table: pd.DataFrame, where: str) -> pd.DataFrame:
    """Check the rows of participants with several scans and name every scan in a column ``brio_scan_id``.

    Parameters
    ----------
    table : DataFrame, N rows
        With ``participant_id`` as text.
    where : str
        File or argument that holds the table, for error messages.

    Returns
    -------
    DataFrame
        The same table if nobody has several scans. Otherwise ``session`` is text and ``brio_scan_id`` is unique.

    Raises
    ------
    BrioError
        If a participant has several scans without different sessions, or with different sites or labels.
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

    Parameters
    ----------
    participants : DataFrame, N rows

    Returns
    -------
    list of N ndarrays of int64, or None
        An empty array for a scan of one session. None where no scan is made of several.

    Examples
    --------
    >>> [part.tolist() for part in read_session_frames(pd.DataFrame({"averaged_frames": ["120+118", None]}))]
    [[120, 118], []]
    """
    if SESSION_FRAMES not in participants or participants[SESSION_FRAMES].isna().all():
        return None
    texts = participants[SESSION_FRAMES].where(participants[SESSION_FRAMES].notna(), "").astype(str)
    return [np.array([int(n) for n in text.split("+") if n], dtype=np.int64) for text in texts]


def hash_scan(frames: np.ndarray) -> str:
    """Compute the SHA-256 of the frames of a scan as a cohort folder holds them.

    Parameters
    ----------
    frames : ndarray, shape [T, P]

    Returns
    -------
    str
    """
    return hashlib.sha256(np.ascontiguousarray(frames, dtype="<f4").data).hexdigest()


def find_joined_scans(provenance: Mapping[str, Any]) -> dict[str, list[str]]:
    """Find the hashes of the scans that each joined scan of a cohort was made of.

    Parameters
    ----------
    provenance : dict
        Of the cohort; that of scans to predict holds the provenance of their cohort folder.

    Returns
    -------
    dict of str to list of str
        Hash of the joined scan -> hashes of its parts, see :func:`hash_scan`. Empty where nothing was joined, or an
        earlier version imported the scans.
    """
    inner = provenance.get("cohort")
    stored = (inner if isinstance(inner, Mapping) else provenance).get(JOINED_SCANS)
    return dict(stored) if isinstance(stored, Mapping) else {}

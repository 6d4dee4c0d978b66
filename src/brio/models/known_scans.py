"""Recognise scans that a model has seen, by short digests that reveal nothing else."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from ..cohort import Cohort
from ..cohort.scans import find_joined_scans, hash_scan
from ..schemas import Hex

DIGITS = 8
"""Hexadecimal digits of a digest: with a thousand known scans, one in four million others is mistaken for one."""


@dataclass(frozen=True)
class KnownScans:
    """Digests of the frames of scans, and of the sessions from which joined scans were made.

    A digest changes with every bit of the frames. A scan is therefore recognised if the same file is read again, but
    not if it was preprocessed or rounded again. Sessions are recognised if the import recorded their hashes.
    """

    salt: Hex  # made of all of these scans, so that digests of two sets of scans cannot be compared
    digests: tuple[Hex, ...]  # one for each scan and each session, sorted: their order says nothing about participants

    def recognise(self, cohort: Cohort) -> np.ndarray:
        """Return which scans of a cohort are among these, or share a session with them. Shape [N], bool."""
        known = set(self.digests)
        scans = hash_scans(cohort)
        return np.array([any(_shorten(self.salt, one) in known for one in hashes) for hashes in scans], dtype=bool)


def list_known_scans(cohort: Cohort) -> KnownScans:
    """List the digests of all scans of a cohort."""
    scans = hash_scans(cohort)
    salt = hashlib.sha256("".join(sorted(hashes[0] for hashes in scans)).encode()).hexdigest()[: 2 * DIGITS]
    return KnownScans(salt, tuple(sorted(_shorten(salt, one) for hashes in scans for one in hashes)))


def hash_scans(cohort: Cohort) -> list[list[str]]:
    """Hash each scan, then the sessions from which it was joined."""
    parts = find_joined_scans(cohort.provenance)
    hashes = (hash_scan(cohort.scan(i)) for i in range(len(cohort)))
    return [[one, *parts.get(one, [])] for one in hashes]


def _shorten(salt: str, scan: str) -> str:
    return hashlib.sha256(f"{salt}{scan}".encode()).hexdigest()[:DIGITS]

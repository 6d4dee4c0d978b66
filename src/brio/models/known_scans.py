"""Recognise scans that a model has seen, by short digests from which nothing else can be read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from ..cohort import Cohort

__all__ = ["KnownScans", "list_known_scans"]

DIGITS = 8
"""Hexadecimal digits of a digest: among a thousand scans, one in four million others is taken for one of them."""


@dataclass(frozen=True)
class KnownScans:
    """Digests of the frames of some scans.

    A digest changes with every bit of the frames. So a scan is recognised where the same file is read again, and not
    where it was preprocessed or rounded anew.

    Attributes
    ----------
    salt : str
        Made of all of these scans, so that digests of two sets of scans cannot be compared.
    digests : tuple of str
        One for each scan, sorted: their order says nothing about participants.
    """

    salt: str
    digests: tuple[str, ...]

    def recognise(self, cohort: Cohort) -> np.ndarray:
        """Return which scans of a cohort are among these. Shape [N], bool."""
        known = set(self.digests)
        return np.array([_shorten(self.salt, frames) in known for frames in _hash_frames(cohort)], dtype=bool)


def list_known_scans(cohort: Cohort) -> KnownScans:
    """List the digests of all scans of a cohort.

    Parameters
    ----------
    cohort : Cohort

    Returns
    -------
    KnownScans

    Examples
    --------
    >>> scans = [np.random.default_rng(i).normal(size=(20, 3)) for i in range(4)]
    >>> cohort = Cohort.from_scans(scans, site=["A"] * 4, label=[0, 1, 0, 1])
    >>> list_known_scans(cohort.select([2, 0])).recognise(cohort)
    array([ True, False,  True, False])
    """
    hashes = _hash_frames(cohort)
    salt = hashlib.sha256("".join(sorted(hashes)).encode()).hexdigest()[: 2 * DIGITS]
    return KnownScans(salt, tuple(sorted(_shorten(salt, frames) for frames in hashes)))


def _hash_frames(cohort: Cohort) -> list[str]:
    scans = (np.ascontiguousarray(cohort.scan(i), dtype="<f4") for i in range(len(cohort)))
    return [hashlib.sha256(scan.tobytes()).hexdigest() for scan in scans]


def _shorten(salt: str, frames: str) -> str:
    return hashlib.sha256(f"{salt}{frames}".encode()).hexdigest()[:DIGITS]

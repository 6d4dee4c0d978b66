"""Findings: what an audit can say about one participant or one pair of participants."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from ...errors import BrioError
from ..cohort import Cohort
from .coverage import Coverage
from .duplicates import Aligned, Match

__all__ = [
    "DeadRois",
    "DuplicatePair",
    "NonFiniteFrames",
    "TooShort",
    "dead_rois",
    "duplicate_pair",
    "non_finite_frames",
    "stated_dead_rois",
    "too_short",
]

COLUMN = "dead_fraction_"
"""A column of the participants that begins so states shares of ROIs without signal in the atlas it names."""

Kind = Literal["identical", "near", "different"]


@dataclass(frozen=True)
class NonFiniteFrames:
    """A scan of ``of`` frames, ``n_frames`` of which are NaN or infinite in an ROI that has signal.

    ``empty`` when the scan holds no finite value at all.
    """

    participant_id: str
    site: str
    atlas: str
    n_frames: int
    of: int
    empty: bool


@dataclass(frozen=True)
class DeadRois:
    """A scan with ROIs that have no signal: constant, or missing in every frame.

    ``n_rois`` and ``of`` are None where only the share is known, from a column of the participants.
    """

    participant_id: str
    site: str
    atlas: str
    n_rois: int | None
    of: int | None
    share: float


@dataclass(frozen=True)
class TooShort:
    """A scan with fewer valid frames than the rules ask for."""

    participant_id: str
    site: str
    atlas: str
    n_valid: int


@dataclass(frozen=True)
class DuplicatePair:
    """Two participants whose scans are one or, of kind "different", come closest to it.

    Attributes
    ----------
    first, second : str
        Participants, in sorted order.
    sites : tuple of two str
    kind : {"identical", "near", "different"}
        Equal after standardising; one scan, processed or trimmed differently; two scans.
    correlation : float
        Median over ROIs of the rank correlation over time.
    aligned : {"start", "end", "both"}
        The end of the longer scan at which the shorter was laid on it; "both" where they are of one length.
    common_frames : int
        Valid frames that both have.
    same_label, same_site : bool
    atlases : tuple of str
        Where the pair was found; the figures are those of the first.
    """

    first: str
    second: str
    sites: tuple[str, str]
    kind: Kind
    correlation: float
    aligned: Aligned
    common_frames: int
    same_label: bool
    same_site: bool
    atlases: tuple[str, ...]


def non_finite_frames(cohort: Cohort, coverage: Coverage, atlas: str) -> list[NonFiniteFrames]:
    """Scans with frames that have to be dropped."""
    return [
        NonFiniteFrames(*_who(cohort, i), atlas, int(coverage.n_invalid[i]), int(cohort.n_frames[i]), empty)
        for i, empty in zip(*_where(coverage.n_invalid > 0, ~coverage.finite), strict=True)
    ]


def dead_rois(cohort: Cohort, coverage: Coverage, atlas: str) -> list[DeadRois]:
    """Scans with at least one ROI without signal."""
    return [
        DeadRois(*_who(cohort, i), atlas, n, cohort.n_rois, n / cohort.n_rois)
        for i, n in zip(*_where(coverage.n_dead > 0, coverage.n_dead), strict=True)
    ]


def too_short(cohort: Cohort, coverage: Coverage, atlas: str, min_frames: int) -> list[TooShort]:
    """Scans with fewer valid frames than ``min_frames``."""
    return [
        TooShort(*_who(cohort, i), atlas, n)
        for i, n in zip(*_where(coverage.n_valid < min_frames, coverage.n_valid), strict=True)
    ]


def stated_dead_rois(cohort: Cohort, read: Collection[str]) -> list[DeadRois]:
    """Shares of ROIs without signal that the participants table states, for atlases other than those ``read``."""
    found: list[DeadRois] = []
    for column in map(str, cohort.participants.columns):
        atlas = column.removeprefix(COLUMN)
        if not column.startswith(COLUMN) or atlas in read:
            continue
        stated = cohort.participants[column]
        share = pd.to_numeric(stated, errors="coerce").to_numpy(dtype=np.float64)
        wrong = stated.notna().to_numpy() & ~((share >= 0.0) & (share <= 1.0))
        if wrong.any():
            k = int(np.flatnonzero(wrong)[0])
            raise BrioError(
                f"participant {cohort.ids[k]}: {column} is '{stated.iloc[k]}'; it must be a share from 0 to 1"
            )
        found += [
            DeadRois(*_who(cohort, i), atlas, None, None, s) for i, s in zip(*_where(share > 0.0, share), strict=True)
        ]
    return found


def duplicate_pair(cohort: Cohort, match: Match, atlas: str, kind: Kind) -> DuplicatePair:
    """A match of the search for duplicates in terms of participants."""
    i, j = sorted((match.i, match.j), key=lambda k: str(cohort.ids[k]))
    (first, first_site), (second, second_site) = _who(cohort, i), _who(cohort, j)
    return DuplicatePair(
        first=first,
        second=second,
        sites=(first_site, second_site),
        kind=kind,
        correlation=match.correlation,
        aligned=match.aligned,
        common_frames=match.common_frames,
        same_label=bool(cohort.labels[i] == cohort.labels[j]),
        same_site=first_site == second_site,
        atlases=(atlas,),
    )


def _who(cohort: Cohort, i: int) -> tuple[str, str]:
    row = cohort.participants.iloc[i]
    return str(row["participant_id"]), str(row["site"])


def _where(mask: np.ndarray, values: np.ndarray) -> tuple[list[int], list]:
    rows = np.flatnonzero(mask)
    return rows.tolist(), values[rows].tolist()

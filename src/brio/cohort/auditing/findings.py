"""Define what an audit can report about one scan or one pair of scans, and collect it.

A scan is named by its participant; where participants have several scans, by its ``brio_scan_id``.
"""

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

DEAD_FRACTION_PREFIX = "dead_fraction_"
"""A participants column ``dead_fraction_<atlas>`` states the share of ROIs without signal in that atlas."""

Kind = Literal["identical", "near", "different"]


@dataclass(frozen=True)
class NonFiniteFrames:
    """A scan with frames that are NaN or infinite in an ROI that has signal."""

    participant_id: str
    site: str
    atlas: str
    n_frames: int  # such frames
    of: int  # frames of the scan
    empty: bool  # whether the scan holds no finite value at all


@dataclass(frozen=True)
class DeadRois:
    """A scan with ROIs without signal: constant, or missing in every frame."""

    participant_id: str
    site: str
    atlas: str
    n_rois: int | None
    of: int | None
    share: float  # share of ROIs without signal, 0 to 1


@dataclass(frozen=True)
class TooShort:
    """A scan with fewer valid frames than the rules require."""

    participant_id: str
    site: str
    atlas: str
    n_valid: int  # its valid frames


@dataclass(frozen=True)
class DuplicatePair:
    """Two participants with the same scan or, if ``kind`` is "different", with the most similar different scans."""

    first: str  # participants, in sorted order
    second: str
    sites: tuple[str, str]
    kind: Kind  # equal after standardising; one scan processed or trimmed in two ways; two different scans
    correlation: float  # rank correlation over time, median over ROIs
    aligned: Aligned  # end of the longer scan at which the shorter one was aligned; "both" for scans of one length
    common_frames: int  # frames that are valid in both scans
    same_label: bool
    same_site: bool
    atlases: tuple[str, ...]  # atlases in which the pair was found; the numbers are those of the first


def find_non_finite_frames(cohort: Cohort, coverage: Coverage, atlas: str) -> list[NonFiniteFrames]:
    """Find the scans with frames that must be dropped."""
    return [
        NonFiniteFrames(*_identify(cohort, i), atlas, int(coverage.n_invalid[i]), int(cohort.n_frames[i]), empty)
        for i, empty in zip(*_select(coverage.n_invalid > 0, ~coverage.finite), strict=True)
    ]


def find_dead_rois(cohort: Cohort, coverage: Coverage, atlas: str) -> list[DeadRois]:
    """Find the scans with at least one ROI without signal."""
    return [
        DeadRois(*_identify(cohort, i), atlas, n, cohort.n_rois, n / cohort.n_rois)
        for i, n in zip(*_select(coverage.n_dead > 0, coverage.n_dead), strict=True)
    ]


def find_short_scans(cohort: Cohort, coverage: Coverage, atlas: str, min_frames: int) -> list[TooShort]:
    """Find the scans with fewer than ``min_frames`` valid frames."""
    return [
        TooShort(*_identify(cohort, i), atlas, n)
        for i, n in zip(*_select(coverage.n_valid < min_frames, coverage.n_valid), strict=True)
    ]


def read_stated_dead_rois(cohort: Cohort, audited_atlases: Collection[str]) -> list[DeadRois]:
    """Read shares of ROIs without signal from the columns ``dead_fraction_<atlas>`` of the participants table."""
    findings: list[DeadRois] = []
    for column in map(str, cohort.participants.columns):
        atlas = column.removeprefix(DEAD_FRACTION_PREFIX)
        if not column.startswith(DEAD_FRACTION_PREFIX) or atlas in audited_atlases:
            continue
        values = cohort.participants[column]
        share = pd.to_numeric(values, errors="coerce").to_numpy(dtype=np.float64)
        invalid = values.notna().to_numpy() & ~((share >= 0.0) & (share <= 1.0))
        if invalid.any():
            i = int(np.flatnonzero(invalid)[0])
            raise BrioError(
                f"participant {cohort.ids[i]}: {column} is '{values.iloc[i]}'; it must be a share from 0 to 1"
            )
        findings += [
            DeadRois(*_identify(cohort, i), atlas, None, None, s)
            for i, s in zip(*_select(share > 0.0, share), strict=True)
        ]
    return findings


def describe_pair(cohort: Cohort, match: Match, atlas: str, kind: Kind) -> DuplicatePair:
    """Describe a match of the search for duplicates by its participants."""
    i, j = sorted((match.i, match.j), key=lambda k: str(cohort.ids[k]))
    (first, first_site), (second, second_site) = _identify(cohort, i), _identify(cohort, j)
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


def _identify(cohort: Cohort, i: int) -> tuple[str, str]:
    """Name and site of scan i."""
    return str(cohort.ids[i]), str(cohort.participants["site"].iloc[i])


def _select(mask: np.ndarray, values: np.ndarray) -> tuple[list[int], list]:
    """Positions where the mask is set, and the values there."""
    positions = np.flatnonzero(mask)
    return positions.tolist(), values[positions].tolist()

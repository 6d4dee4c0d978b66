"""``audit.json``, ``facts.json`` and ``groups.csv``: what a job stores about its cohort.

The first two are handed on as plain dictionaries, after they were read as the records declared here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pandas as pd

from ..cohort import AuditRules
from ..cohort.auditing.associations import CovariateByLabel, LabelBySite, LengthByLabel, LengthBySite, SiteCounts
from ..cohort.auditing.coverage import PatternTest
from ..cohort.auditing.findings import DuplicatePair, NonFiniteFrames, TooShort
from ..schemas import (
    MAX_PARTICIPANT_TABLE_BYTES,
    NOT_EMPTY,
    OMIT_NONE,
    Name,
    SameLength,
    StoredCount,
    StoredNonNegative,
    from_json,
    to_json,
)
from .files import AUDIT, COHORT_FACTS, GROUPS, is_kept, read_csv, read_json

GROUP_COLUMNS = ("sex", "age", "motion")
"""Columns of ``groups.csv`` besides the participant."""


@dataclass(frozen=True)
class GroupRow:
    """A row of ``groups.csv``. A sex may be written as a number."""

    participant_id: Name
    sex: str | None = None
    age: str | None = None
    motion: str | None = None


@dataclass(frozen=True)
class RepetitionTimeRecord:
    """Repetition times of each site: seconds -> scans."""

    by_site: dict[str, dict[float, StoredCount]]


@dataclass(frozen=True, kw_only=True)
class AuditRecord:
    """What reports read of ``audit.json``; :class:`brio.cohort.Audit` says what each means."""

    atlases: dict[str, StoredCount] = field(default_factory=dict)
    classes: tuple[str, str]
    rules: AuditRules
    classes_after: tuple[StoredCount, StoredCount]
    duplicates: tuple[DuplicatePair, ...] = ()
    dead_by_site: dict[str, dict[str, StoredCount]] = field(default_factory=dict)
    dead_patterns: dict[str, PatternTest] = field(default_factory=dict)
    non_finite: tuple[NonFiniteFrames, ...] = ()
    too_short: tuple[TooShort, ...] = ()
    sites: tuple[SiteCounts, ...]
    one_class: tuple[str, ...] = ()
    small_class: tuple[str, ...] = ()
    label_by_site: LabelBySite | None = None
    length_by_site: LengthBySite | None = None
    length_by_label: LengthByLabel | None = None
    repetition_time: RepetitionTimeRecord | None = None
    not_checked: tuple[str, ...] = ()
    covariates: tuple[CovariateByLabel, ...] = ()


@dataclass(frozen=True)
class MeanRecord:
    """Mean and standard deviation of a covariate, over the ``n`` scans that have it."""

    mean: float
    sd: StoredNonNegative
    n: StoredCount = 0


@dataclass(frozen=True, kw_only=True)
class GroupRecord:
    """Counts and ranges of some scans; see :func:`brio.jobs.cohort_facts.describe_cohort`."""

    n: tuple[StoredCount, StoredCount]
    frames: tuple[StoredCount, StoredCount] | None = None
    tr: tuple[float, float] | None = None
    age: MeanRecord | None = None
    motion: MeanRecord | None = None
    sex: dict[str, StoredCount] | None = None


@dataclass(frozen=True, kw_only=True)
class SiteRecord(GroupRecord):
    """Those of one site."""

    site: str


@dataclass(frozen=True)
class RoiRecord:
    """Regions in the order of the atlas, with coordinates in mm and hemispheres where they are known."""

    name: tuple[str, ...]
    xyz: Annotated[tuple[tuple[float, float, float], ...] | None, SameLength("name")] = None
    hemi: Annotated[tuple[str, ...] | None, SameLength("name")] = None


@dataclass(frozen=True, kw_only=True)
class CohortFacts:
    """What ``facts.json`` holds; see :func:`brio.jobs.cohort_facts.describe_cohort`."""

    name: str = ""
    fingerprint: str = ""
    classes: tuple[str, str]
    label_covariate: str | None = field(default=None, metadata=OMIT_NONE)
    atlas: str = ""
    rois: RoiRecord | None = None
    all: GroupRecord
    halves: dict[str, tuple[str, str]] = field(default_factory=dict)
    sites: Annotated[tuple[SiteRecord, ...], NOT_EMPTY]


def read_audit(folder: Path) -> dict[str, Any] | None:
    """Read ``audit.json`` of a job folder; None where it has none."""
    return _read_checked(folder / AUDIT, AuditRecord)


def read_cohort_facts(folder: Path) -> dict[str, Any] | None:
    """Read ``facts.json`` of a job folder; None where it has none."""
    return _read_checked(folder / COHORT_FACTS, CohortFacts)


def _read_checked(path: Path, kind: type) -> dict[str, Any] | None:
    if not is_kept(path):
        return None
    checked: dict[str, Any] = to_json(from_json(kind, read_json(path), path))
    return checked


def read_groups(folder: Path) -> pd.DataFrame | None:
    """Read ``groups.csv`` of a job folder, one row per participant; None where it has none."""
    path = folder / GROUPS
    if not is_kept(path):
        return None
    return read_csv(path, GroupRow, ("participant_id",), max_bytes=MAX_PARTICIPANT_TABLE_BYTES)

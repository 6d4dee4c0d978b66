"""What a job stores about its cohort: facts, the audit, and groups of participants, but no single participant."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from msgspec import Meta

from ..cohort import AuditRules, Cohort
from ..cohort.auditing import findings
from ..cohort.covariates import COVARIATE_COLUMNS, ClassNames, list_known_covariates
from ..cohort.scans import find_extraction, holds_fc, index_participants
from ..cohort.values import ColumnValues, fold_value, read_numbers
from ..errors import REPEAT_JOB
from ..schemas import (
    MAX_PARTICIPANT_TABLE_BYTES,
    NOT_EMPTY,
    OMIT_NONE,
    Name,
    StoredCount,
    StoredNonNegative,
    check_lengths,
    from_json,
    to_json,
)
from .files import AUDIT, COHORT_FACTS, GROUPS, is_kept, read_csv, read_json

SMALLEST_GROUP = 5
"""A group with fewer scans gets only counts, because the mean and SD of three ages nearly reveal the ages."""


def describe_cohort(cohort: Cohort) -> dict[str, Any]:
    """Describe a cohort without describing any one participant, ready for ``json.dumps``."""
    sites, imported = cohort.sites, cohort.provenance.get("cohort", cohort.provenance)
    kind, denoising = imported.get("kind"), find_extraction(cohort.provenance)
    return {
        "name": cohort.name,
        "fingerprint": cohort.fingerprint,
        "classes": list(cohort.classes),
        **({"layout": str(kind)} if kind else {}),
        **({} if denoising is None else {"denoising": denoising | {"nilearn": imported["denoising"]["nilearn"]}}),
        **({} if cohort.label_covariate is None else {"label_covariate": cohort.label_covariate}),
        "label_is_sex": is_label_sex(cohort),
        "covariates": list_known_covariates(cohort),
        "atlas": cohort.atlas.name,
        "rois": _describe_rois(cohort),
        "all": _describe_group(cohort, np.ones(len(cohort), dtype=bool)),
        "halves": {name: halves for name, (half, halves) in _split_covariates(cohort).items() if (half != "").any()},
        "sites": [{"site": str(s), **_describe_group(cohort, sites == s)} for s in np.unique(sites)],
    }


def is_label_sex(cohort: Cohort) -> bool:
    """Return whether the classes of a cohort are the sexes: by their names, or because sex determines every label."""
    if ClassNames(*cohort.classes).are_sexes:
        return True
    if "sex" not in cohort.participants:
        return False
    known = cohort.participants["sex"].notna().to_numpy()
    sexes = cohort.participants["sex"][known].map(lambda sex: fold_value(sex, is_sex=True))
    pairs = set(zip(sexes, cohort.labels[known].tolist(), strict=True))
    return len(pairs) == 2 and len({sex for sex, _ in pairs}) == 2 and len({label for _, label in pairs}) == 2


def read_label_is_sex(facts: dict[str, Any] | None) -> bool:
    """Return whether the classes of a job are the sexes, as its facts say; before 0.3, by the names of the classes."""
    stored = (facts or {}).get("label_is_sex")
    return ClassNames(*(facts or {}).get("classes", ())).are_sexes if stored is None else stored


def _describe_rois(cohort: Cohort) -> dict[str, Any]:
    rois = cohort.atlas.rois
    described: dict[str, Any] = {"name": rois["name"].astype(str).tolist(), "xyz": None, "hemi": None}
    if cohort.atlas.has_coordinates:
        xyz = rois[["x", "y", "z"]].apply(pd.to_numeric, errors="coerce").to_numpy(dtype=float)
        if np.isfinite(xyz).all():
            described["xyz"] = xyz.round(1).tolist()
    if "hemi" in rois:
        described["hemi"] = rois["hemi"].astype(str).where(rois["hemi"].notna(), "").tolist()
    return described


def _describe_group(cohort: Cohort, members: np.ndarray) -> dict[str, Any]:
    """Counts and ranges of some scans; ``members`` is a mask, shape [scans]. Participants are described once."""
    frames = cohort.n_frames[members]
    length = None if holds_fc(cohort.participants) else [int(frames.min()), int(frames.max())]
    scans = np.flatnonzero(members)
    people = scans[index_participants(cohort.participant_ids[scans])[0]]  # each counts once
    table = cohort.participants.iloc[people]
    n = np.bincount(cohort.labels[people], minlength=2)
    tr = read_numbers(table["tr"]).dropna() if "tr" in table else pd.Series(dtype=float)
    return {
        "n": n.tolist(),
        "frames": length,
        "tr": [float(tr.min()), float(tr.max())] if len(tr) else None,
        "age": _mean_sd(table, COVARIATE_COLUMNS["age"]),
        "motion": _mean_sd(table, COVARIATE_COLUMNS["motion"]),
        "sex": _count_sexes(table),
    }


def _mean_sd(table: pd.DataFrame, column: str) -> dict[str, Any] | None:
    """Mean and SD of a column and how many scans have it; None if too few have it."""
    if column not in table:
        return None
    known = read_numbers(table[column]).dropna()
    known = known[np.isfinite(known)]
    if len(known) < SMALLEST_GROUP:
        return None
    return {"mean": round(float(known.mean()), 4), "sd": round(float(known.std(ddof=1)), 4), "n": len(known)}


def _count_sexes(table: pd.DataFrame) -> dict[str, int] | None:
    """Count scans of each sex; None if too few have one."""
    known = [sex for sex in _read_sexes(table) if sex]
    return dict(sorted(Counter(known).items())) if len(known) >= SMALLEST_GROUP else None


def _read_sexes(table: pd.DataFrame) -> list[str]:
    """Read the sex of each row, as the table writes it unless it writes it in several ways; empty if missing."""
    column = COVARIATE_COLUMNS["sex"]
    read = ColumnValues(table.get(column, ()), f"column '{column}'", is_sex=True)
    return ["" if value is None else read.name(value) for value in read.values]


def group_participants(cohort: Cohort) -> pd.DataFrame | None:
    """Put participants into coarse groups, within which a report scores a method.

    Age and motion are split at the median of the cohort, so that the file holds neither.

    Returns ``participant_id`` and those of ``sex``, ``age`` and ``motion`` that the participants' table has, as text;
    empty where a participant has no value. A variable that defines the labels is left out. None if no group is left.
    """
    table = cohort.participants.drop_duplicates("participant_id")
    groups = {"participant_id": table["participant_id"].astype(str)}
    if COVARIATE_COLUMNS["sex"] in table and COVARIATE_COLUMNS["sex"] != cohort.label_covariate:
        groups["sex"] = pd.Series(_read_sexes(table), index=table.index)
    groups |= {name: half for name, (half, _) in _split_covariates(cohort).items()}
    known = {name: column for name, column in groups.items() if name == "participant_id" or (column != "").any()}
    return pd.DataFrame(known) if len(known) > 1 else None


def _split_covariates(cohort: Cohort) -> dict[str, tuple[pd.Series, list[str]]]:
    """Say whether each age or motion is below the median, and name both halves, the lower one first.

    The median is rounded to some decimals. Values that are not finite are left empty. A variable that
    defines the labels is left out.
    """
    table = cohort.participants.drop_duplicates("participant_id")
    split = {}
    for name, digits in (("age", 1), ("motion", 2)):
        column = COVARIATE_COLUMNS[name]
        if column in table and column != cohort.label_covariate:
            values = read_numbers(table[column])
            values = values.where(np.isfinite(values))
            median = f"{values.median():.{digits}f}"
            halves = [f"below {median}", f"{median} or above"]
            half = pd.Series(np.where(values < float(median), *halves), index=values.index)
            split[name] = half.where(values.notna(), ""), halves
    return split


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

    by_site: dict[str, dict[Annotated[float, Meta(ge=0, le=1e9)], StoredCount]]


@dataclass(frozen=True, kw_only=True)
class AuditRecord:
    """The part of ``audit.json`` that reports read; :class:`brio.cohort.Audit` describes the fields."""

    atlases: dict[str, StoredCount] = field(default_factory=dict)
    classes: tuple[str, str]
    rules: AuditRules
    classes_after: tuple[StoredCount, StoredCount]
    duplicates: tuple[findings.DuplicatePair, ...] = ()
    dead_by_site: dict[str, dict[str, StoredCount]] = field(default_factory=dict)
    dead_patterns: dict[str, findings.PatternTest] = field(default_factory=dict)
    non_finite: tuple[findings.NonFiniteFrames, ...] = ()
    too_short: tuple[findings.TooShort, ...] = ()
    sites: tuple[findings.SiteCounts, ...]
    one_class: tuple[str, ...] = ()
    small_class: tuple[str, ...] = ()
    label_by_site: findings.LabelBySite | None = None
    length_by_site: findings.LengthBySite | None = None
    length_by_label: findings.LengthByLabel | None = None
    repetition_time: RepetitionTimeRecord | None = None
    not_checked: tuple[str, ...] = ()
    covariates: tuple[findings.CovariateByLabel, ...] = ()
    similar_sites: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class MeanRecord:
    """Mean and standard deviation of a covariate, over the ``n`` scans that have it."""

    mean: float
    sd: StoredNonNegative
    n: StoredCount = 0


@dataclass(frozen=True, kw_only=True)
class GroupRecord:
    """Counts and ranges of some scans; see :func:`describe_cohort`."""

    n: tuple[StoredCount, StoredCount]
    frames: tuple[StoredCount, StoredCount] | None = None
    tr: tuple[float, float] | None = None
    age: MeanRecord | None = None
    motion: MeanRecord | None = None
    sex: dict[str, StoredCount] | None = None


@dataclass(frozen=True, kw_only=True)
class SiteRecord(GroupRecord):
    """Counts and ranges of one site."""

    site: str


@dataclass(frozen=True)
class RoiRecord:
    """Regions in the order of the atlas, with coordinates in mm and hemispheres where they are known."""

    name: tuple[str, ...]
    xyz: tuple[tuple[float, float, float], ...] | None = None
    hemi: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check_lengths(self, "name", "xyz", "hemi")


@dataclass(frozen=True, kw_only=True)
class CohortFacts:
    """What ``facts.json`` holds; see :func:`describe_cohort`."""

    name: str = ""
    fingerprint: str = ""
    classes: tuple[str, str]
    layout: str | None = field(default=None, metadata=OMIT_NONE)  # of the imported files, one of brio import's
    denoising: dict[str, str | float] | None = field(default=None, metadata=OMIT_NONE)  # of images, by what options
    label_covariate: str | None = field(default=None, metadata=OMIT_NONE)
    label_is_sex: bool | None = field(default=None, metadata=OMIT_NONE)  # None before version 0.3
    covariates: tuple[str, ...] | None = field(default=None, metadata=OMIT_NONE)  # those that are known; None as above
    atlas: str = ""
    rois: RoiRecord | None = None
    all: GroupRecord
    halves: dict[str, tuple[str, str]] = field(default_factory=dict)
    sites: Annotated[tuple[SiteRecord, ...], NOT_EMPTY]


def read_audit(folder: Path, remedy: str = REPEAT_JOB) -> dict[str, Any] | None:
    """Read ``audit.json`` of a job folder; None where it has none."""
    return _read_record(AuditRecord, folder / AUDIT, remedy)


def read_cohort_facts(folder: Path, remedy: str = REPEAT_JOB) -> dict[str, Any] | None:
    """Read ``facts.json`` of a job folder; None where it has none."""
    return _read_record(CohortFacts, folder / COHORT_FACTS, remedy)


def _read_record(kind: type, path: Path, remedy: str) -> dict[str, Any] | None:
    return to_json(from_json(kind, read_json(path, remedy), path, remedy)) if is_kept(path, remedy) else None


def read_groups(folder: Path, remedy: str = REPEAT_JOB) -> pd.DataFrame | None:
    """Read ``groups.csv`` of a job folder, one row per participant; None where it has none."""
    path, size = folder / GROUPS, MAX_PARTICIPANT_TABLE_BYTES
    return read_csv(path, GroupRow, max_bytes=size, remedy=remedy) if is_kept(path, remedy) else None

"""What a report that is made without the cohort needs of it: counts and ranges, and coarse groups of participants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ..cohort import Cohort
from ..cohort.covariates import COVARIATE_COLUMNS, SEX_CODES
from ..cohort.given_fc import holds_fc
from ..cohort.sessions import index_participants

SMALLEST_GROUP = 5
"""A group with fewer scans gets counts alone: mean and SD of three ages are nearly the ages."""


def describe_cohort(cohort: Cohort) -> dict[str, Any]:
    """Describe a cohort without describing any one participant, ready for ``json.dumps``."""
    sites = cohort.sites
    return {
        "name": cohort.name,
        "fingerprint": cohort.fingerprint,
        "classes": list(cohort.classes),
        **({} if cohort.label_covariate is None else {"label_covariate": cohort.label_covariate}),
        "atlas": cohort.atlas.name,
        "rois": _describe_rois(cohort),
        "all": _describe_group(cohort, np.ones(len(cohort), dtype=bool)),
        "halves": _name_halves(cohort),
        "sites": [{"site": str(s), **_describe_group(cohort, sites == s)} for s in np.unique(sites)],
    }


def is_label_sex(cohort: Cohort) -> bool:
    """Return whether the classes of a cohort are the sexes: by their names, or because sex tells every label."""
    codes = {SEX_CODES.get(name.strip().lower()) for name in cohort.classes}
    if codes == {0.0, 1.0}:
        return True
    if "sex" not in cohort.participants:
        return False
    known = cohort.participants["sex"].notna().to_numpy()
    pairs = set(zip(cohort.participants["sex"][known].astype(str), cohort.labels[known].tolist(), strict=True))
    return len(pairs) == 2 and len({sex for sex, _ in pairs}) == 2 and len({label for _, label in pairs}) == 2


def _describe_rois(cohort: Cohort) -> dict[str, Any]:
    rois = cohort.atlas.rois
    described: dict[str, Any] = {"name": rois["name"].astype(str).tolist(), "xyz": None, "hemi": None}
    if cohort.atlas.has_coordinates:
        xyz = rois[["x", "y", "z"]].apply(pd.to_numeric, errors="coerce").to_numpy(dtype=float)
        if np.isfinite(xyz).all():
            described["xyz"] = xyz.round(1).tolist()
    if "hemi" in rois:
        described["hemi"] = rois["hemi"].astype(str).tolist()
    return described


def _describe_group(cohort: Cohort, members: np.ndarray) -> dict[str, Any]:
    """Counts and ranges of some scans; ``members`` is a mask, shape [scans]. Participants are described once."""
    frames = cohort.n_frames[members]
    length = None if holds_fc(cohort.participants) else [int(frames.min()), int(frames.max())]
    scans = np.flatnonzero(members)
    people = scans[index_participants(cohort.participant_ids[scans])[0]]  # each counts once
    table = cohort.participants.iloc[people]
    n = np.bincount(cohort.labels[people], minlength=2)
    group: dict[str, Any] = {"n": n.tolist(), "frames": length, "tr": None}
    if "tr" in table:
        tr = pd.to_numeric(table["tr"], errors="coerce").dropna()
        group["tr"] = [float(tr.min()), float(tr.max())] if len(tr) else None
    group |= {
        "age": _mean_sd(table, COVARIATE_COLUMNS["age"]),
        "motion": _mean_sd(table, COVARIATE_COLUMNS["motion"]),
        "sex": _count_sexes(table),
    }
    return group


def _mean_sd(table: pd.DataFrame, column: str) -> dict[str, Any] | None:
    """Mean and SD of a column and how many scans have it; None where few have."""
    if column not in table:
        return None
    known = pd.to_numeric(table[column], errors="coerce").dropna().astype(float)
    known = known[np.isfinite(known)]
    if len(known) < SMALLEST_GROUP:
        return None
    return {"mean": round(float(known.mean()), 4), "sd": round(float(known.std(ddof=1)), 4), "n": len(known)}


def _count_sexes(table: pd.DataFrame) -> dict[str, int] | None:
    """Count scans of each sex as the table writes it; None where few have one."""
    column = COVARIATE_COLUMNS["sex"]
    if column not in table:
        return None
    known = table[column].dropna().astype(str).str.strip()
    if len(known) < SMALLEST_GROUP:
        return None
    return {str(k): int(v) for k, v in known.value_counts().sort_index().items()}


def group_participants(cohort: Cohort) -> pd.DataFrame | None:
    """Put participants into coarse groups, within which a report scores a method.

    Age and motion are split at the median of the cohort, so that the file holds neither.

    Returns ``participant_id`` and those of ``sex``, ``age`` and ``motion`` that the participants' table has, as text;
    empty where a participant has no value. What the labels are made of is no group. None where there is no group.
    """
    table = cohort.participants.drop_duplicates("participant_id")
    groups = {"participant_id": table["participant_id"].astype(str)}
    if COVARIATE_COLUMNS["sex"] in table and COVARIATE_COLUMNS["sex"] != cohort.label_covariate:
        sex = table[COVARIATE_COLUMNS["sex"]]
        groups["sex"] = sex.astype(str).str.strip().where(sex.notna(), "")
    groups |= {name: half for name, (half, _) in _split_covariates(cohort).items()}
    known = {name: column for name, column in groups.items() if name == "participant_id" or (column != "").any()}
    return pd.DataFrame(known) if len(known) > 1 else None


def _split_at_median(table: pd.DataFrame, name: str) -> tuple[pd.Series, list[str]]:
    """Say of each age or motion whether it lies below the median, and how both halves are called.

    The median is rounded to some decimals. What is not finite is unknown: empty.
    """
    values = pd.to_numeric(table[COVARIATE_COLUMNS[name]], errors="coerce").astype(float)
    values = values.where(np.isfinite(values))
    median = f"{values.median():.{1 if name == 'age' else 2}f}"
    halves = [f"below {median}", f"{median} or above"]
    return pd.Series(np.where(values < float(median), *halves), index=values.index).where(values.notna(), ""), halves


def _name_halves(cohort: Cohort) -> dict[str, list[str]]:
    """How :func:`group_participants` calls the halves of age and motion, the lower one first."""
    return {name: halves for name, (half, halves) in _split_covariates(cohort).items() if (half != "").any()}


def _split_covariates(cohort: Cohort) -> dict[str, tuple[pd.Series, list[str]]]:
    """Split age and motion at their medians, unless the labels are made of them."""
    table = cohort.participants.drop_duplicates("participant_id")
    columns = {name: COVARIATE_COLUMNS[name] for name in ("age", "motion")}
    return {
        name: _split_at_median(table, name)
        for name, column in columns.items()
        if column in table and column != cohort.label_covariate
    }

"""Facts about a cohort that a report needs when the cohort is not at hand: counts and ranges, no row of anyone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ..cohort import Cohort
from ..cohort.covariates import COVARIATE_COLUMNS

__all__ = ["FACTS", "cohort_facts"]

FACTS = "facts.json"
LEAST = 5
"""A site with fewer scans gets counts alone: the range of an age over three people is nearly their ages."""


def cohort_facts(cohort: Cohort) -> dict[str, Any]:
    """What may be told of a cohort without telling of anyone in it, ready for ``json.dumps``.

    Names of the cohort, its atlas and its classes; the ROIs with coordinates and hemisphere where they are known; and
    for the whole cohort and each site the scans of both classes, frames, repetition times and, where the participants'
    table has them, age, motion and sex.

    Examples
    --------
    >>> from brio.cohort.simulate import Simulation, simulate
    >>> facts = cohort_facts(simulate(Simulation(n_sites=2, per_class=6, n_rois=8)))
    >>> facts["sites"][0]["site"], facts["sites"][0]["n"], facts["rois"]["name"][0]
    ('site01', [6, 6], 'stable_1_L')
    """
    sites = cohort.sites
    return {
        "name": cohort.name,
        "fingerprint": cohort.fingerprint,
        "classes": list(cohort.classes),
        "atlas": cohort.atlas.name,
        "rois": _rois(cohort),
        "all": _group(cohort, np.ones(len(cohort), dtype=bool)),
        "sites": [{"site": str(s), **_group(cohort, sites == s)} for s in np.unique(sites)],
    }


def _rois(cohort: Cohort) -> dict[str, Any]:
    rois = cohort.atlas.rois
    found: dict[str, Any] = {"name": rois["name"].astype(str).tolist(), "xyz": None, "hemi": None}
    if cohort.atlas.has_coordinates:
        xyz = rois[["x", "y", "z"]].apply(pd.to_numeric, errors="coerce").to_numpy(dtype=float)
        if np.isfinite(xyz).all():
            found["xyz"] = xyz.round(1).tolist()
    if "hemi" in rois:
        found["hemi"] = rois["hemi"].astype(str).tolist()
    return found


def _group(cohort: Cohort, mine: np.ndarray) -> dict[str, Any]:
    """Counts and ranges of some scans."""
    table = cohort.participants[mine]
    n = np.bincount(cohort.labels[mine], minlength=2)
    frames = cohort.n_frames[mine]
    told: dict[str, Any] = {"n": n.tolist(), "frames": [int(frames.min()), int(frames.max())], "tr": None}
    if "tr" in table:
        tr = pd.to_numeric(table["tr"], errors="coerce").dropna()
        told["tr"] = [float(tr.min()), float(tr.max())] if len(tr) else None
    told |= {
        "age": _numbers(table, COVARIATE_COLUMNS["age"]),
        "motion": _numbers(table, COVARIATE_COLUMNS["motion"]),
        "sex": _sexes(table),
    }
    return told


def _numbers(table: pd.DataFrame, column: str) -> dict[str, Any] | None:
    """Mean and SD of a column and how many have it; None where few have."""
    if column not in table:
        return None
    known = pd.to_numeric(table[column], errors="coerce").dropna().astype(float)
    known = known[np.isfinite(known)]
    if len(known) < LEAST:
        return None
    return {"mean": round(float(known.mean()), 4), "sd": round(float(known.std(ddof=1)), 4), "n": len(known)}


def _sexes(table: pd.DataFrame) -> dict[str, int] | None:
    """Scans of each sex as the table writes it, those without one left out; None where few have one."""
    column = COVARIATE_COLUMNS["sex"]
    if column not in table:
        return None
    known = table[column].dropna().astype(str).str.strip()
    if len(known) < LEAST:
        return None
    return {str(k): int(v) for k, v in known.value_counts().sort_index().items()}

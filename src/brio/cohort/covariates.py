"""What is known of the participants besides their scans, as numbers, and what a method may find missing."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from ..errors import BrioError
from .cohort import Cohort

__all__ = ["COLUMNS", "covariates", "hemisphere", "repetition_time"]

COLUMNS = {"sex": "sex", "age": "age", "motion": "mean_fd"}
"""Covariate -> column of the participants' table."""

_SEX = {"f": 0.0, "female": 0.0, "w": 0.0, "woman": 0.0, "m": 1.0, "male": 1.0, "man": 1.0}
_MAY_HAVE_GAPS = {"motion"}


def covariates(cohort: Cohort, names: Iterable[str], who: str) -> np.ndarray:
    """Covariates as numbers, sex as 0 (female) and 1 (male). Shape [N, C], float64.

    A missing column, a sex that is neither, or a participant without a value is an error that says what to do; motion
    alone may have gaps (NaN), which a method fills from its source scans.
    """
    return np.stack([_column(cohort, name, who) for name in names], axis=1) if names else np.zeros((len(cohort), 0))


def _column(cohort: Cohort, name: str, who: str) -> np.ndarray:
    column = COLUMNS[name]
    if column not in cohort.participants:
        raise BrioError(
            f"{who} needs the {name} of every participant; the cohort '{cohort.name}' has no column '{column}': "
            "add it to the participants' table and import again"
        )
    values = cohort.participants[column]
    if name == "sex":
        text = values.astype("string").str.strip().str.lower()
        coded = text.map(_SEX).astype(float)
        strange = text.notna() & coded.isna()
        if strange.any():
            raise BrioError(
                f"{who}: sex of participant {cohort.ids[strange.to_numpy()][0]} is '{values[strange].iloc[0]}'; "
                "write F and M, then import again"
            )
    else:
        coded = pd.to_numeric(values, errors="coerce").astype(float)
    array = coded.to_numpy(dtype=float)
    gaps = np.isnan(array)
    if gaps.all() or (gaps.any() and name not in _MAY_HAVE_GAPS):
        raise BrioError(
            f"{who} needs the {name} of every participant; {int(gaps.sum())} of {len(array)} have none "
            f"(the first is {cohort.ids[gaps][0]}): fill the column '{column}' or leave them out"
        )
    return array


def repetition_time(cohort: Cohort, who: str) -> np.ndarray:
    """Seconds between frames of each scan. Shape [N], float64."""
    if "tr" not in cohort.participants:
        raise BrioError(
            f"{who} reads BOLD on one clock and needs the repetition time; the cohort '{cohort.name}' has no column "
            "'tr' (seconds): add it and import again, or give --set bold_tr=none to take frames as they are"
        )
    tr = pd.to_numeric(cohort.participants["tr"], errors="coerce").to_numpy(dtype=float)
    if not (tr > 0).all():
        raise BrioError(
            f"{who} needs the repetition time of every scan; participant {cohort.ids[~(tr > 0)][0]} has none in the "
            "column 'tr' (seconds): fill it, or give --set bold_tr=none to take frames as they are"
        )
    return tr


def hemisphere(cohort: Cohort, who: str) -> np.ndarray:
    """Side of each ROI: -1 left, 1 right, 0 midline. Shape [P], int64.

    Taken from the atlas column ``hemi`` (L, R, anything else is midline), or from the sign of the coordinate ``x``.
    """
    rois = cohort.atlas.rois
    if "hemi" in rois:
        side = rois["hemi"].astype(str).str.upper().map({"L": -1, "R": 1}).fillna(0).to_numpy(dtype=np.int64)
    elif "x" in rois:
        side = np.sign(rois["x"].to_numpy(dtype=float).round(1)).astype(np.int64)
    else:
        raise BrioError(
            f"{who} needs the hemisphere of each ROI; the atlas '{cohort.atlas.name}' has neither a column 'hemi' nor "
            "'x': import with an atlas table that has one"
        )
    if not ((side < 0).sum() >= 2 and (side > 0).sum() >= 2):
        raise BrioError(f"{who} needs ROIs of both hemispheres; the atlas '{cohort.atlas.name}' has not two of each")
    return side

"""Read what a method may need besides the scans: covariates, repetition times and hemispheres.

Each function raises an error that names the method or setting in need, the participant or column at fault and what to
do about it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ..errors import BrioError
from .cohort import Cohort
from .repetition_time import require_repetition_time

COVARIATE_COLUMNS = {"sex": "sex", "age": "age", "motion": "mean_fd"}
"""Column of the participants table for each covariate."""

SEX_CODES = {"f": 0.0, "female": 0.0, "w": 0.0, "woman": 0.0, "m": 1.0, "male": 1.0, "man": 1.0}
"""How a sex may be written, in lower case, and its number."""
_MAY_BE_MISSING = {"motion"}
LARGEST_COVARIATE = 1e6
"""Largest age or motion, in whatever unit, that is taken for one."""


def read_covariates(cohort: Cohort, names: Sequence[str], requester: str) -> np.ndarray:
    """Read covariates as numbers.

    Shapes: returns [N, C].

    Returns sex is 0 (female) or 1 (male). Motion may have gaps (NaN), which a method fills from its source scans.
    """
    if not names:
        return np.zeros((len(cohort), 0))
    return np.stack([_read_column(cohort, name, requester) for name in names], axis=1)


def _read_column(cohort: Cohort, name: str, requester: str) -> np.ndarray:
    column = COVARIATE_COLUMNS[name]
    if column not in cohort.participants:
        raise BrioError(
            f"{requester} needs the {name} of every participant; the cohort '{cohort.name}' has no column '{column}': "
            "add it to the participants table and import again"
        )
    if column == cohort.label_covariate:
        raise BrioError(
            f"{requester} needs the {name} of every participant, but the labels of cohort '{cohort.name}' are made of "
            "it: it would be given the answer; leave it out"
        )
    values = cohort.participants[column]
    if name == "sex":
        text = values.astype("string").str.strip().str.lower()
        numbers = text.map(SEX_CODES).astype(float)
        unknown = text.notna() & numbers.isna()
        if unknown.any():
            raise BrioError(
                f"{requester}: sex of participant {cohort.ids[unknown.to_numpy()][0]} is '{values[unknown].iloc[0]}'; "
                "write F and M, then import again"
            )
    else:
        numbers = pd.to_numeric(values, errors="coerce").astype(float)
        # neither text that is no number nor an infinite value is a missing one
        unusable = (values.notna() & ~(numbers.abs() <= LARGEST_COVARIATE)).to_numpy()
        if unusable.any():
            raise BrioError(
                f"{requester}: {name} of participant {cohort.ids[unusable][0]} is '{values[unusable].iloc[0]}' in the "
                f"column '{column}'; write a number, or leave the cell empty, then import again"
            )
    array = numbers.to_numpy(dtype=float)
    missing = np.isnan(array)
    if missing.all() or (missing.any() and name not in _MAY_BE_MISSING):
        raise BrioError(
            f"{requester} needs the {name} of every participant; {int(missing.sum())} of {len(array)} have none "
            f"(the first is {cohort.ids[missing][0]}): fill the column '{column}' or leave them out"
        )
    return array


def read_repetition_times(cohort: Cohort, requester: str) -> np.ndarray:
    """Read the repetition time of each scan.

    Shapes: returns [N].
    """
    if "tr" not in cohort.participants:
        raise BrioError(
            f"{requester} resamples BOLD to one clock and needs the repetition time; the cohort '{cohort.name}' has no "
            "column 'tr' (seconds): add it and import again, or give --set bold_tr=none to use the frames as they are"
        )
    tr = pd.to_numeric(cohort.participants["tr"], errors="coerce").to_numpy(dtype=float)
    if not (tr > 0).all():
        raise BrioError(
            f"{requester} needs the repetition time of every scan; participant {cohort.ids[~(tr > 0)][0]} has none in "
            "the column 'tr' (seconds): fill it, or give --set bold_tr=none to use the frames as they are"
        )
    for name, seconds in zip(cohort.ids, tr.tolist(), strict=True):
        require_repetition_time(seconds, f"{requester}: the repetition time (column 'tr') of participant {name}")
    return tr


def read_hemispheres(cohort: Cohort, requester: str) -> np.ndarray:
    """Read the hemisphere of each ROI.

    It is taken from the column ``hemi`` of the atlas (L, R, anything else is midline), else from the sign of the
    coordinate ``x``.

    Shapes: returns [P].
    """
    rois = cohort.atlas.rois
    if "hemi" in rois:
        side = rois["hemi"].astype(str).str.upper().map({"L": -1, "R": 1}).fillna(0).to_numpy(dtype=np.int64)
    elif "x" in rois:
        side = np.sign(rois["x"].to_numpy(dtype=float).round(1)).astype(np.int64)
    else:
        raise BrioError(
            f"{requester} needs the hemisphere of each ROI; the atlas '{cohort.atlas.name}' has neither a column "
            "'hemi' nor 'x': import with an atlas table that has one"
        )
    if not ((side < 0).sum() >= 2 and (side > 0).sum() >= 2):
        raise BrioError(
            f"{requester} needs ROIs of both hemispheres; the atlas '{cohort.atlas.name}' has fewer than two of one"
        )
    return side

"""What scikit-learn users hand over, as cohorts: ragged scans, any two labels, sites."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import assert_all_finite, check_consistent_length, column_or_1d

from .cohort import Atlas, Cohort
from .cohort.cohort import check_participants
from .errors import BrioError

__all__ = ["as_scans", "labelled_cohort", "two_classes", "unlabelled_cohort"]


def as_scans(X: Any) -> list[np.ndarray]:
    """Scans of shape [T_i, P] in float32, from a sequence of arrays or one array [n, T, P].

    Examples
    --------
    >>> [scan.shape for scan in as_scans([np.ones((5, 3)), np.ones((7, 3))])]
    [(5, 3), (7, 3)]
    """
    if sparse.issparse(X):
        raise BrioError("X is sparse; scans are dense arrays of shape (frames, ROIs)")
    if hasattr(X, "__array__") and not hasattr(X, "shape"):
        X = np.asarray(X)
    shape = getattr(X, "shape", None)
    if shape is not None and len(shape) not in (1, 3):
        raise BrioError(
            f"X has shape {tuple(shape)}; time series are needed, because connectomes are estimated again and again "
            "from their frames: give a list of arrays (frames, ROIs) or one array (scans, frames, ROIs)"
        )
    try:
        parts = list(X)
    except TypeError:
        raise BrioError(f"X is a {type(X).__name__}; give a list of arrays (frames, ROIs)") from None
    if not parts:
        raise BrioError("X holds no scans")
    scans = [_as_scan(part, f"X[{i}]") for i, part in enumerate(parts)]
    n_rois = scans[0].shape[1]
    for i, scan in enumerate(scans):
        if scan.shape[1] != n_rois:
            raise BrioError(
                f"X[{i}] has {scan.shape[1]} ROIs, but X[0] has {n_rois}; all scans need the same parcellation"
            )
    return scans


def _as_scan(part: Any, where: str) -> np.ndarray:
    try:
        array = np.asarray(part)
        if np.iscomplexobj(array):
            raise BrioError(f"{where}: Complex data not supported")
        array = array.astype(np.float32, copy=False)
    except (TypeError, ValueError) as error:
        raise error if isinstance(error, BrioError) else BrioError(f"{where} is not an array of numbers") from None
    if array.ndim != 2:
        raise BrioError(f"{where} has {array.ndim} axes; a scan has two, (frames, ROIs)")
    return array


def two_classes(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """The two labels in sorted order, and which of them each scan has (0 or 1).

    Examples
    --------
    >>> classes, label = two_classes(["patient", "control", "patient"])
    >>> classes.tolist(), label.tolist()
    (['control', 'patient'], [1, 0, 1])
    """
    y = column_or_1d(y, warn=True)
    if np.iscomplexobj(y):
        raise BrioError("y: Complex data not supported")
    assert_all_finite(y, input_name="y")
    if len(y) == 0:
        raise BrioError("y holds no labels")
    kind = type_of_target(y, input_name="y", raise_unknown=True)
    if kind != "binary":
        raise BrioError(f"Only binary classification is supported. The type of the target is {kind}.")
    classes, label = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise BrioError(f"y holds one class only ({classes[0]}); two are needed")
    return classes, label


def labelled_cohort(X: Any, y: Any, sites: Any) -> tuple[Cohort, np.ndarray]:
    """The cohort to learn from and its two labels in sorted order."""
    given = isinstance(X, Cohort)
    if given:
        X.verify()
        y = X.labels if y is None else y
        sites = X.sites if sites is None else sites
    if y is None:
        raise BrioError("BrioClassifier requires y to be passed, but the target y is None")
    classes, label = two_classes(y)
    scans = None if given else as_scans(X)
    if sites is None:
        raise BrioError(
            "sites=None: BrioClassifier learns what holds across sites and chooses its checkpoint on sites it did not "
            "learn from, so it needs the site of every scan: fit(X, y, sites=sites), and in cross_validate "
            "params={'sites': sites}"
        )
    sites = column_or_1d(sites)
    check_consistent_length(range(len(X if scans is None else scans)), label, sites)
    if scans is None:
        table = X.participants.assign(site=sites, label=label)
        return replace(X, participants=check_participants(table, "X"), fingerprint="", path=None), classes
    names = (str(classes[0]), str(classes[1]))
    ids = [f"X[{i}]" for i in range(len(scans))]
    return Cohort.from_scans(scans, site=sites, label=label.tolist(), participant_id=ids, classes=names), classes


def unlabelled_cohort(scans: list[np.ndarray]) -> Cohort:
    """Scans to be scored: nothing is known of them but their frames."""
    lengths = np.array([len(scan) for scan in scans], dtype=np.int64)
    return Cohort(
        name="scans to score",
        frames=np.concatenate(scans),
        starts=np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64),
        n_frames=lengths,
        participants=pd.DataFrame({"participant_id": [f"X[{i}]" for i in range(len(scans))]}),
        atlas=Atlas.unnamed(scans[0].shape[1]),
    )

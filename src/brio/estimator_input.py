"""Convert the arguments of a scikit-learn estimator (scans, labels, sites) to a cohort."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import assert_all_finite, check_consistent_length, column_or_1d

from .cohort import Atlas, Cohort
from .cohort.cohort import locate_scans
from .cohort.folder import check_participants, format_table
from .cohort.given_fc import refuse_fc
from .cohort.signal import convert_frames
from .errors import BrioError


def convert_scans(X: Any) -> list[np.ndarray]:
    """Convert scans to a list of float32 arrays.

    Shapes: X [T_i, P]; returns [T_i, P].
    """
    if sparse.issparse(X):
        raise BrioError("X is sparse; scans are dense arrays of shape (frames, ROIs)")
    if hasattr(X, "__array__") and not hasattr(X, "shape"):
        X = np.asarray(X)
    shape = getattr(X, "shape", None)
    if shape is not None and len(shape) == 2:
        raise BrioError(
            f"X has shape {tuple(shape)}, as one scan (frames, ROIs) or a table of features has; give one scan as a "
            "list, [X], and never features: connectomes are re-estimated from the frames of time series"
        )
    if shape is not None and len(shape) not in (1, 3):
        raise BrioError(
            f"X has shape {tuple(shape)}; time series are needed, because connectomes are re-estimated from their "
            "frames: give a list of arrays (frames, ROIs) or one array (scans, frames, ROIs)"
        )
    try:
        items = list(X)
    except TypeError:
        raise BrioError(f"X is a {type(X).__name__}; give a list of arrays (frames, ROIs)") from None
    if not items:
        raise BrioError("X holds no scans")
    scans = [_convert_scan(item, f"X[{i}]") for i, item in enumerate(items)]
    n_rois = scans[0].shape[1]
    for i, scan in enumerate(scans):
        if scan.shape[1] != n_rois:
            hint = " (all have as many rows; if rows are the ROIs, transpose them)"
            raise BrioError(
                f"X[{i}] has {scan.shape[1]} ROIs, but X[0] has {n_rois}; all scans need the same parcellation"
                + (hint if len({len(one) for one in scans}) == 1 else "")
            )
    return scans


def _convert_scan(item: Any, where: str) -> np.ndarray:
    """Convert one scan to float32. Shape [T, P]."""
    masked = isinstance(item, np.ma.MaskedArray)
    try:
        array = item if masked else np.asarray(item)
        if array.dtype.kind in "OSU":
            array = array.astype(np.float64)
    except (TypeError, ValueError):
        raise BrioError(f"{where} is not an array of numbers") from None
    if np.iscomplexobj(array):
        raise BrioError(f"{where}: Complex data not supported")
    if array.ndim != 2:
        raise BrioError(f"{where} has {array.ndim} axes; a scan has two, (frames, ROIs)")
    frames = convert_frames(array, where)
    refuse_fc(frames, where)
    return frames


def _refuse_masked(values: Any, name: str) -> None:
    """Refuse masked labels and sites: without their mask, they would be taken as they are."""
    if np.ma.is_masked(values):
        raise BrioError(f"{name}[{int(np.flatnonzero(np.ma.getmaskarray(values))[0])}] is masked; leave out the scan")


def encode_labels(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Encode any two labels as 0 and 1.

    Shapes: returns classes [2], label [n].
    """
    _refuse_masked(y, "y")
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


def build_labelled_cohort(X: Any, y: Any, sites: Any) -> tuple[Cohort, np.ndarray]:
    """Build the cohort that an estimator is fitted to.

    Shapes: X [T_i, P]; returns classes [2].
    """
    is_cohort, own_labels = isinstance(X, Cohort), y is None and sites is None
    if is_cohort:
        X.verify()
        y = X.labels if y is None else y
        sites = X.sites if sites is None else sites
    if y is None:
        raise BrioError("BrioClassifier requires y to be passed, but the target y is None")
    classes, label = encode_labels(y)
    scans = None if is_cohort else convert_scans(X)
    if sites is None:
        raise BrioError(
            "sites=None: BrioClassifier compares source sites and chooses its checkpoint on validation sites, so it "
            "needs the site of every scan: fit(X, y, sites=sites), and in cross_validate params={'sites': sites}"
        )
    _refuse_masked(sites, "sites")
    sites = column_or_1d(sites)
    check_consistent_length(range(len(X if scans is None else scans)), label, sites)
    names = (str(classes[0]), str(classes[1]))
    if scans is None:
        if own_labels:
            return X, classes
        table = check_participants(X.participants.assign(site=sites, label=label), "X")
        fingerprint = hashlib.sha256(f"{X.fingerprint}{format_table(table)}".encode()).hexdigest()
        if classes.tolist() == [0, 1]:  # labels as the cohort has them
            names = X.classes
        return replace(X, participants=table, fingerprint=fingerprint, path=None, classes=names), classes
    ids = [f"X[{i}]" for i in range(len(scans))]
    return Cohort.from_scans(scans, site=sites, label=label.tolist(), participant_id=ids, classes=names), classes


def build_unlabelled_cohort(scans: list[np.ndarray]) -> Cohort:
    """Build a cohort of scans to predict, without sites and labels.

    Shapes: scans [T_i, P].
    """
    lengths = np.array([len(scan) for scan in scans], dtype=np.int64)
    return Cohort(
        name="scans to predict",
        frames=np.concatenate(scans),
        starts=locate_scans(lengths),
        n_frames=lengths,
        participants=pd.DataFrame({"participant_id": [f"X[{i}]" for i in range(len(scans))]}),
        atlas=Atlas.unnamed(scans[0].shape[1]),
    )

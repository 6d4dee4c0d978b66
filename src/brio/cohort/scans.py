"""Scans: repetition times, sessions, ROIs without signal, and imported connectomes."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from ..errors import BrioError

SHORTEST, LONGEST = 0.01, 100.0  # seconds between two frames; a larger number is most often one of milliseconds


def is_repetition_time(value: Any) -> bool:
    """Return whether a value is a valid repetition time in seconds."""
    return isinstance(value, int | float) and not isinstance(value, bool) and SHORTEST <= value <= LONGEST


def require_repetition_time(value: Any, what: str) -> float:
    """Require that a value is a valid repetition time in seconds."""
    if not is_repetition_time(value):
        needed = f"a number of seconds is needed, from {SHORTEST} to {LONGEST:.0f}"
        raise BrioError(f"{what} is {repr(value)[:40]}; {needed}")
    return float(value)


SCAN_ID = "brio_scan_id"  # column with a unique name of each scan. Only cohorts with repeated scans have it.
# Column with the frames of each session (120+118) of scans whose connectome is the mean over sessions.
SESSION_FRAMES = "averaged_frames"
# Entry of the provenance: for the hash of each scan that was joined of several, the hashes of these.
JOINED_SCANS = "joined_scans"


def index_participants(participant_ids: Sequence[str] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the first scan of each participant, and the participant of each scan.

    Shapes: participant_ids [N]; returns first [n], member [N].
    """
    member = pd.factorize(np.asarray(participant_ids, dtype=object), use_na_sentinel=False)[0].astype(np.int64)
    return np.unique(member, return_index=True)[1].astype(np.int64), member


def average_over_scans(values: np.ndarray, member: np.ndarray) -> np.ndarray:
    """Average values over the scans of each participant. Values of participants with one scan are unchanged.

    Shapes: values [N, ...], member [N]; returns [n, ...].
    """
    values = np.asarray(values, dtype=np.float64)
    count = np.bincount(member)
    if len(count) == len(values):  # a sum would turn -0.0 into 0.0
        averaged = np.empty_like(values)
        averaged[member] = values
        return averaged
    total = np.zeros((len(count), *values.shape[1:]))
    np.add.at(total, member, values)
    return total / count.reshape(-1, *[1] * (values.ndim - 1))


def name_scan(participant_id: str, session: str) -> str:
    """Name a scan of a participant with several scans."""
    return f"{participant_id}_{session if re.match('[A-Za-z]+-', session) else f'ses-{session}'}"


def name_repeated_scans(table: pd.DataFrame, where: str) -> pd.DataFrame:
    """Check the rows of participants with several scans and name every scan in a column ``brio_scan_id``.

    Returns the same table if nobody has several scans. Otherwise ``session`` is text and ``brio_scan_id`` is unique.
    """
    owner = table["participant_id"]
    repeated = owner.duplicated(keep=False).to_numpy()
    if not repeated.any():
        return table
    if "session" not in table:
        remedy = "keep one of these scans, or distinguish them by 'session'"
        raise BrioError(f"{where}: participant {owner[repeated].iloc[0]} appears more than once; {remedy}")
    session = table["session"].where(table["session"].notna(), "").astype(str).str.strip()
    empty = repeated & (session == "").to_numpy()
    if empty.any():
        lack = f"column 'session' is empty in row {int(np.flatnonzero(empty)[0]) + 1}"
        raise BrioError(f"{where}: participant {owner[empty].iloc[0]} has several scans, but {lack}")
    for column in (name for name in ("site", "label") if name in table):
        known = table[column].astype(str).mask(table[column].isna() | (table[column].astype(str) == ""))
        several = known.groupby(owner).nunique()
        if (several > 1).any():
            participant = several.index[several > 1][0]
            values = " and ".join(known[owner == participant].dropna().unique()[:2])
            remedy = f"give these scans one {column}, or keep one of them (in an import, with --sessions first)"
            raise BrioError(f"{where}: participant {participant} has scans with {column} {values}; {remedy}")
    names = [name_scan(o, s) if s else o for o, s in zip(owner, session, strict=True)]
    table = table.assign(session=session, **{SCAN_ID: names})
    twice = table[SCAN_ID].duplicated()
    if twice.any():
        row = table[twice].iloc[0]
        scans = f"two scans of session '{row['session']}' ({row[SCAN_ID]})"
        raise BrioError(f"{where}: participant {row['participant_id']} has {scans}; give each scan its own session")
    return table


def read_session_frames(participants: pd.DataFrame) -> list[np.ndarray] | None:
    """Read the frames of the sessions of each scan, if connectomes are averaged over sessions.

    Returns an empty array for a scan of one session, and None if no scan consists of several sessions.
    """
    if SESSION_FRAMES not in participants or participants[SESSION_FRAMES].isna().all():
        return None
    texts = participants[SESSION_FRAMES].where(participants[SESSION_FRAMES].notna(), "").astype(str)
    return [np.array([int(n) for n in text.split("+") if n], dtype=np.int64) for text in texts]


def hash_scan(frames: np.ndarray) -> str:
    """Compute the SHA-256 of the frames of a scan, as stored in a cohort folder.

    Shapes: frames [T, P].
    """
    return hashlib.sha256(np.ascontiguousarray(frames, dtype="<f4").data).hexdigest()


def find_joined_scans(provenance: Mapping[str, Any]) -> dict[str, list[str]]:
    """Find the hashes of the scans from which each joined scan of a cohort was made."""
    inner = provenance.get("cohort")
    stored = (inner if isinstance(inner, Mapping) else provenance).get(JOINED_SCANS)
    return dict(stored) if isinstance(stored, Mapping) else {}


EXTRACTION = ("denoise", "high_pass", "low_pass")


def find_extraction(provenance: Mapping[str, Any]) -> dict[str, Any] | None:
    """Find the options with which the series of a cohort were extracted from images; None for other cohorts."""
    inner = provenance.get("cohort")
    stated = inner if isinstance(inner, Mapping) else provenance
    if stated.get("kind") != "fmriprep":
        return None
    return {key: value for key, value in stated["options"].items() if key in EXTRACTION}


RELATIVE_FLATNESS = 1e-6  # a series is flat when its range is below this share of its largest magnitude

FEWEST_SCANS, FEWEST_ROWS = 6, 12  # fewer scans, rows or columns say nothing about which axis is which
MOST_SCANS, MOST_ROWS = 16, 200  # more are not compared
# How far the agreement of rows must exceed zero, that of columns, and its standard error, for rows to be ROIs.
LEAST_AGREEMENT, TIMES_COLUMNS, TIMES_ERROR = 0.1, 3.0, 5.0


def are_transposed(scans: Sequence[np.ndarray]) -> bool:
    """Return whether scans of one shape have ROIs in rows and frames in columns.

    ROIs are the same in all participants, but frames are not. Correlations between ROIs are therefore similar in any
    two scans, whereas correlations between frames depend only on their distance. The correlations of rows, minus the
    mean at each distance, are compared between scans, and likewise those of columns. Steps from row to row must agree
    too, because a drift makes the first frames alike in all scans, and the last frames as well. Scans of pure noise
    agree in neither respect.

    Shapes: scans [T, P].
    """
    sample = [np.asarray(scan[:MOST_ROWS, :MOST_ROWS], dtype=np.float64) for scan in scans[:MOST_SCANS]]
    if len(sample) < FEWEST_SCANS or min(sample[0].shape) < FEWEST_ROWS or len({len(scan) for scan in scans}) > 1:
        return False
    turned = [scan.T for scan in sample]
    for order, least in ((0, LEAST_AGREEMENT), (1, 0.0)):
        rows, error = _measure_agreement(sample, order)
        if not rows > max(least, TIMES_ERROR * error) or rows < TIMES_COLUMNS * _measure_agreement(turned, order)[0]:
            return False
    return True


def _measure_agreement(scans: Sequence[np.ndarray], order: int) -> tuple[float, float]:
    """Compare which rows, or differences of rows, correlate: mean over pairs of scans, and its standard error."""
    profiles = np.array([_profile_rows(np.diff(scan, order, axis=0)) for scan in scans])
    pairs = (profiles @ profiles.T)[np.triu_indices(len(scans), 1)]
    return float(pairs.mean()), float(pairs.std(ddof=1) / np.sqrt(len(pairs)))


def _profile_rows(scan: np.ndarray) -> np.ndarray:
    """Rank the correlations of the rows of a scan, less their mean at each distance. Unit length."""
    from scipy.stats import rankdata

    x = np.where(np.isfinite(scan), scan, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # an ROI without any finite value
        x = x - np.nanmean(x, axis=0)
        x = x - np.nanmean(x, axis=1, keepdims=True)
        x = np.nan_to_num(x / np.nanstd(x, axis=1, keepdims=True), posinf=0.0, neginf=0.0)
    i, j = np.triu_indices(len(x), 1)
    distance = j - i
    values = (x @ x.T)[i, j]
    n_pairs = np.maximum(np.bincount(distance), 1)
    ranks = rankdata(values - (np.bincount(distance, values) / n_pairs)[distance])[distance < len(x) - 1]
    ranks -= ranks.mean()
    return np.asarray(ranks / max(np.linalg.norm(ranks), 1.0))


# What an array that holds no real numbers contains, by ``dtype.kind``, for messages.
CONTENTS = {"c": "complex numbers", "U": "text", "S": "text", "O": "Python objects", "b": "true and false"}


def convert_frames(scan: Any, where: str) -> np.ndarray:
    """Convert a scan to the data type of cohorts. No value is truncated silently.

    Shapes: scan [T, P]; returns [T, P].
    """
    array = np.ma.asarray(scan) if isinstance(scan, np.ma.MaskedArray) else np.asarray(scan)
    if array.ndim != 2:
        raise BrioError(f"{where}: a scan needs two axes (frames, ROIs), but this one has {array.ndim}")
    if array.dtype.kind not in "fiub":
        content = CONTENTS.get(array.dtype.kind, array.dtype)
        raise BrioError(f"{where}: a scan must contain real numbers, but this one contains {content}")
    if isinstance(array, np.ma.MaskedArray):
        array = np.ma.filled(array.astype(np.result_type(array.dtype, np.float32)), np.nan)
    if array.dtype == np.float32:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        frames = array.astype(np.float32)
    overflow = np.isinf(frames) & np.isfinite(array)
    if overflow.any():
        row, column = np.argwhere(overflow)[0]
        where = f"{where}: frame {row + 1}, column {column + 1}"
        raise BrioError(f"{where}: {array[row, column]} is too large for a signal")
    return frames


def find_live_rois(scan: np.ndarray) -> np.ndarray:
    """Find the ROIs with signal: those whose finite values are not all the same.

    A parcel outside the field of view appears as zeros (C-PAC, DPABI) or as NaN in every frame (XCP-D). In either case
    it is an ROI without signal, and its frames are not dropped.

    Shapes: scan [T, P]; returns [P].
    """
    if len(scan) == 0:
        return np.zeros(scan.shape[1], dtype=bool)
    low, high = scan.min(axis=0), scan.max(axis=0)
    has_gaps = ~(np.isfinite(low) & np.isfinite(high))
    if has_gaps.any():
        columns = scan[:, has_gaps]
        finite = np.isfinite(columns)
        low[has_gaps] = np.where(finite, columns, np.inf).min(axis=0)
        high[has_gaps] = np.where(finite, columns, -np.inf).max(axis=0)
    scale = np.maximum(np.abs(low), np.abs(high))
    with np.errstate(invalid="ignore"):  # an ROI without any finite value: -inf - inf is below every bound
        return high - low > RELATIVE_FLATNESS * np.where(np.isfinite(scale), scale, 0.0)


def find_valid_frames(scan: np.ndarray, alive: np.ndarray) -> np.ndarray:
    """Find the frames in which every ROI with signal is finite.

    Frames with a non-finite value in any such ROI are dropped for all ROIs (paper, appendix on preprocessing).

    Shapes: scan [T, P], alive [P]; returns [T].
    """
    return np.isfinite(scan if alive.all() else scan[:, alive]).all(axis=1)


def clean_scan(scan: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Drop invalid frames and set ROIs without signal to zero.

    Shapes: scan [T, P]; returns frames [T', P], alive [P].
    """
    alive = find_live_rois(scan)
    valid = find_valid_frames(scan, alive)
    frames = scan
    if not valid.all():
        frames = scan[valid]
        alive = alive & find_live_rois(frames)  # signal may lie in the dropped frames alone
    return (frames if alive.all() else np.where(alive, frames, 0.0)).astype(np.float32, copy=False), alive


FC_ONLY = "brio_fc_only"  # column that marks a participants table whose scans are connectomes; its values are 1

Measure = Literal["correlation", "fisher-z"]
MEASURES: tuple[Measure, ...] = ("correlation", "fisher-z")  # what the entries of a connectome may be

_LARGEST = 1.0 - 1e-6  # as psi clips correlations, so that Fisher z stays finite
_LARGEST_FISHER_Z = 20.0  # double precision has no correlation below 1 with a larger one
_LARGEST_OF_PARTIAL = 2.05  # the largest eigenvalue of partial correlations is 2; files have few digits
_LEAST_SHARED_ROIS = 20
_ASYMMETRY = 1e-4  # largest difference of two entries that are one edge; files have few digits


def holds_fc(participants: pd.DataFrame) -> bool:
    """Return whether the scans of a participants table are connectomes without frames."""
    return FC_ONLY in participants.columns


def require_frames(participants: pd.DataFrame, cohort: str, purpose: str, or_else: str = "") -> None:
    """Require that scans have frames; ``or_else`` ends the error with another remedy."""
    if holds_fc(participants):
        remedy = f"import time series ('brio import table'){or_else}"
        raise BrioError(f"{purpose} needs frames, but cohort '{cohort}' contains only connectomes; {remedy}")


def refuse_fc(matrix: np.ndarray, where: str) -> None:
    """Refuse a connectome in place of a time series: a square symmetric matrix, which no time series is.

    The content does not matter: correlations, covariances, precisions, or tangent-space vectors.
    """
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 3:
        return
    scale = np.abs(matrix[np.isfinite(matrix)]).max(initial=0.0)
    if np.allclose(matrix, matrix.T, rtol=0.0, atol=_ASYMMETRY * scale, equal_nan=True):
        remedy = "give time series, or use 'brio import fc' or BrioClassifier(kind='connectome') for correlations"
        raise BrioError(f"{where}: is a square symmetric matrix (such as a connectome), not a time series; {remedy}")


class UnknownMeasureError(BrioError):
    """The content of connectomes is ambiguous; the user must state it, and no scan is left out for this reason."""


def find_measure(matrix: np.ndarray, where: str) -> Measure:
    """Find the measure that a connectome contains, from its diagonal and its largest entry.

    Shapes: matrix [P, P].
    """
    _require_square(matrix, where)
    diagonal, beside = np.diagonal(matrix), matrix[~np.eye(len(matrix), dtype=bool)]
    finite = diagonal[np.isfinite(diagonal)]
    if np.nanmax(np.abs(beside), initial=0.0) > 1 + 1e-6 or np.isposinf(diagonal).any() or (finite > 1.01).any():
        return "fisher-z"
    if len(finite) and np.allclose(finite[finite != 0], 1, atol=1e-3) and finite.any():
        return "correlation"
    problem = "may contain correlations or Fisher z; state which with --measure correlation or --measure fisher-z"
    raise UnknownMeasureError(f"{where}: {problem}")


def convert_fc(matrix: np.ndarray, measure: Measure, where: str) -> np.ndarray:
    """Convert a connectome to Fisher z with a zero diagonal; rows and columns of ROIs without signal become zero.

    Shapes: matrix [P, P]; returns [P, P].
    """
    _require_square(matrix, where)
    values = matrix.astype(np.float64)
    np.fill_diagonal(values, 0.0)
    missing = ~np.isfinite(values)
    np.fill_diagonal(missing, val=True)
    dead = missing.all(axis=1)  # an ROI outside the field of view
    values[dead], values[:, dead] = 0.0, 0.0
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        raise BrioError(
            f"{where}: row {row + 1}, column {column + 1} has no finite value; only whole ROIs may be missing"
        )
    if not np.allclose(values, values.T, atol=_ASYMMETRY):
        raise BrioError(
            f"{where}: is not symmetric; a connectome must have the same value for both directions of an edge"
        )
    if measure == "correlation":
        largest = np.abs(values).max(initial=0.0)
        if largest > 1 + 1e-6:
            raise BrioError(f"{where}: contains {largest:.7g}, which cannot be a correlation; use --measure fisher-z")
        _refuse_partial(values, where)
        values = np.arctanh(np.clip(values, -_LARGEST, _LARGEST))
    elif np.abs(values).max(initial=0.0) > _LARGEST_FISHER_Z:
        raise BrioError(
            f"{where}: contains {np.abs(values).max():.3g}, which is too large for a Fisher z; the "
            "matrix may contain covariances"
        )
    else:
        _refuse_partial(np.tanh(values), where)
    return values.astype(np.float32)


def _refuse_partial(values: np.ndarray, where: str) -> None:
    """Refuse partial correlations [P, P], whose largest eigenvalue is always below 2.

    That of full correlations is the variance of a first component that regions share: 8 and more of 116 real regions.
    Of a few regions, it may be below 2 as well, but no eigenvalue of full correlations is negative.
    """
    alive = values.any(axis=1)
    values, identity = values[alive][:, alive], np.eye(alive.sum())
    if alive.sum() < 2 or not _is_positive_definite((_LARGEST_OF_PARTIAL - 1) * identity - values):
        return
    if len(values) >= _LEAST_SHARED_ROIS or not _is_positive_definite((1 + 1e-3) * identity + values):
        remedy = "compute full correlations (nilearn: ConnectivityMeasure(kind='correlation')), or give the time series"
        raise BrioError(f"{where}: contains partial correlations, since all eigenvalues are below 2; {remedy}")


def _is_positive_definite(matrix: np.ndarray) -> bool:
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


def _require_square(matrix: np.ndarray, where: str) -> None:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        remedy = "a connectome must be square; import time series with 'brio import table'"
        raise BrioError(f"{where}: has shape {matrix.shape}; {remedy}")

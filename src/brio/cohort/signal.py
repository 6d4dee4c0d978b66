"""Convert scans to frames of one type, and find the frames and ROIs that carry signal."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import BrioError

RELATIVE_FLATNESS = 1e-6
"""A series is flat when its range is below this share of its largest magnitude."""

FEWEST_SCANS, FEWEST_ROWS = 6, 12
"""Fewer scans, rows or columns say nothing about which axis is which."""
MOST_SCANS, MOST_ROWS = 16, 200
"""More are not compared."""
LEAST_AGREEMENT, TIMES_COLUMNS, TIMES_ERROR = 0.1, 3.0, 5.0
"""How far the agreement of rows must exceed zero, that of columns, and its standard error, for rows to be ROIs."""


def are_transposed(scans: Sequence[np.ndarray]) -> bool:
    """Return whether scans of one shape have ROIs in rows and frames in columns.

    ROIs are the same in all participants and frames are not: which ROIs correlate is alike in any two scans, which
    frames do is not, beyond how far apart they are. So the correlations of rows are compared between scans, less the
    mean at each distance, and those of columns likewise. Steps from row to row must agree too: a drift makes frames
    alike in all scans, those at the start and those at the end. Scans of noise agree in nothing.

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


def convert_frames(scan: Any, where: str) -> np.ndarray:
    """Convert a scan to the type that cohorts hold. Nothing is cut off silently.

    Shapes: scan [T, P]; returns [T, P].
    """
    array = np.ma.asarray(scan) if isinstance(scan, np.ma.MaskedArray) else np.asarray(scan)
    if array.ndim != 2:
        raise BrioError(f"{where}: a scan needs two axes (frames, ROIs), this one has {array.ndim}")
    if array.dtype.kind not in "fiub":
        raise BrioError(f"{where}: a scan holds real numbers, this one {array.dtype}")
    if isinstance(array, np.ma.MaskedArray):
        array = np.ma.filled(array.astype(np.result_type(array.dtype, np.float32)), np.nan)
    if array.dtype == np.float32:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        frames = array.astype(np.float32)
    overflow = np.isinf(frames) & np.isfinite(array)
    if overflow.any():
        row, column = np.argwhere(overflow)[0]
        raise BrioError(
            f"{where}: frame {row + 1}, column {column + 1}: {array[row, column]} is too large for a signal"
        )
    return frames


def find_live_rois(scan: np.ndarray) -> np.ndarray:
    """Find the ROIs with signal: those whose finite values are not all the same.

    A parcel outside the field of view arrives as zeros (C-PAC, DPABI) or as NaN in every frame (XCP-D). Either way it
    is an ROI without signal and no reason to drop frames.

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

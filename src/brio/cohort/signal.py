"""Convert scans to frames of one type, and find the frames and ROIs that carry signal."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import BrioError

__all__ = ["clean_scan", "convert_frames", "find_live_rois", "find_valid_frames"]

RELATIVE_FLATNESS = 1e-6
"""A series is flat when its range is below this share of its largest magnitude."""


def convert_frames(scan: Any, where: str) -> np.ndarray:
    """Convert a scan to the type that cohorts hold. Nothing is cut off silently.

    Parameters
    ----------
    scan : array_like of real numbers, shape [T, P]
        Masked values become NaN.
    where : str
        File or participant, for error messages.

    Returns
    -------
    ndarray of float32, shape [T, P]

    Raises
    ------
    BrioError
        If it has not two axes, holds complex numbers, text or objects, or a number too large for single precision.

    Examples
    --------
    >>> convert_frames(np.ma.masked_less([[1.0, -9.0]], 0), "p1").tolist()
    [[1.0, nan]]
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

    Parameters
    ----------
    scan : ndarray, shape [T, P]

    Returns
    -------
    ndarray of bool, shape [P]
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

    Parameters
    ----------
    scan : ndarray, shape [T, P]
    alive : ndarray of bool, shape [P]
        ROIs with signal.

    Returns
    -------
    ndarray of bool, shape [T]
    """
    return np.isfinite(scan if alive.all() else scan[:, alive]).all(axis=1)


def clean_scan(scan: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Drop invalid frames and set ROIs without signal to zero.

    Parameters
    ----------
    scan : ndarray, shape [T, P]

    Returns
    -------
    frames : ndarray of float32, shape [T', P]
        The valid frames.
    alive : ndarray of bool, shape [P]
        ROIs with signal in these frames.
    """
    alive = find_live_rois(scan)
    valid = find_valid_frames(scan, alive)
    frames = scan
    if not valid.all():
        frames = scan[valid]
        alive = alive & find_live_rois(frames)  # signal may lie in the dropped frames alone
    return (frames if alive.all() else np.where(alive, frames, 0.0)).astype(np.float32, copy=False), alive

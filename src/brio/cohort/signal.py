"""Which frames and which ROIs of a scan carry signal."""

from __future__ import annotations

import numpy as np

__all__ = ["live_rois", "usable", "valid_frames"]

RELATIVE_FLATNESS = 1e-6
"""A series whose range is below this share of its largest magnitude is flat."""


def live_rois(scan: np.ndarray) -> np.ndarray:
    """ROIs with signal: finite values that are not all the same. Shape [P], bool.

    A parcel outside the field of view arrives as zeros (C-PAC, DPABI) or as NaN in every frame (XCP-D);
    both are ROIs without signal, not reasons to drop frames.
    """
    if len(scan) == 0:
        return np.zeros(scan.shape[1], dtype=bool)
    low, high = scan.min(axis=0), scan.max(axis=0)
    gaps = ~(np.isfinite(low) & np.isfinite(high))
    if gaps.any():
        part = scan[:, gaps]
        finite = np.isfinite(part)
        low[gaps] = np.where(finite, part, np.inf).min(axis=0)
        high[gaps] = np.where(finite, part, -np.inf).max(axis=0)
    scale = np.maximum(np.abs(low), np.abs(high))
    with np.errstate(invalid="ignore"):  # an ROI without any finite value: -inf - inf is below every bound
        return high - low > RELATIVE_FLATNESS * np.where(np.isfinite(scale), scale, 0.0)


def valid_frames(scan: np.ndarray, alive: np.ndarray) -> np.ndarray:
    """Frames in which every ROI that has signal at all is finite. Shape [T], bool.

    Frames with a non-finite value in any such ROI are dropped jointly across ROIs (paper, appendix on preprocessing).
    """
    return np.isfinite(scan if alive.all() else scan[:, alive]).all(axis=1)


def usable(scan: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The valid frames of a scan with flat ROIs set to zero, and which ROIs are alive.

    Returns
    -------
    frames : ndarray, shape [T', P]
    alive : ndarray of bool, shape [P]
    """
    alive = live_rois(scan)
    valid = valid_frames(scan, alive)
    frames = scan
    if not valid.all():
        frames = scan[valid]
        alive = alive & live_rois(frames)  # signal may lie in the dropped frames alone
    return (frames if alive.all() else np.where(alive, frames, 0.0)).astype(np.float32, copy=False), alive

"""Which frames and which ROIs of a scan carry signal."""

from __future__ import annotations

import numpy as np

__all__ = ["live_rois", "usable", "valid_frames"]

RELATIVE_FLATNESS = 1e-6
"""A series whose standard deviation is below this share of its largest magnitude is flat."""


def live_rois(scan: np.ndarray) -> np.ndarray:
    """ROIs with signal: at least two finite values that are not all the same. Shape [P], bool.

    A parcel outside the field of view arrives as zeros (C-PAC, DPABI) or as NaN in every frame (XCP-D);
    both are ROIs without signal, not reasons to drop frames.
    """
    finite = np.isfinite(scan)
    count = finite.sum(axis=0)
    values = np.where(finite, scan, 0.0).astype(np.float64)
    mean = values.sum(axis=0) / np.maximum(count, 1)
    spread = np.sqrt((np.where(finite, values - mean, 0.0) ** 2).sum(axis=0) / np.maximum(count, 1))
    scale = np.abs(values).max(axis=0, initial=0.0)
    return (count >= 2) & (spread > RELATIVE_FLATNESS * np.maximum(scale, np.finfo(np.float32).tiny))


def valid_frames(scan: np.ndarray, alive: np.ndarray) -> np.ndarray:
    """Frames in which every ROI that has signal at all is finite. Shape [T], bool.

    Frames with a non-finite value in any such ROI are dropped jointly across ROIs (paper, appendix on preprocessing).
    """
    return np.isfinite(scan[:, alive]).all(axis=1)


def usable(scan: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The valid frames of a scan with flat ROIs set to zero, and which ROIs are alive.

    Returns
    -------
    frames : ndarray, shape [T', P]
    alive : ndarray of bool, shape [P]
    """
    alive = live_rois(scan)
    frames = scan[valid_frames(scan, alive)]
    if alive.any() and len(frames):
        alive = alive & live_rois(frames)  # signal may lie in the dropped frames alone
    return np.where(alive, frames, 0.0).astype(np.float32, copy=False), alive

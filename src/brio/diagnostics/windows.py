"""Connectomes of a part of each scan: its first, middle or last frames."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from ..cohort import Cohort
from ..cohort.signal import find_live_rois, find_valid_frames
from ..connectome import Connectomes, HarmonisedConnectomes
from ..connectome.connectomes import LEAST_FRAMES
from ..errors import BrioError
from ..settings import require

Placement = Literal["first", "middle", "last"]
PLACEMENTS: tuple[Placement, ...] = get_args(Placement)
"""Where in a scan its window may lie."""


def locate_window(n_frames: int, share: float, placement: Placement) -> slice:
    """Return the frames of a scan that its window holds. Their number is rounded half up."""
    _check_window(share, placement)
    # 1e-9 absorbs rounding errors: 0.29 * 50 is 14.499999999999998
    length = int(np.floor(share * n_frames + 0.5 + 1e-9))
    start = {"first": 0, "middle": (n_frames - length) // 2, "last": n_frames - length}[placement]
    return slice(start, start + length)


def _check_window(share: float, placement: Placement) -> None:
    require(0 < share <= 1, "share", share, "above 0 and at most 1")
    require(placement in PLACEMENTS, "placement", placement, f"one of {', '.join(PLACEMENTS)}")


def estimate_window_connectomes(connectomes: Connectomes, share: float, placement: Placement) -> Connectomes:
    """Estimate the connectomes of a cohort from a share of the valid frames of every scan.

    A window is treated as a full scan: its connectome, its ROIs with signal and its resampled BOLD series are computed
    from its frames only. (An ROI that is flat within the window is without signal there; frames that it alone made
    invalid then count, beyond the share.) Scans keep their positions in the cohort, so
    ``method.predict_margins(fitted, estimate_window_connectomes(...), fold.test)`` applies a fitted run to windows.
    Frames are not copied.
    """
    _check_window(share, placement)
    if share == 1:
        return connectomes
    if isinstance(connectomes, HarmonisedConnectomes):
        raise BrioError("harmonised connectomes cannot be cut to windows; use runs without harmonisation")
    return Connectomes(_cut_cohort(connectomes, share, placement), connectomes.device, connectomes.dtype)


def _cut_cohort(connectomes: Connectomes, share: float, placement: Placement) -> Cohort:
    """A view of the cohort in which every scan is its window."""
    cohort = connectomes.cohort
    starts, lengths = cohort.starts.copy(), cohort.n_frames.copy()
    for i, n in enumerate(connectomes.n_frames):
        window = locate_window(int(n), share, placement)
        first, stop = window.start, window.stop
        if stop - first < LEAST_FRAMES:
            raise BrioError(
                f"participant {cohort.ids[i]}: a share of {share:g} of its {n} frames is {stop - first}, fewer than "
                f"the {LEAST_FRAMES} that a connectome needs; use a larger share or exclude the scan"
            )
        if n < cohort.n_frames[i]:  # from positions among the valid frames to positions in the scan
            scan = cohort.scan(i)
            valid = np.flatnonzero(find_valid_frames(scan, find_live_rois(scan)))
            first, stop = int(valid[first]), int(valid[stop - 1]) + 1
        starts[i], lengths[i] = cohort.starts[i] + first, stop - first
    table = cohort.participants
    if "n_frames" in table:
        table = table.assign(n_frames=lengths)
    fingerprint = hashlib.sha256(f"{cohort.fingerprint} {share} {placement}".encode()).hexdigest()
    return replace(cohort, starts=starts, n_frames=lengths, participants=table, fingerprint=fingerprint, path=None)

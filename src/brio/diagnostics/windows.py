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

__all__ = ["POSITIONS", "Position", "frame_window", "window_connectomes"]

Position = Literal["first", "middle", "last"]
POSITIONS: tuple[Position, ...] = get_args(Position)
"""Where in a scan its window may lie."""


def frame_window(n_frames: int, share: float, position: Position) -> slice:
    """Return the frames of a scan that its window holds.

    Parameters
    ----------
    n_frames : int
        Valid frames of the scan.
    share : float
        Share of them in the window, above 0 and at most 1.
    position : {"first", "middle", "last"}

    Raises
    ------
    BrioError
        If the share or the position is not allowed.

    Examples
    --------
    >>> [frame_window(9, 0.5, position) for position in POSITIONS]
    [slice(0, 5, None), slice(2, 7, None), slice(4, 9, None)]
    """
    require(0 < share <= 1, "share", share, "above 0 and at most 1")
    require(position in POSITIONS, "position", position, f"one of {', '.join(POSITIONS)}")
    length = int(np.floor(share * n_frames + 0.5 + 1e-9))
    start = {"first": 0, "middle": (n_frames - length) // 2, "last": n_frames - length}[position]
    return slice(start, start + length)


def window_connectomes(connectomes: Connectomes, share: float, position: Position) -> Connectomes:
    """Estimate the connectomes of a cohort from a share of the valid frames of every scan.

    A window is treated as a full scan: Psi, ROIs without signal, the number of frames and the BOLD of one length are
    all computed from it. Scans keep their positions in the cohort, so
    ``method.margins(fitted, window_connectomes(...), fold.test)`` applies a fitted run to windows. Frames are not
    copied.

    Parameters
    ----------
    connectomes : Connectomes
        Of full scans, not harmonised.
    share, position
        As for :func:`frame_window`.

    Returns
    -------
    Connectomes
        The same object if the share is 1.

    Raises
    ------
    BrioError
        If the connectomes are harmonised, or a window is too short for a connectome.

    Examples
    --------
    >>> from brio.cohort.simulate import Simulation, simulate
    >>> graphs = Connectomes(simulate(Simulation(n_sites=4, per_class=3, n_rois=8, frames=60)))
    >>> half = window_connectomes(graphs, 0.5, "middle")
    >>> bool((abs(2 * half.n_frames - graphs.n_frames) <= 1).all())
    True
    >>> window_connectomes(graphs, 1.0, "first") is graphs
    True
    """
    frame_window(1, share, position)  # check both values first
    if share == 1:
        return connectomes
    if isinstance(connectomes, HarmonisedConnectomes):
        raise BrioError("harmonised connectomes cannot be cut to windows; use runs without harmonisation")
    return Connectomes(_cut_cohort(connectomes, share, position), connectomes.device, connectomes.dtype)


def _cut_cohort(connectomes: Connectomes, share: float, position: Position) -> Cohort:
    """A view of the cohort in which every scan is its window."""
    cohort = connectomes.cohort
    starts, lengths = cohort.starts.copy(), cohort.n_frames.copy()
    for i, n in enumerate(connectomes.n_frames):
        window = frame_window(int(n), share, position)
        first, stop = window.start, window.stop
        if stop - first < LEAST_FRAMES:
            raise BrioError(
                f"participant {cohort.ids[i]}: a share of {share:g} of its {n} frames is {stop - first}, too few for a "
                "connectome; use a larger share or exclude the scan"
            )
        if n < cohort.n_frames[i]:  # from positions among the valid frames to positions in the scan
            scan = cohort.scan(i)
            valid = np.flatnonzero(find_valid_frames(scan, find_live_rois(scan)))
            first, stop = int(valid[first]), int(valid[stop - 1]) + 1
        starts[i], lengths[i] = cohort.starts[i] + first, stop - first
    table = cohort.participants
    if "n_frames" in table:
        table = table.assign(n_frames=lengths)
    fingerprint = hashlib.sha256(f"{cohort.fingerprint} {share} {position}".encode()).hexdigest()
    return replace(cohort, starts=starts, n_frames=lengths, participants=table, fingerprint=fingerprint, path=None)

"""Connectomes of a part of each scan: its first, middle or last frames."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from ..cohort import Cohort
from ..cohort.signal import find_live_rois, find_valid_frames
from ..connectome import Connectomes
from ..connectome.harmonisation import HarmonisedConnectomes
from ..errors import BrioError
from ..settings import require

__all__ = ["POSITIONS", "Position", "frame_window", "windowed"]

Position = Literal["first", "middle", "last"]
POSITIONS: tuple[Position, ...] = get_args(Position)

_LEAST_FRAMES = 4  # as for a full scan


def frame_window(n_frames: int, share: float, position: Position) -> slice:
    """Which of a scan's frames a window holds.

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


def windowed(connectomes: Connectomes, share: float, position: Position) -> Connectomes:
    """The connectomes of the cohort as if every scan held only a share of its valid frames.

    Everything is made from the window by the same rules as from a full scan: Psi, ROIs without signal in it, the number
    of frames, BOLD of one length. Scans keep their positions, so ``method.margins(fitted, windowed(...), fold.test)``
    asks a fitted run about the windows. A share of 1 gives the connectomes themselves; no frame is copied.

    Examples
    --------
    >>> from brio.cohort.simulate import Simulation, simulate
    >>> graphs = Connectomes(simulate(Simulation(n_sites=4, per_class=3, n_rois=8, frames=60)))
    >>> half = windowed(graphs, 0.5, "middle")
    >>> bool((abs(2 * half.n_frames - graphs.n_frames) <= 1).all()), windowed(graphs, 1.0, "first") is graphs
    (True, True)
    """
    frame_window(1, share, position)  # words first
    if share == 1:
        return connectomes
    if isinstance(connectomes, HarmonisedConnectomes):
        raise BrioError("windows of harmonised connectomes cannot be made; give runs without harmonisation")
    return Connectomes(_cut(connectomes, share, position), connectomes.device, connectomes.dtype)


def _cut(connectomes: Connectomes, share: float, position: Position) -> Cohort:
    """A view of the cohort in which every scan begins and ends with its window."""
    cohort = connectomes.cohort
    starts, lengths = cohort.starts.copy(), cohort.n_frames.copy()
    for i, n in enumerate(connectomes.n_frames):
        window = frame_window(int(n), share, position)
        first, stop = window.start, window.stop
        if stop - first < _LEAST_FRAMES:
            raise BrioError(
                f"participant {cohort.ids[i]}: a share of {share:g} of its {n} frames is {stop - first}, too few for a "
                "connectome; take a larger share or leave the scan out"
            )
        if n < cohort.n_frames[i]:  # frames that the estimator drops do not count
            scan = cohort.scan(i)
            valid = np.flatnonzero(find_valid_frames(scan, find_live_rois(scan)))
            first, stop = int(valid[first]), int(valid[stop - 1]) + 1
        starts[i], lengths[i] = cohort.starts[i] + first, stop - first
    table = cohort.participants
    if "n_frames" in table:
        table = table.assign(n_frames=lengths)
    name = hashlib.sha256(f"{cohort.fingerprint} {share} {position}".encode()).hexdigest()
    return replace(cohort, starts=starts, n_frames=lengths, participants=table, fingerprint=name, path=None)

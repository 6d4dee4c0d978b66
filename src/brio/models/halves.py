"""How much more two halves of a scan differ than its re-estimates say.

Blocks of a few frames keep the fast dynamics of a scan, but not what changes from minute to minute: wakefulness,
motion, drift. So the spread of re-estimates is too small for an interval about other minutes. The halves of source
scans say by how much.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np

from ..cohort import Cohort
from ..cohort.cohort import locate_scans
from ..cohort.sessions import SESSION_FRAMES, read_session_frames
from ..cohort.signal import find_live_rois, find_valid_frames
from ..connectome import Connectomes
from ..connectome.block_length import choose_balanced_subset
from ..connectome.connectomes import LEAST_FRAMES
from .model import Model
from .predict import DEFAULT_REESTIMATES

SCANS = 256


def halve_scans(cohort: Cohort) -> tuple[Cohort, Cohort]:
    """Return the cohort of the first halves of all scans, and that of their second halves.

    Halves of a scan hold equally many valid frames; the last of an odd number is left out. Of a scan that is averaged
    over sessions, they are the halves of all its sessions.
    """
    sessions = read_session_frames(cohort.participants) or [np.empty(0, dtype=np.int64)] * len(cohort)
    parts = [_split_valid_frames(cohort.scan(i), own) for i, own in enumerate(sessions)]
    lengths = np.array([sum(len(part) // 2 for part in own) for own in parts], dtype=np.int64)
    table = cohort.participants.assign(n_frames=lengths)
    if SESSION_FRAMES in table:
        halved = ["+".join(str(len(part) // 2) for part in own) if len(own) > 1 else None for own in parts]
        table[SESSION_FRAMES] = halved
    halves = []
    for second in (False, True):
        frames = np.concatenate([_take_half(part, second) for own in parts for part in own])
        halves.append(
            replace(
                cohort, frames=frames, starts=locate_scans(lengths), n_frames=lengths, participants=table, path=None
            )
        )
    return halves[0], halves[1]


def _split_valid_frames(scan: np.ndarray, sessions: np.ndarray) -> list[np.ndarray]:
    """Valid frames of each session of a scan."""
    valid, ends = find_valid_frames(scan, find_live_rois(scan)), np.cumsum(sessions)[:-1]
    return [part[own] for part, own in zip(np.split(scan, ends), np.split(valid, ends), strict=True)]


def _take_half(frames: np.ndarray, second: bool) -> np.ndarray:
    n = len(frames) // 2
    return frames[n : 2 * n] if second else frames[:n]


def learn_interval_factor(model: Model, connectomes: Connectomes, scans: np.ndarray) -> float:
    """Learn the factor on the spread of re-estimates that makes intervals fit the halves of source scans.

    It is the root mean squared difference of the logits of two halves, each in units of what the re-estimates of the
    first half suggest; at least 1. So it also allows for what a short scan does not tell about its own spread. Scans
    with a half that is too short for a connectome or has no signal are left out; if none remains, the factor is 1, with
    a warning.
    """
    cohort = connectomes.cohort
    chosen = scans[choose_balanced_subset(connectomes.ids[scans], cohort.sites[scans], cohort.labels[scans], SCANS, 0)]
    halves = halve_scans(cohort.select(np.sort(chosen)))
    usable = np.all([[_is_usable(half.scan(i)) for i in range(len(half))] for half in halves], axis=0)
    if not usable.any():
        warnings.warn(
            f"no source scan has two halves of at least {LEAST_FRAMES} usable frames: intervals do not allow for what "
            "changes from minute to minute, and may be too narrow",
            stacklevel=2,
        )
        return 1.0
    first, second = (Connectomes(half.select(usable), connectomes.device) for half in halves)
    logit, resampled = model.compute_logits(first, DEFAULT_REESTIMATES // 2)  # blocks as far apart as of whole scans
    other, _ = model.compute_logits(second)
    expected = 2 * resampled.var(axis=1, ddof=1)
    varied = expected > 0
    if not varied.any():
        return 1.0
    return max(1.0, float(np.sqrt((np.square(other - logit)[varied] / expected[varied]).mean())))


def _is_usable(half: np.ndarray) -> bool:
    return len(half) >= LEAST_FRAMES and bool(find_live_rois(half).any())

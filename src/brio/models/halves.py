"""How much more two halves of a scan differ than its re-estimates say.

Blocks of a few frames keep the fast dynamics of a scan, but not what changes from minute to minute: wakefulness,
motion, drift. So the spread of re-estimates is too small for an interval about other minutes. The halves of source
scans say by how much.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..cohort import Cohort
from ..cohort.cohort import locate_scans
from ..cohort.sessions import SESSION_FRAMES, read_session_frames
from ..connectome import Connectomes
from ..connectome.block_length import choose_balanced_subset
from .model import Model

__all__ = ["halve_scans", "learn_interval_factor"]

SCANS = 256
REESTIMATES = 8


def halve_scans(cohort: Cohort) -> tuple[Cohort, Cohort]:
    """Return the cohort of the first halves of all scans, and that of their second halves.

    Halves of a scan are equally long; the last of an odd number of frames is left out. Of a scan that is averaged over
    sessions, they are the halves of all its sessions.

    Parameters
    ----------
    cohort : Cohort

    Returns
    -------
    first, second : Cohort
    """
    sessions = read_session_frames(cohort.participants) or [np.empty(0, dtype=np.int64)] * len(cohort)
    parts = [np.split(cohort.scan(i), np.cumsum(own)[:-1]) for i, own in enumerate(sessions)]
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


def _take_half(frames: np.ndarray, second: bool) -> np.ndarray:
    n = len(frames) // 2
    return frames[n : 2 * n] if second else frames[:n]


def learn_interval_factor(model: Model, connectomes: Connectomes, scans: np.ndarray) -> float:
    """Learn the factor on the spread of re-estimates that makes intervals fit the halves of source scans.

    It is the root mean squared difference of the logits of two halves, over what the re-estimates of one half let
    expect; at least 1.

    Parameters
    ----------
    model : Model
        Fitted.
    connectomes : Connectomes
        Of the cohort that it was fitted to.
    scans : ndarray of int64
        Positions of its source scans, of which 256 are read, balanced over sites and classes.

    Returns
    -------
    float
    """
    cohort = connectomes.cohort
    chosen = scans[choose_balanced_subset(connectomes.ids[scans], cohort.sites[scans], cohort.labels[scans], SCANS, 0)]
    first, second = (Connectomes(half, connectomes.device) for half in halve_scans(cohort.select(np.sort(chosen))))
    logit, resampled = model.compute_logits(first, REESTIMATES)
    other, _ = model.compute_logits(second)
    expected = 2 * resampled.var(axis=1, ddof=1).mean()
    return max(1.0, float(np.sqrt(np.square(other - logit).mean() / expected))) if expected > 0 else 1.0

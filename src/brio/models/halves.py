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
from ..connectome import Connectomes
from ..connectome.block_length import choose_balanced_subset
from .model import Model

__all__ = ["halve_scans", "learn_interval_factor"]

SCANS = 256
REESTIMATES = 8


def halve_scans(cohort: Cohort) -> tuple[Cohort, Cohort]:
    """Return the cohort of the first halves of all scans, and that of their second halves.

    Halves of a scan are equally long; the last of an odd number of frames is left out.

    Parameters
    ----------
    cohort : Cohort

    Returns
    -------
    first, second : Cohort
    """
    lengths = cohort.n_frames // 2
    halves = []
    for second in (False, True):
        scans = [cohort.scan(i)[n : 2 * n] if second else cohort.scan(i)[:n] for i, n in enumerate(lengths.tolist())]
        table = cohort.participants.assign(n_frames=lengths)
        frames = np.concatenate(scans)
        halves.append(
            replace(
                cohort, frames=frames, starts=locate_scans(lengths), n_frames=lengths, participants=table, path=None
            )
        )
    return halves[0], halves[1]


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

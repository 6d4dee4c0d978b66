"""One margin per participant: scores and tests count people, not scans."""

from __future__ import annotations

import numpy as np

from ..cohort import Cohort
from ..cohort.sessions import average_over_scans, index_participants

__all__ = ["average_margins", "count_participants"]


def average_margins(cohort: Cohort, scans: np.ndarray, margins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Average margins over the scans of each participant, so that each counts once however often they were scanned.

    Two scans of a participant are not independent, so an interval or test over scans would be too narrow. Margins are
    averaged rather than probabilities, as members of an ensemble are.

    Parameters
    ----------
    cohort : Cohort
    scans : ndarray of int64, shape [n]
        Positions in the cohort, for example of the test scans of a fold.
    margins : ndarray, shape [n, ...]

    Returns
    -------
    first : ndarray of int64, shape [m]
        Position in the cohort of the first of these scans of each participant, which has the participant's site and
        label.
    margins : ndarray of float64, shape [m, ...]
        If nobody has several scans, both are as they were.

    Examples
    --------
    >>> scans = [np.random.default_rng(i).normal(size=(20, 3)) for i in range(3)]
    >>> options = {"site": ["A"] * 3, "label": [0, 1, 1], "participant_id": ["p", "q", "q"], "session": [1, 1, 2]}
    >>> first, margin = average_margins(Cohort.from_scans(scans, **options), np.arange(3), np.array([-1.0, 0.0, 3.0]))
    >>> first.tolist(), margin.tolist()
    ([0, 1], [-1.0, 1.5])
    """
    first, member = index_participants(cohort.participant_ids[scans])
    return scans[first], average_over_scans(margins, member)


def count_participants(cohort: Cohort, scans: np.ndarray) -> int:
    """Count the participants of some scans, by position in the cohort (int64, shape [n])."""
    return len(np.unique(cohort.participant_ids[scans]))

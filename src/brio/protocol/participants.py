"""One margin per participant: scores and tests count people, not scans."""

from __future__ import annotations

import numpy as np

from ..cohort import Cohort
from ..cohort.sessions import average_over_scans, index_participants


def average_margins(cohort: Cohort, scans: np.ndarray, margins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Average margins over the scans of each participant, so that each counts once however often they were scanned.

    Two scans of a participant are not independent, so an interval or test over scans would be too narrow. Margins are
    averaged rather than probabilities, as members of an ensemble are.

    Shapes: scans [n], margins [n, ...]; returns first [m], margins [m, ...].
    """
    first, member = index_participants(cohort.participant_ids[scans])
    return scans[first], average_over_scans(margins, member)


def count_participants(cohort: Cohort, scans: np.ndarray) -> int:
    """Count the participants of some scans, by position in the cohort (int64, shape [n])."""
    return len(np.unique(cohort.participant_ids[scans]))

"""Inner folds: splits of the source scans of a fold that choose a penalty or a number of epochs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .. import draws
from ..cohort import Cohort
from ..cohort.sessions import index_participants
from ..errors import BrioError
from .folds import Fold, deal_in_turn

FIFTHS = 5
"""Inner folds over participants, where there are too few source sites to withhold one."""
LEAST_SITES_TO_ROTATE = 3
"""Source sites from which each in turn validates a network: at least two others are left to train on."""


def assign_inner_folds(cohort: Cohort, fold: Fold, least_sites: int, seed: int = 0) -> np.ndarray:
    """Assign every source scan to the inner fold that withholds it.

    Inner folds are the source sites. Where there are fewer than ``least_sites``, they are fifths of the participants,
    stratified by class and site.

    Shapes: returns [n].
    """
    sites, labels = cohort.sites[fold.source], cohort.labels[fold.source]
    names, site_number = np.unique(sites, return_inverse=True)
    if len(names) >= least_sites:
        return site_number
    participants = cohort.participant_ids[fold.source]
    first, _ = index_participants(participants)
    _check_fifths(fold, sites[first], labels[first])
    # dealt class by class, not site by site: then every fifth has both classes as soon as each has five participants
    return deal_in_turn(draws.addresses(participants), labels.astype(str), site_number, FIFTHS, seed)


def _check_fifths(fold: Fold, sites: np.ndarray, labels: np.ndarray) -> None:
    """Raise an error unless every fifth has both classes, and every site both classes without it."""
    where = f"fold {fold.name}: " if fold.test_sites else ""
    least = min(int((labels == c).sum()) for c in (0, 1))
    if least < FIFTHS:
        raise BrioError(
            f"{where}inner folds over participants need at least {FIFTHS} participants of each class among the source "
            f"scans, but one class has {least}; add participants or sites"
        )
    for site in np.unique(sites):
        least = min(int(((sites == site) & (labels == c)).sum()) for c in (0, 1))
        if least < 2:
            raise BrioError(
                f"{where}inner folds over participants need at least 2 of each class at every source site, but site "
                f"{site} has {least} of one class; add participants, or leave the site out"
            )


def make_inner_folds(cohort: Cohort, fold: Fold, seed: int) -> list[Fold]:
    """Make the inner folds that choose the number of epochs of a network without validation scans.

    From three source sites on, each of them validates in turn. With fewer, fifths of the participants do.
    """
    number = assign_inner_folds(cohort, fold, LEAST_SITES_TO_ROTATE, seed)
    folds = []
    for k in range(int(number.max()) + 1):
        validation = fold.source[number == k]
        validation_sites = tuple(np.unique(cohort.sites[validation]).tolist())
        inner = replace(fold, source=fold.source[number != k], validation=validation, test=fold.test[:0])
        folds.append(replace(inner, test_sites=(), validation_sites=validation_sites))
    return folds


def count_inner_folds(cohort: Cohort, fold: Fold) -> int:
    """Count the inner folds of a network that has no validation scans; 0 where the fold has some."""
    if len(fold.validation):
        return 0
    n_sites = len(np.unique(cohort.sites[fold.source]))
    return n_sites if n_sites >= LEAST_SITES_TO_ROTATE else FIFTHS

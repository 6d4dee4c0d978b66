"""Folds: which scans a run is trained on, which choose its checkpoint or penalty, and which test it.

All scans of a participant are on one side of every split: a participant has one site, and k-fold deals participants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .. import draws
from ..cohort import Cohort
from ..cohort.sessions import index_participants
from ..domains import ValidationSites, require_number
from ..errors import BrioError

__all__ = [
    "USUAL_VALIDATION_SITES",
    "Fold",
    "assign_stratified_folds",
    "count_validation_sites",
    "draw_ring_of_sites",
    "leave_one_site_out",
    "make_training_fold",
    "site_stratified_kfold",
]

LEAST_SOURCE_SITES = 2
"""Source sites of a leave-one-site-out fold: with one, nothing would show what differs between sites."""
USUAL_VALIDATION_SITES = 2
"""Validation sites of a fold, where the number of sites allows them."""


MORE = "add participants of the class that is missing"


@dataclass(frozen=True, eq=False)
class Fold:
    """One split of a cohort into source, validation and test scans.

    Attributes
    ----------
    name : str
        The test site (``"NYU"``) or the number of the test fold (``"3"``).
    source, validation, test : ndarray of int64, shapes [n_source], [n_validation], [n_test]
        Positions in the cohort. Every source site has source scans of both classes.
    test_sites, validation_sites : tuple of str
        Sites of the test and validation scans; under k-fold these are source sites too.
    one_class_sites : tuple of str
        Sites without source scans, because their scans outside test and validation are of one class.
    """

    name: str
    source: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    test_sites: tuple[str, ...]
    validation_sites: tuple[str, ...]
    one_class_sites: tuple[str, ...] = ()

    def move_validation_to_source(self, cohort: Cohort) -> Fold:
        """Return the fold with its validation scans moved to the source scans.

        Scans of one-class sites are dropped.

        Parameters
        ----------
        cohort : Cohort
            The cohort that the fold splits.

        Returns
        -------
        Fold
            Without validation scans.
        """
        joining = self.validation[~np.isin(cohort.sites[self.validation], self.one_class_sites)]
        return replace(
            self,
            source=np.sort(np.concatenate([self.source, joining])),
            validation=self.validation[:0],
            validation_sites=(),
        )


def draw_ring_of_sites(sites: np.ndarray, seed: int) -> np.ndarray:
    """Draw an order of the sites from the seed and their names alone.

    Parameters
    ----------
    sites : ndarray of str, shape [n]
        Site of each scan.
    seed : int

    Returns
    -------
    ndarray of str, shape [n_sites]
        Each site once.
    """
    names = np.unique(sites)
    return names[np.argsort(draws.draw_uniform(seed, "ring of sites", draws.addresses(names)), kind="stable")]


def leave_one_site_out(cohort: Cohort, seed: int, validation_sites: int = 2) -> list[Fold]:
    """Make one fold for each site: it is the test site, the next sites in a ring validate, all others are source.

    The ring is drawn from the seed and the names of the sites (:func:`draw_ring_of_sites`), so that the choice does not
    depend on scans, and sites validate equally often if all hold both classes. Sites with one class can be neither
    validation nor source sites, since methods need both classes at each source site. They are still test sites, and the
    sites after them in the ring validate more often.

    Parameters
    ----------
    cohort : Cohort
    seed : int
    validation_sites : int
        Number of validation sites of each fold.

    Returns
    -------
    list of Fold
        In the order of the names of the test sites.

    Raises
    ------
    BrioError
        If too few sites hold both classes.
    """
    sites, labels = cohort.sites, cohort.labels
    ring = draw_ring_of_sites(sites, seed)
    has_both_classes = {str(s): len(np.unique(labels[sites == s])) == 2 for s in ring}
    folds = []
    for k, test in enumerate(ring):
        others = [str(s) for s in np.roll(ring, -k)[1:]]
        usable = [s for s in others if has_both_classes[s]]
        if len(usable) < validation_sites + LEAST_SOURCE_SITES:
            raise BrioError(
                f"test site {test}: {len(usable)} other sites hold both classes, but {validation_sites} are needed for "
                f"validation and at least {LEAST_SOURCE_SITES} as source; {_advise_on_sites(len(usable))}"
            )
        validation, source = usable[:validation_sites], usable[validation_sites:]
        folds.append(
            Fold(
                name=str(test),
                source=np.flatnonzero(np.isin(sites, source)),
                validation=np.flatnonzero(np.isin(sites, validation)),
                test=np.flatnonzero(sites == test),
                test_sites=(str(test),),
                validation_sites=tuple(sorted(validation)),
                one_class_sites=tuple(sorted(set(others) - set(usable))),
            )
        )
    return sorted(folds, key=lambda f: f.name)


def _advise_on_sites(n_others: int) -> str:
    """Say what to do where too few other sites hold both classes."""
    if n_others >= LEAST_SOURCE_SITES:
        return (
            "leave out protocol.validation_sites, which then follows the number of sites, or lower "
            f"protocol.validation_sites to {n_others - LEAST_SOURCE_SITES}, or add sites"
        )
    return "use k-fold (--protocol kfold), which tests new participants of the same sites, or add sites"


def count_validation_sites(n_sites: int) -> int:
    """Count the validation sites of a fold by default, of so many sites with both classes that are not tested.

    Examples
    --------
    >>> count_validation_sites(4), count_validation_sites(3)
    (2, 0)
    """
    return USUAL_VALIDATION_SITES if n_sites >= USUAL_VALIDATION_SITES + LEAST_SOURCE_SITES else 0


def make_training_fold(cohort: Cohort, seed: int, validation_sites: int | str | Sequence[str]) -> Fold:
    """Make a fold without test scans, to train on a whole cohort.

    In the ring of sites (:func:`draw_ring_of_sites`), the first sites with both classes validate; all others with both
    classes are source.

    Parameters
    ----------
    cohort : Cohort
    seed : int
    validation_sites : int, "auto", or sequence of str
        Number of validation sites, or their names. ``auto`` is 2 from four sites with both classes on, else 0.

    Returns
    -------
    Fold
        Named "all".

    Raises
    ------
    BrioError
        If too few sites hold both classes, or a named site does not exist or holds one class.
    """
    sites, labels = cohort.sites, cohort.labels
    ring = draw_ring_of_sites(sites, seed)
    two_class_sites = [str(s) for s in ring if len(np.unique(labels[sites == s])) == 2]
    if validation_sites == "auto":
        validation_sites = count_validation_sites(len(two_class_sites))
    if isinstance(validation_sites, str):
        raise BrioError(f"validation_sites='{validation_sites}': give a number, auto, or a list of names of sites")
    if isinstance(validation_sites, int | float | np.integer | np.floating):  # parameter grids hold numpy's numbers
        require_number(validation_sites, ValidationSites, "validation_sites")
        wanted = int(validation_sites)
        validation = two_class_sites[:wanted]
    else:
        validation = list(validation_sites)
        wanted = len(validation)
        for name in validation:
            if name not in two_class_sites:
                raise BrioError(f"validation site '{name}': no site of the cohort with both classes has that name")
    least = LEAST_SOURCE_SITES if wanted else 1  # one site teaches what inner folds over its participants choose
    if len(two_class_sites) < wanted + least:
        raise BrioError(
            f"{len(two_class_sites)} of the {len(ring)} sites hold both classes, but {wanted} are needed for "
            f"validation and at least {least} as source; "
            + ("leave out validation_sites, which then follows the number of sites, or add sites" if wanted else MORE)
        )
    source = [name for name in two_class_sites if name not in validation]
    return Fold(
        name="all",
        source=np.flatnonzero(np.isin(sites, source)),
        validation=np.flatnonzero(np.isin(sites, validation)),
        test=np.empty(0, dtype=np.int64),
        test_sites=(),
        validation_sites=tuple(sorted(validation)),
        one_class_sites=tuple(sorted(set(ring.tolist()) - set(two_class_sites))),
    )


def assign_stratified_folds(
    ids: np.ndarray, sites: np.ndarray, labels: np.ndarray, n_folds: int, seed: int
) -> np.ndarray:
    """Assign each scan to a fold, stratified by site and class. All scans of a participant go to one fold.

    The participants of each site and class are dealt to the folds in random order. Each cell continues where the one
    before it stopped, so that folds stay equally large even if cells are small.

    Parameters
    ----------
    ids : ndarray of int64, shape [n]
        Addresses of the participants (:func:`brio.draws.addresses`); scans of one participant share theirs.
    sites : ndarray of str, shape [n]
    labels : ndarray of int, shape [n]
    n_folds : int
    seed : int

    Returns
    -------
    ndarray of int64, shape [n]
        Number of the fold, from 0.
    """
    order = draws.draw_uniform(seed, "k-fold order", ids)
    first, member = index_participants(ids)
    is_first = np.zeros(len(ids), dtype=bool)
    is_first[first] = True
    fold = np.empty(len(ids), dtype=np.int64)
    dealt = 0
    for site in np.unique(sites):
        for label in np.unique(labels):
            members = np.flatnonzero((sites == site) & (labels == label) & is_first)
            members = members[np.argsort(order[members], kind="stable")]
            fold[members] = (dealt + np.arange(len(members))) % n_folds
            dealt += len(members)
    return fold[first][member]


def site_stratified_kfold(cohort: Cohort, seed: int, n_folds: int = 10, validation_folds: int = 2) -> list[Fold]:
    """Make folds stratified by site and class.

    Each fold is the test fold once, the next ``validation_folds`` validate, all others are source. With ten folds,
    source, validation and test scans are 7:2:1. Scans of a site with one class among the source scans are dropped from
    them.

    Parameters
    ----------
    cohort : Cohort
    seed : int
        Draws the folds.
    n_folds : int
    validation_folds : int
        Folds that choose the checkpoint or the penalty of each fold.

    Returns
    -------
    list of Fold
        Named "1", "2", ...

    Raises
    ------
    BrioError
        If there are too few scans, or no source site holds both classes.
    """
    sites, labels = cohort.sites, cohort.labels
    fold_of_scan = assign_stratified_folds(draws.addresses(cohort.participant_ids), sites, labels, n_folds, seed)
    if len(np.unique(fold_of_scan)) < n_folds:
        raise BrioError(
            f"protocol.n_folds={n_folds}: {len(cohort)} scans are too few for so many folds; lower it, for instance "
            "--set protocol.n_folds=5"
        )
    folds = []
    for k in range(n_folds):
        validation = [(k + 1 + v) % n_folds for v in range(validation_folds)]
        in_source = ~np.isin(fold_of_scan, [k, *validation])
        usable = [s for s in np.unique(sites) if len(np.unique(labels[in_source & (sites == s)])) == 2]
        if not usable:
            raise BrioError(
                f"fold {k + 1}: none of its source sites holds both classes, at least one is needed; {MORE}"
            )
        folds.append(
            Fold(
                name=str(k + 1),
                source=np.flatnonzero(in_source & np.isin(sites, usable)),
                validation=np.flatnonzero(np.isin(fold_of_scan, validation)),
                test=np.flatnonzero(fold_of_scan == k),
                test_sites=tuple(np.unique(sites[fold_of_scan == k]).tolist()),
                validation_sites=tuple(np.unique(sites[np.isin(fold_of_scan, validation)]).tolist()),
                one_class_sites=tuple(sorted(set(np.unique(sites).tolist()) - {str(s) for s in usable})),
            )
        )
    return folds

"""Folds: leave one site out with validation sites, site-stratified k-fold, and inner folds over source sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Never

import numpy as np
import pandas as pd
from msgspec import Meta

from .. import draws
from ..cohort import Cohort
from ..cohort.scans import index_participants
from ..errors import BrioError, nearest
from ..formatting import format_count
from ..settings import ValidationSites, check_domains, require, require_number

LEAST_SOURCE_SITES = 2
"""Smallest number of source sites in a leave-one-site-out fold: with one, sites could not be compared."""
USUAL_VALIDATION_SITES = 2
"""Validation sites of a fold if the number of sites allows them."""
FOLD_RULE = 2
"""Version of the rule that assigns participants to the folds of k-fold, which results state; jobs without it followed
the first, under which the classes were not balanced."""

MORE = "add participants of the missing class"


@dataclass(frozen=True, eq=False)
class Fold:
    """One split of a cohort into source, validation and test scans.

    Shapes: source, validation, test [n_source], [n_validation], [n_test].
    """

    name: str  # the test site ("NYU") or the number of the test fold ("3")
    source: np.ndarray  # positions in the cohort. Every source site has source scans of both classes
    validation: np.ndarray
    test: np.ndarray
    test_sites: tuple[str, ...]  # sites of the test and validation scans; under k-fold these are source sites too
    validation_sites: tuple[str, ...]
    one_class_sites: tuple[str, ...] = ()

    def move_validation_to_source(self, cohort: Cohort) -> Fold:
        """Return the fold with its validation scans moved to the source scans.

        Scans of one-class sites are dropped.
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

    Shapes: sites [n]; returns [n_sites].
    """
    names = np.unique(sites)
    return names[np.argsort(draws.draw_uniform(seed, "ring of sites", draws.addresses(names)), kind="stable")]


def find_two_class_sites(cohort: Cohort) -> list[str]:
    """Return the names of the sites that hold both classes, sorted."""
    sites, labels = cohort.sites, cohort.labels
    return [str(s) for s in np.unique(sites) if len(np.unique(labels[sites == s])) == 2]


def count_validation_sites(n_sites: int) -> int:
    """Return the default number of validation sites of a fold, given the number of other sites with both classes."""
    return USUAL_VALIDATION_SITES if n_sites >= USUAL_VALIDATION_SITES + LEAST_SOURCE_SITES else 0


def leave_one_site_out(cohort: Cohort, seed: int, validation_sites: int = 2) -> list[Fold]:
    """Make one fold per site: it is the test site, the next sites in a ring validate, and all others are source sites.

    The ring is drawn from the seed and the names of the sites (:func:`draw_ring_of_sites`), so that the choice does not
    depend on scans, and sites validate equally often if all hold both classes. Sites with one class can be neither
    validation nor source sites, since methods need both classes at each source site. They are still test sites, and the
    sites after them in the ring validate more often.
    """
    two_class_sites = find_two_class_sites(cohort)
    ring = draw_ring_of_sites(cohort.sites, seed)
    folds = []
    for k, test in enumerate(ring):
        usable = [str(s) for s in np.roll(ring, -k)[1:] if s in two_class_sites]
        if len(usable) < validation_sites + LEAST_SOURCE_SITES:
            advice = "use k-fold (--protocol kfold), which tests new participants of the same sites, or add sites"
            if len(usable) >= LEAST_SOURCE_SITES:
                lower = f"lower it to {len(usable) - LEAST_SOURCE_SITES}, or add sites"
                advice = f"leave out protocol.validation_sites, {lower}"
            counts = f"{format_count(len(usable), 'other site has', 'other sites have')} both classes"
            _refuse_too_few_sites(
                f"test site {test}: {counts}, but a fold", validation_sites, LEAST_SOURCE_SITES, advice
            )
        folds.append(_split_sites(cohort, str(test), usable[validation_sites:], usable[:validation_sites], [str(test)]))
    return sorted(folds, key=lambda f: f.name)


def _split_sites(cohort: Cohort, name: str, source: list[str], validation: list[str], test: list[str]) -> Fold:
    """Make a fold of whole sites; those in none of the lists have one class."""
    sites = cohort.sites
    rest = set(sites.tolist()) - {*source, *validation, *test}
    return Fold(
        name=name,
        source=np.flatnonzero(np.isin(sites, source)),
        validation=np.flatnonzero(np.isin(sites, validation)),
        test=np.flatnonzero(np.isin(sites, test)),
        test_sites=tuple(test),
        validation_sites=tuple(sorted(validation)),
        one_class_sites=tuple(sorted(rest)),
    )


def _refuse_too_few_sites(counts: str, validation: int, source: int, advice: str) -> Never:
    parts = [format_count(validation, "validation site"), f"at least {format_count(source, 'source site')}"]
    raise BrioError(f"{counts} needs {' and '.join(parts if validation else parts[1:])}; {advice}")


def make_training_fold(cohort: Cohort, seed: int, validation_sites: int | str | Sequence[str]) -> Fold:
    """Make a fold without test scans, to train on a whole cohort.

    In the ring of sites (:func:`draw_ring_of_sites`), the first sites with both classes validate; all others with both
    classes are source sites.
    """
    two_class, ring = find_two_class_sites(cohort), draw_ring_of_sites(cohort.sites, seed)
    two_class_sites = [str(s) for s in ring if s in two_class]
    if validation_sites == "auto":
        validation_sites = count_validation_sites(len(two_class_sites))
    if isinstance(validation_sites, str):
        raise BrioError(f"validation_sites='{validation_sites}': expected a number, auto or a list of site names")
    if isinstance(validation_sites, int | float | np.integer | np.floating):  # parameter grids hold numpy's numbers
        require_number(validation_sites, ValidationSites, "validation_sites")
        wanted = int(validation_sites)
        validation = two_class_sites[:wanted]
    else:
        validation = [str(name) for name in validation_sites]
        wanted = len(validation)
        for name in validation:
            if name not in two_class_sites:
                raise BrioError(
                    f"validation site '{name}': the cohort has no site of this name with both classes; "
                    f"{nearest(name, two_class)}"
                )
    least = LEAST_SOURCE_SITES if wanted else 1  # one site teaches what inner folds over its participants choose
    if len(two_class_sites) < wanted + least:
        advice = "use fewer validation sites, or add sites" if wanted else MORE
        counts = f"sites with both classes: {len(two_class_sites)} of {len(ring)}, but a model"
        _refuse_too_few_sites(counts, wanted, least, advice)
    return _split_sites(cohort, "all", [name for name in two_class_sites if name not in validation], validation, [])


def deal_in_turn(ids: np.ndarray, sites: np.ndarray, labels: np.ndarray, n_folds: int, seed: int) -> np.ndarray:
    """Deal participants to folds in turn, site by site and class by class, each cell in random order.

    Each cell continues where the one before it stopped: folds are equally large, and balanced in each cell and over the
    classes of a site, but not over the sites of a class. All scans of a participant go to one fold.

    Shapes: ids [n], sites [n], labels [n]; returns [n].
    """
    first, member = index_participants(ids)
    order = np.lexsort((draws.draw_uniform(seed, "k-fold order", ids[first]), labels[first], sites[first]))
    fold = np.empty(len(first), dtype=np.int64)
    fold[order] = np.arange(len(first)) % n_folds
    return fold[member]


def assign_stratified_folds(
    ids: np.ndarray, sites: np.ndarray, labels: np.ndarray, n_folds: int, seed: int
) -> np.ndarray:
    """Assign participants to folds that are balanced by site, class and size as well as possible.

    The numbers of participants in two folds differ by at most one: in all, at each site, of each class, and of each
    class at each site. All scans of a participant go to one fold, so numbers of scans may differ by more.

    Participants are edges of a graph between sites and classes, folds its colours: such a colouring exists for every
    graph of this kind. It is found by dividing the edges of two folds anew (:func:`_halve`) while their numbers differ
    by more than one in some group. This makes no group less balanced, so the procedure ends.

    Shapes: returns [n].
    """
    first, member = index_participants(ids)
    order = np.argsort(draws.draw_uniform(seed, "k-fold order", ids[first]), kind="stable")
    n_labels = len(np.unique(labels))
    site, label = (np.unique(values[first][order], return_inverse=True)[1] for values in (sites, labels))
    cell = site * n_labels + label
    groups = [np.zeros_like(site), label, site, cell]
    fold = deal_in_turn(ids, sites, labels, n_folds, seed)[first][order]
    while True:
        cells = (np.bincount(g * n_folds + fold, minlength=(int(g.max()) + 1) * n_folds) for g in groups)
        counts = np.concatenate(list(cells)).reshape(-1, n_folds)  # [groups, folds]
        uneven = int(np.argmax(np.ptp(counts, axis=1)))
        most, fewest = int(counts[uneven].argmax()), int(counts[uneven].argmin())
        if counts[uneven, most] - counts[uneven, fewest] <= 1:
            break
        both = np.flatnonzero((fold == most) | (fold == fewest))
        fold[both] = np.where(_halve(site[both], label[both]), most, fewest)
    number = np.argsort(draws.draw_uniform(seed, "k-fold numbers", np.arange(n_folds)), kind="stable")
    assigned = np.empty(len(first), dtype=np.int64)
    assigned[order] = number[fold]
    return assigned[member]


def _halve(site: np.ndarray, label: np.ndarray) -> np.ndarray:
    """Divide the edges of a bipartite graph into two sets whose numbers differ by at most one in every group.

    Of parallel edges every second one is taken. What is left is walked in trails that run until no edge goes on, first
    from vertices of odd degree, and every second edge of a trail is taken; trails of odd length begin in turn with an
    edge that is taken and with one that is not.

    Shapes: site, label [n]; returns [n].
    """
    taken = np.zeros(len(site), dtype=bool)
    single: dict[tuple[int, int], int] = {}
    for edge, ends in enumerate(zip(site.tolist(), (-1 - label).tolist(), strict=True)):
        if ends in single:
            taken[single.pop(ends)] = True
        else:
            single[ends] = edge
    ways: dict[int, dict[int, int]] = {}  # vertex -> the vertex at the other end of an edge -> the edge
    for (here, there), edge in single.items():
        ways.setdefault(here, {})[there] = edge
        ways.setdefault(there, {})[here] = edge
    odd = [vertex for vertex in ways if len(ways[vertex]) % 2]
    surplus = 0
    for start in [*odd, *ways]:
        trail, here = [], start
        while ways[here]:
            there, edge = next(iter(ways[here].items()))
            trail.append(edge)
            del ways[here][there], ways[there][here]
            here = there
        begins = surplus <= 0
        taken[trail[0 if begins else 1 :: 2]] = True
        surplus += (len(trail) % 2) * (1 if begins else -1)
    return taken


def site_stratified_kfold(cohort: Cohort, seed: int, n_folds: int = 10, validation_folds: int = 2) -> list[Fold]:
    """Make folds that are balanced by site and class and in size, see :func:`assign_stratified_folds`.

    Each fold is the test fold once, the next ``validation_folds`` validate, all others are source. With ten folds,
    source, validation and test scans are 7:2:1. Scans of a site with one class among the source scans are dropped from
    them.
    """
    sites, labels = cohort.sites, cohort.labels
    fold_of_scan = assign_stratified_folds(draws.addresses(cohort.participant_ids), sites, labels, n_folds, seed)
    if len(np.unique(fold_of_scan)) < n_folds:
        few = f"the cohort has only {format_count(len(np.unique(cohort.participant_ids)), 'participant')}"
        remedy = "lower it with --set protocol.n_folds=N"
        raise BrioError(f"protocol.n_folds={n_folds}: {few}, but every fold needs one; {remedy}")
    folds = []
    for k in range(n_folds):
        validation = [(k + 1 + v) % n_folds for v in range(validation_folds)]
        in_source = ~np.isin(fold_of_scan, [k, *validation])
        usable = [s for s in np.unique(sites) if len(np.unique(labels[in_source & (sites == s)])) == 2]
        if not usable:
            raise BrioError(f"fold {k + 1}: none of its source sites has both classes; {MORE}")
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


FIFTHS = 5
"""Inner folds over participants, used if there are too few source sites to withhold one."""
LEAST_SITES_TO_ROTATE = 3
"""From this number of source sites, each in turn validates a network, and at least two others train it."""


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
    needing = (f"fold {fold.name}: " if fold.test_sites else "") + "inner folds over participants need at least"
    counts = pd.crosstab(sites[first], labels[first]).reindex(columns=[0, 1], fill_value=0)
    least = int(counts.sum().min())
    if least < FIFTHS:  # every fifth has both classes
        needed = f"{FIFTHS} participants of each class among the source scans, but one class has {least}"
        raise BrioError(f"{needing} {needed}; add participants or sites")
    if counts.min(axis=None) < 2:  # and every site has both classes without it
        site, least = counts.min(axis=1).idxmin(), counts.min(axis=None)
        needed = f"2 participants of each class at every source site, but site {site} has {least} of one class"
        raise BrioError(f"{needing} {needed}; add participants, or leave the site out")
    # dealt class by class, not site by site: then every fifth has both classes as soon as each has five participants
    return deal_in_turn(draws.addresses(participants), labels.astype(str), site_number, FIFTHS, seed)


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
    """Count the inner folds of a network that has no validation scans; 0 if the fold has some."""
    if len(fold.validation):
        return 0
    n_sites = len(np.unique(cohort.sites[fold.source]))
    return n_sites if n_sites >= LEAST_SITES_TO_ROTATE else FIFTHS


PROTOCOLS = ("loso", "kfold")
"""Names of the protocols: leave one site out, and k-fold stratified by site and class."""
LEAST_SITES = LEAST_SOURCE_SITES + 1
"""Sites with both classes that leave-one-site-out needs: a test site and two source sites."""
SITES_WITH_VALIDATION = LEAST_SITES + USUAL_VALIDATION_SITES
"""Number of sites with both classes from which folds have validation sites by default."""


@dataclass(frozen=True)
class ProtocolSettings:
    """How a cohort is split.

    Attributes
    ----------
    validation_sites : int or "auto"
        Number of validation sites of a leave-one-site-out fold, on which the checkpoint or the penalty is chosen. With
        0, all other sites are source sites, and inner folds choose penalties and numbers of epochs. ``auto`` is 2 if
        five or more sites have both classes, otherwise 0.
    n_folds : int
        Number of folds of the k-fold protocol.
    validation_folds : int
        Number of folds of the k-fold protocol on which the checkpoint or the penalty is chosen.
    """

    validation_sites: ValidationSites | Literal["auto"] = "auto"
    n_folds: Annotated[int, Meta(ge=3, le=1_000)] = 10
    validation_folds: Annotated[int, Meta(ge=1, le=998)] = 2

    def __post_init__(self) -> None:
        check_domains(self, "protocol.")
        least = self.validation_folds + 2  # one test fold and at least one source fold
        require(self.n_folds >= least, "protocol.n_folds", self.n_folds, f"at least {least}")


def settle_protocol(settings: ProtocolSettings, cohort: Cohort, protocol: str) -> ProtocolSettings:
    """Return the settings with the number of validation sites that ``auto`` means for a cohort.

    Labels matter only in that they determine which sites have both classes.
    """
    if settings.validation_sites != "auto":
        return settings
    n = USUAL_VALIDATION_SITES
    if protocol == "loso":
        n = count_validation_sites(len(find_two_class_sites(cohort)) - 1)
    return replace(settings, validation_sites=n)


def list_fold_names(cohort: Cohort, protocol: str, settings: ProtocolSettings) -> list[str]:
    """List the names that folds of a protocol have, without making them."""
    if protocol == "loso":
        return np.unique(cohort.sites).tolist()
    return [str(k + 1) for k in range(settings.n_folds)]


def make_folds(cohort: Cohort, protocol: str, seed: int, settings: ProtocolSettings) -> list[Fold]:
    """Make the folds of a protocol."""
    settled = settle_protocol(settings, cohort, protocol)
    if protocol == "loso":
        return leave_one_site_out(cohort, seed, int(settled.validation_sites))
    if protocol == "kfold":
        return site_stratified_kfold(cohort, seed, settled.n_folds, settled.validation_folds)
    raise BrioError(f"protocol '{protocol}' is unknown; use {' or '.join(PROTOCOLS)}")


def describe_allowed_protocols(cohort: Cohort) -> list[str]:
    """State which protocols the number of sites with both classes allows, and how models are then chosen."""
    n = len(find_two_class_sites(cohort))
    sites = f"{n} site{'s have' if n != 1 else ' has'} both classes"
    if n >= SITES_WITH_VALIDATION:
        how = f"leave one site out, with {USUAL_VALIDATION_SITES} validation sites in every fold"
        return [f"{sites}: {how} (the default)"]
    if n >= LEAST_SITES:
        how = (
            "leave one site out, without validation sites "
            f"(the default with fewer than {SITES_WITH_VALIDATION} of these sites)"
        )
        return [f"{sites}: {how}", "penalties and numbers of epochs are chosen by inner folds of the source scans"]
    if n >= 1:
        how = "use --protocol kfold to test new participants of the same sites"
        return [f"{sites}: too few to leave one out (at least {LEAST_SITES} are needed); {how}"]
    return ["no site has both classes, so no method can be trained; add participants of the missing class"]

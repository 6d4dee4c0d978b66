"""Protocols by name, their settings, and what the number of sites allows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np

from ..cohort import Cohort
from ..domains import Domain, ValidationSites
from ..errors import BrioError
from ..settings import check_domains, require
from .folds import (
    LEAST_SOURCE_SITES,
    USUAL_VALIDATION_SITES,
    Fold,
    count_validation_sites,
    leave_one_site_out,
    site_stratified_kfold,
)

__all__ = [
    "LEAST_SITES",
    "PROTOCOLS",
    "ProtocolSettings",
    "describe_allowed_protocols",
    "find_two_class_sites",
    "list_fold_names",
    "make_folds",
    "settle_protocol",
]

PROTOCOLS = ("loso", "kfold")
"""Names of the protocols: leave one site out, and k-fold stratified by site and class."""
LEAST_SITES = LEAST_SOURCE_SITES + 1
"""Sites with both classes that leave-one-site-out needs: a test site and two source sites."""
SITES_WITH_VALIDATION = LEAST_SITES + USUAL_VALIDATION_SITES
"""Sites with both classes from which on folds have validation sites by default."""


@dataclass(frozen=True)
class ProtocolSettings:
    """How a cohort is split.

    Attributes
    ----------
    validation_sites : int or "auto"
        Number of validation sites of a leave-one-site-out fold; they choose the checkpoint or the penalty. With 0, all
        other sites are source: penalties and numbers of epochs are then chosen by inner folds. ``auto`` is 2 where five
        or more sites hold both classes, else 0.
    n_folds : int
        Folds of the k-fold protocol.
    validation_folds : int
        Folds of the k-fold protocol that choose the checkpoint or the penalty.
    """

    validation_sites: ValidationSites | Literal["auto"] = "auto"
    n_folds: Annotated[int, Domain(3, 1_000)] = 10
    validation_folds: Annotated[int, Domain(1, 998)] = 2

    def __post_init__(self) -> None:
        check_domains(self, "protocol.")
        least = self.validation_folds + 2  # one test fold and at least one source fold
        require(self.n_folds >= least, "protocol.n_folds", self.n_folds, f"at least {least}")


def find_two_class_sites(cohort: Cohort) -> list[str]:
    """Return the names of the sites that hold both classes, sorted."""
    sites, labels = cohort.sites, cohort.labels
    return [str(s) for s in np.unique(sites) if len(np.unique(labels[sites == s])) == 2]


def settle_protocol(settings: ProtocolSettings, cohort: Cohort, protocol: str) -> ProtocolSettings:
    """Return the settings with the number of validation sites that ``auto`` comes to on a cohort.

    Of labels only this counts: which sites hold both classes.

    Parameters
    ----------
    settings : ProtocolSettings
    cohort : Cohort
    protocol : {"loso", "kfold"}
        K-fold has no validation sites; there ``auto`` becomes the usual number, which nothing reads.

    Returns
    -------
    ProtocolSettings
        ``validation_sites`` is a number.

    Examples
    --------
    >>> scans = [np.random.default_rng(k).normal(size=(20, 3)) for k in range(10)]
    >>> cohort = Cohort.from_scans(scans, site=list("AABBCCDDEE"), label=[0, 1] * 5)
    >>> settle_protocol(ProtocolSettings(), cohort, "loso").validation_sites
    2
    >>> settle_protocol(ProtocolSettings(), cohort.select(cohort.sites != "E"), "loso").validation_sites
    0
    """
    if settings.validation_sites != "auto":
        return settings
    n = USUAL_VALIDATION_SITES
    if protocol == "loso":
        n = count_validation_sites(len(find_two_class_sites(cohort)) - 1)
    return replace(settings, validation_sites=n)


def list_fold_names(cohort: Cohort, protocol: str, settings: ProtocolSettings) -> list[str]:
    """List the names that folds of a protocol have, without making them.

    Parameters
    ----------
    cohort : Cohort
    protocol : {"loso", "kfold"}
    settings : ProtocolSettings

    Returns
    -------
    list of str
        Sites, or numbers of folds.
    """
    if protocol == "loso":
        return np.unique(cohort.sites).tolist()
    return [str(k + 1) for k in range(settings.n_folds)]


def make_folds(cohort: Cohort, protocol: str, seed: int, settings: ProtocolSettings) -> list[Fold]:
    """Make the folds of a protocol.

    Parameters
    ----------
    cohort : Cohort
    protocol : {"loso", "kfold"}
        :func:`leave_one_site_out` or :func:`site_stratified_kfold`.
    seed : int
    settings : ProtocolSettings

    Returns
    -------
    list of Fold

    Raises
    ------
    BrioError
        If the protocol is unknown or the cohort too small for it.
    """
    settled = settle_protocol(settings, cohort, protocol)
    if protocol == "loso":
        return leave_one_site_out(cohort, seed, int(settled.validation_sites))
    if protocol == "kfold":
        return site_stratified_kfold(cohort, seed, settled.n_folds, settled.validation_folds)
    raise BrioError(f"protocol '{protocol}' is unknown; use {' or '.join(PROTOCOLS)}")


def describe_allowed_protocols(cohort: Cohort) -> list[str]:
    """Say which protocols the number of sites with both classes allows, and how models are chosen then.

    Parameters
    ----------
    cohort : Cohort
        The scans that are used.

    Returns
    -------
    list of str
        Lines of text.
    """
    n = len(find_two_class_sites(cohort))
    sites = f"{n} site{'s hold' if n != 1 else ' holds'} both classes"
    if n >= SITES_WITH_VALIDATION:
        how = f"leave one site out, with {USUAL_VALIDATION_SITES} validation sites in every fold"
        return [f"{sites}: {how} (the default)"]
    if n >= LEAST_SITES:
        return [
            f"{sites}: leave one site out, without validation sites (the default; these need {SITES_WITH_VALIDATION})",
            "penalties and numbers of epochs are chosen by inner folds of the source scans",
        ]
    if n >= 1:
        return [
            f"{sites}: too few to leave one out (at least {LEAST_SITES}); k-fold tests new participants of the same "
            "sites: --protocol kfold",
        ]
    return ["no site holds both classes: nothing can be learned within a site; add participants of the other class"]

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

PROTOCOLS = ("loso", "kfold")
"""Names of the protocols: leave one site out, and k-fold stratified by site and class."""
LEAST_SITES = LEAST_SOURCE_SITES + 1
"""Sites with both classes that leave-one-site-out needs: a test site and two source sites."""
SITES_WITH_VALIDATION = LEAST_SITES + USUAL_VALIDATION_SITES
"""Sites with both classes from which on folds have validation sites by default."""


@dataclass(frozen=True)
class ProtocolSettings:
    """How a cohort is split."""

    validation_sites: ValidationSites | Literal["auto"] = "auto"
    n_folds: Annotated[int, Domain(3, 1_000)] = 10  # folds of the k-fold protocol
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
    """Say which protocols the number of sites with both classes allows, and how models are chosen then."""
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

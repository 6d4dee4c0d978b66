"""What would go wrong in a run later, found before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..cohort import Cohort
from ..cohort.covariates import read_covariates
from ..connectome import HarmonisationRule, require_covariates
from ..errors import BrioError, nearest
from ..methods import find_method
from ..protocol import Fold

if TYPE_CHECKING:
    from ..training import Method

__all__ = ["check_folds", "check_harmonise", "check_method"]


def check_folds(names: Sequence[str], known: Sequence[str]) -> None:
    """Check names of folds.

    Parameters
    ----------
    names : sequence of str
        As a user gave them.
    known : sequence of str
        Those that there are.

    Raises
    ------
    BrioError
        If one is unknown; the message lists all.
    """
    for name in names:
        if name not in known:
            hint = nearest(name, known)
            folds = "" if hint.startswith("known") else f" The folds are {', '.join(known)}."
            raise BrioError(f"fold '{name}' is unknown; {hint}{folds}")


def check_method(method: Method, cohort: Cohort, folds: Sequence[Fold], harmonise: HarmonisationRule) -> None:
    """Check that a method can be run on a cohort, its folds and its harmonisation.

    Parameters
    ----------
    method : Method
    cohort : Cohort
        The scans that are used.
    folds : Folds
        Of all runs of the job.
    harmonise : HarmonisationRule

    Raises
    ------
    BrioError
        If it cannot.
    """
    from ..training.inputs import check_needs

    name, facts = method.name, method.facts
    check_needs(cohort, method.needs, method.settings, f"method '{name}'")
    if harmonise.kind != "none" and ("bold" in method.needs or find_method(name).control):
        raise BrioError(f"method '{name}' does not read connectomes alone; harmonise.kind is not for it")
    if harmonise.kind != "none" and facts.refits:
        raise BrioError(
            f"method '{name}': refit=true trains on validation sites, to which harmonisation is not fitted; "
            "leave out one of refit and harmonise.kind"
        )
    if method.needs_validation and not all(len(fold.validation) for fold in folds):
        hint = f" ({facts.setting_without_validation} does without)" if facts.setting_without_validation else ""
        raise BrioError(
            f"protocol.validation_sites=0: method '{name}' chooses its model by validation scans{hint}; "
            "set protocol.validation_sites to 1 or more"
        )


def check_harmonise(cohort: Cohort, harmonise: HarmonisationRule, folds: Sequence[Fold]) -> None:
    """Check that sites can be harmonised.

    Parameters
    ----------
    cohort : Cohort
    harmonise : HarmonisationRule
    folds : Folds
        Of all runs of the job.

    Raises
    ------
    BrioError
        If they cannot.
    """
    if harmonise.kind == "none":
        if harmonise != HarmonisationRule():
            raise BrioError("harmonise.unseen and harmonise.covariates need harmonise.kind=combat or residualise")
        return
    if harmonise.covariates:
        values = read_covariates(cohort, harmonise.covariate_names, "harmonise.covariates")
        for fold in folds:
            require_covariates(values[fold.source], harmonise, f"fold {fold.name}")
    for fold in folds if harmonise.unseen == "raise" else ():
        unseen = sorted(set(cohort.sites.tolist()) - set(cohort.sites[fold.source].tolist()))
        if unseen:
            raise BrioError(
                f"fold {fold.name}: ComBat is not fitted to site {unseen[0]} (harmonise.unseen=raise); choose "
                "identity, pooled or unlabelled (transductive), or a protocol in which every site is a source site"
            )

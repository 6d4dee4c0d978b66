"""What would go wrong in a run later, found before anything is written."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..cohort import Cohort
from ..cohort.covariates import read_covariates
from ..cohort.given_fc import holds_fc
from ..connectome import HarmonisationRule, require_covariates
from ..errors import BrioError, find_nearest
from ..methods import find_method, list_methods, make_method
from ..protocol import (
    LEAST_SITES,
    USUAL_VALIDATION_SITES,
    Fold,
    assign_inner_folds,
    find_two_class_sites,
    make_inner_folds,
)
from ..protocol.folds import LEAST_SOURCE_SITES
from .spec import JobSpec

if TYPE_CHECKING:
    from ..training import Method


def check_folds(names: Sequence[str], known: Sequence[str]) -> None:
    """Check names of folds."""
    for name in names:
        if name not in known:
            close = find_nearest(name, known)
            folds = f"known: {', '.join(sorted(known))}"
            if close is not None:
                folds = f"did you mean '{close}'? The folds are {', '.join(known)}."
            raise BrioError(f"fold '{name}' is unknown; {folds}")


def check_method(
    method: Method,
    cohort: Cohort,
    folds: Sequence[Fold],
    harmonise: HarmonisationRule,
    too_few_sites: bool = False,
) -> None:
    """Check that a method can be run on a cohort, its folds and its harmonisation."""
    from ..training.inputs import check_needs

    name, facts = method.name, method.facts
    check_frames(method, cohort)
    check_needs(cohort, method.needs, method.settings, f"method '{name}'")
    if harmonise.kind != "none" and ("bold" in method.needs or find_method(name).control):
        raise BrioError(f"method '{name}' does not read connectomes alone; harmonise.kind is not for it")
    if harmonise.kind != "none" and facts.refits:
        raise BrioError(
            f"method '{name}': refit=true trains on validation sites, to which harmonisation is not fitted; "
            "leave out one of refit and harmonise.kind"
        )
    check_choice(method, cohort, folds, too_few_sites)


def check_choice(
    method: Method, cohort: Cohort, folds: Sequence[Fold], too_few_sites: bool = False, final: bool = False
) -> None:
    """Check that folds have what a method chooses its model by: validation scans, or scans for inner folds."""
    if all(len(fold.validation) for fold in folds):
        if not method.needs_validation or method.facts.setting_without_validation:
            for fold in folds:
                assign_inner_folds(cohort, fold, least_sites=2)
        return
    reason = explain_missing_validation(method, len(find_two_class_sites(cohort)), too_few_sites, final)
    if reason:
        raise BrioError(reason)
    for fold in folds:
        if method.facts.chooses_epochs_by_inner_folds:
            make_inner_folds(cohort, fold, 0)
        else:
            assign_inner_folds(cohort, fold, least_sites=2)


def explain_missing_validation(method: Method, n_sites: int, too_few_sites: bool, final: bool = False) -> str:
    """Say that a method cannot be run without validation sites, and what to do; empty where it can."""
    setting = method.facts.setting_without_validation
    if not method.needs_validation or method.facts.chooses_epochs_by_inner_folds:
        return ""
    least = LEAST_SOURCE_SITES if final else LEAST_SITES
    hint = f" ({setting} does without)" if setting else ""
    why = "validation_sites=0 leaves none"
    if too_few_sites:
        needed = least + USUAL_VALIDATION_SITES
        why = f"{n_sites} sites with both classes are too few for validation sites ({needed} are needed)"
    ways_out = [f"add --set {setting}" if setting else "choose another method"]
    if n_sites > least:
        ways_out.append(f"set protocol.validation_sites to 1{'' if n_sites == least + 1 else f' to {n_sites - least}'}")
    ways_out += [] if final else ["use --protocol kfold"]
    return f"method '{method.name}' chooses its model by validation scans{hint}, but {why}; {', or '.join(ways_out)}"


def check_sites(cohort: Cohort, spec: JobSpec) -> None:
    """Check that enough sites hold both classes to leave one out."""
    sites = find_two_class_sites(cohort)
    if spec.protocol != "loso" or len(sites) >= LEAST_SITES:
        return
    needed = f"leaving one site out needs at least {LEAST_SITES} sites with both classes"
    if not sites:
        raise BrioError(f"{needed}, but there is none; add participants of the class that is missing")
    folder = spec.cohort.name if isinstance(spec.cohort, Cohort) else str(spec.cohort)
    methods = [word for name in spec.methods for word in ("--method", name)]
    settings = {name: value for name, value in spec.settings.items() if name != "protocol.validation_sites"}
    options = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    options += [*(["--label", spec.label] if spec.label else []), *([] if spec.exclude else ["--keep-all"])]
    words = ["brio", "run", folder, *methods, *options, "--protocol", "kfold", "--seeds", str(spec.seeds)]
    command = shlex.join([*words, "--out", f"{Path(folder).name}-kfold"])
    there = f"there {'is' if len(sites) == 1 else 'are'} {len(sites)} ({', '.join(sites)})"
    raise BrioError(
        f"{needed}, but {there}; add sites, or test new participants of the same sites by k-fold: {command}"
    )


def check_frames(method: Method, cohort: Cohort) -> None:
    """Check that a method needs no frames where a cohort holds connectomes alone."""
    purpose = _explain_frames(method)
    if not holds_fc(cohort.participants) or not purpose:
        return
    names = [entry.name for entry in list_methods() if not entry.fixed]
    work = [name for name in names if not _explain_frames(make_method(name))]
    raise BrioError(
        f"method '{method.name}' needs the frames of scans for {purpose}, but cohort '{cohort.name}' holds one "
        f"connectome per participant; import the time series, or choose among {', '.join(work)}"
    )


def _explain_frames(method: Method) -> str:
    """What a method needs frames for; empty where connectomes are enough."""
    reasons = [
        "BOLD series" if "bold" in method.needs else "",
        "re-estimating connectomes" if method.facts.reestimates is not None else "",
        method.facts.frames_for,
    ]
    return " and ".join(filter(None, reasons))


def check_harmonise(cohort: Cohort, harmonise: HarmonisationRule, folds: Sequence[Fold]) -> None:
    """Check that sites can be harmonised."""
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

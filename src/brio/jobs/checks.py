"""What a job will need: runs, memory, disk. What cannot fit is refused before anything is written."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cohort import Cohort
from ..cohort.covariates import read_covariates
from ..cohort.scans import holds_fc
from ..connectome import HarmonisationRule, require_covariates
from ..device import ComputeDevice, find_free_memory
from ..errors import BrioError, find_nearest
from ..formatting import format_time
from ..machine import format_bytes, require_disk, require_memory
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
from ..settings import find_numbers
from .spec import JobSpec

if TYPE_CHECKING:
    from ..results import RunStore
    from ..training import Method, NeuralMethod


MOST_RUNS = 100_000
"""Runs that one job may have; a plan with more would take hours to write."""
_RECORD = 20_000
"""Bytes of a record and its folder."""
_COPIES = 6
"""Copies of the parameters of a network in training: values, gradients, two averages of AdamW, the best, a spare."""
_PASS = 12
"""Matrices that a re-estimate needs for its frames and one pass of a model."""


def estimate_memory(method: Method, cohort: Cohort) -> float:
    """Estimate the memory that one run of a method needs at least, connectomes included.

    A network that is larger than by default needs more in proportion to the outputs of its layers. The networks of a
    user's own file are not measured in advance.
    """
    reestimates = (method.facts.reestimates or 0) * cohort.n_rois**2 * 4.0 * _PASS
    own = _estimate_bold(method, cohort) + method.estimate_fit_bytes(len(cohort), cohort.n_rois)
    return _estimate_connectomes(cohort) + own + max(_estimate_step(method, cohort), reestimates)


def _estimate_connectomes(cohort: Cohort) -> float:
    """Memory of all connectomes, and of one more matrix of each scan, such as its logarithm."""
    return 2.0 * len(cohort) * cohort.n_rois**2 * 4.0


def _estimate_bold(method: Method, cohort: Cohort) -> float:
    """Memory of the windows of all scans; 0 where a method reads no BOLD."""
    settings = method.settings
    if "bold" not in method.needs or not hasattr(settings, "bold_windows"):
        return 0.0
    return 4.0 * len(cohort) * settings.bold_windows * settings.bold_frames * cohort.n_rois


def _estimate_step(method: Method, cohort: Cohort) -> float:
    """Memory of an optimisation step and of the parameters; 0 for closed-form models."""
    from ..training import NeuralMethod

    if not isinstance(method, NeuralMethod):
        return 0.0
    n_sites = len(set(cohort.sites.tolist()))
    graph = cohort.n_rois**2 * 4.0
    step = 2 * n_sites * method.settings.cell_batch * graph * method.estimate_peak_matrices()
    if find_method(method.name).file or not _is_enlarged(method.settings):
        return step
    parameters, outputs = _measure(method, cohort.n_rois, n_sites)
    _, usual = _measure(type(method)(), cohort.n_rois, n_sites)
    return step * max(1.0, outputs / usual) + 4.0 * _COPIES * parameters


def _is_enlarged(settings: Any) -> bool:
    """Whether a whole number of the settings is above its default; only then is measuring worth its second."""
    default = type(settings)()
    values = [(getattr(settings, name), getattr(default, name)) for name in find_numbers(type(settings))]
    return any(isinstance(now, int) and isinstance(usual, int) and now > usual for now, usual in values)


def _measure(method: NeuralMethod, n_rois: int, n_sites: int) -> tuple[int, int]:
    """Count the parameters of a network, and the outputs of its layers, without making it."""
    import torch

    from ..training.contract import InputShape

    shape = InputShape(n_rois, n_sites, getattr(method.settings, "bold_frames", 0))
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        network = method.network(shape)
    parameters = list(network.parameters())
    return sum(p.numel() for p in parameters), sum(p.shape[0] for p in parameters if p.dim() > 1)


def check_memory(methods: Iterable[Method], cohort: Cohort, device: ComputeDevice) -> None:
    """Check that connectomes, and one run of each method, fit into the memory of their device."""
    for method in methods:
        needed = {device: _estimate_connectomes(cohort), method.place_fit(device): estimate_memory(method, cohort)}
        what = f"method '{method.name}' with these settings, on {len(cohort)} scans of {cohort.n_rois} ROIs, needs"
        advice = "choose smaller settings, or an atlas with fewer ROIs"
        for place, n_bytes in needed.items():
            require_memory(n_bytes, what, advice, find_free_memory(place.torch_device))


def check_number_of_runs(configurations: Mapping[str, int], n_folds: int, n_seeds: int) -> None:
    """Check that a job has not more runs than :data:`MOST_RUNS`."""
    n_runs = sum(configurations.values()) * n_folds * n_seeds
    if n_runs > MOST_RUNS:
        raise BrioError(
            f"this job would have {n_runs:,} runs ({len(configurations)} methods, {n_folds} folds, {n_seeds} seeds); "
            f"at most {MOST_RUNS:,} are possible: choose fewer seeds, methods or configurations"
        )


def state_needs(runs: Mapping[str, Method], cohort: Cohort, folder: Path, records_only: bool) -> str:
    """Say what a job needs, and check that it fits on the disk."""
    needed = max(estimate_memory(method, cohort) for method in {id(one): one for one in runs.values()}.values())
    disk = len(runs) * (_RECORD + (0 if records_only else 16 * cohort.n_rois**2))
    number = f"{len(runs)} run{'s' if len(runs) != 1 else ''}"
    advice = "choose another --out, or store no weights (--records-only)"
    require_disk(disk, folder, f"{number} need{'s' if len(runs) == 1 else ''}", advice)
    return (
        f"{number}: {format_bytes(needed)} of memory or more for scans and models, about {format_bytes(disk)} on disk"
    )


def describe_rest(runs: Mapping[str, Method], store: RunStore) -> str:
    """Say how long the unfinished runs of a job take, if each takes as long as the finished ones of its method."""
    finished: dict[str, list[str]] = {}
    left: dict[str, int] = {}
    for key, method in runs.items():
        if key in store:
            finished.setdefault(method.name, []).append(key)
        else:
            left[method.name] = left.get(method.name, 0) + 1
    if not left or not left.keys() <= finished.keys():
        return ""
    total = 0.0
    for name, n in left.items():
        seconds = [float(store.read_record(key).row.seconds or 0.0) for key in finished[name]]
        total += n * sum(seconds) / len(seconds)
    return f"the others take about {format_time(total)}, if as long as these"


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
    from ..training.contract import check_needs

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

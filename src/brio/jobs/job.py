"""A job that is ready to be planned: its specification, the audited cohort, the device and the resources that it needs.

A job that does not fit into memory or on the disk, or that a method cannot be run on, is refused before anything is
written.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import protocol
from ..cohort import Audit, Cohort, audit
from ..cohort.cohort import find_filled
from ..cohort.covariates import COVARIATE_COLUMNS, describe_labels, list_known_covariates, read_covariates
from ..cohort.scans import holds_fc
from ..connectome import HarmonisationRule, require_covariates
from ..console import Progress, silent
from ..device import ComputeDevice, find_free_memory, resolve_device
from ..errors import BrioError, find_nearest
from ..formatting import format_count, format_time, join_names
from ..machine import format_bytes, require_disk, require_memory
from ..methods import find_method, list_methods, make_method
from ..protocol import Fold, ProtocolSettings, find_two_class_sites
from ..settings import find_numbers
from .spec import JobSpec, Shard, settle_without_validation

if TYPE_CHECKING:
    import torch

    from ..connectome import Connectomes
    from ..results import RunStore
    from ..training import Method, NeuralMethod


Say = Callable[[str], None]
"""Called with each message of a job to its user."""


def ignore(line: str) -> None:
    """Discard the line."""


@dataclass(frozen=True, eq=False)
class Job:
    """A specification and what it means for its cohort."""

    spec: JobSpec
    cohort_before_exclusions: Cohort  # the whole cohort, as it was given
    cohort: Cohort  # the scans that are used
    audit: Audit | None  # None where its exclusions are not applied
    device: ComputeDevice
    estimate: Callable[[], Connectomes]  # estimates the connectomes, once for all jobs that share it
    progress: Progress = silent
    say: Say = ignore

    @property
    def connectomes(self) -> Connectomes:
        """The connectomes of the scans that are used, estimated when they are first needed."""
        return self.estimate()

    @property
    def shares_folder(self) -> bool:
        """Whether other processes write to the folder of the job at the same time."""
        return self.spec.engine is not None and self.spec.engine.shares_folder

    @property
    def shard(self) -> Shard | None:
        """The shard of the job that its engine trains; None where it trains all."""
        return None if self.spec.engine is None else self.spec.engine.shard

    def with_spec(self, **changes: Any) -> Job:
        """Return the same job with some fields of its specification changed; the cohort is not audited again."""
        return dataclasses.replace(self, spec=dataclasses.replace(self.spec, **changes))

    @cached_property
    def protocol_settings(self) -> ProtocolSettings:
        """Settings of the protocol, with the number of validation sites that this cohort allows."""
        return protocol.folds.settle_protocol(self.spec.protocol_settings, self.cohort, self.spec.protocol)

    @property
    def too_few_sites(self) -> bool:
        """Whether its folds have no validation sites because the cohort has too few sites for them."""
        return self.spec.protocol_settings.validation_sites == "auto" and not self.protocol_settings.validation_sites

    def settings_of(self, name: str) -> dict[str, Any]:
        """Return the given settings of a method; with too few sites, also the one with which it needs no validation."""
        given = self.spec.settings_of(name)
        return settle_without_validation(name, given) if self.too_few_sites else given

    @property
    def protocol_identity(self) -> dict[str, Any]:
        """What the names of its folds mean: the protocol and, for k-fold, the scans that it deals out and the rule."""
        identity = {"name": self.spec.protocol, "settings": dataclasses.asdict(self.protocol_settings)}
        if self.spec.protocol == "loso":
            return identity
        return identity | {"fingerprint": self.cohort.fingerprint, "fold_rule": protocol.FOLD_RULE}

    def missing_inputs(self, name: str) -> str:
        """Return what the cohort lacks for a method, in words; empty where it lacks nothing."""
        from ..training.contract import check_needs

        method = make_method(name, self.settings_of(name))
        try:
            check_frames(method, self.cohort)
            check_needs(self.cohort, method, f"method '{name}'")
        except BrioError as missing:
            return str(missing)
        n_sites = len(find_two_class_sites(self.cohort))
        return explain_missing_validation(method, n_sites, too_few_sites=True) if self.too_few_sites else ""

    def runnable_methods(self, names: Sequence[str]) -> list[str]:
        """Return those methods that the cohort has all inputs for, and say what it lacks for the others."""
        missing = {name: self.missing_inputs(name) for name in names}
        for words in filter(None, missing.values()):
            self.say(f"left out: {words}")
        return [name for name, words in missing.items() if not words]

    def announce_exclusions(self) -> None:
        """Report what made the labels, which scans are used and why others are not."""
        self.say(describe_labels(self.cohort_before_exclusions))
        if left_out := self.spec.leave_out:
            assert isinstance(self.spec.cohort, Cohort)
            n_scans = int(np.isin(self.spec.cohort.sites, left_out).sum())
            self.say(f"left out: {', '.join(left_out)} ({format_count(n_scans, 'scan')})")
        if self.audit is None:
            self.say(f"{len(self.cohort_before_exclusions):,} scans; no exclusions were applied")
            return
        exclusions = self.audit.explain_exclusions()
        ending = "; the audit excludes:" if exclusions else ""
        self.say(f"{len(self.cohort):,} of {len(self.cohort_before_exclusions):,} scans are used{ending}")
        for participant, reasons in exclusions.items():
            self.say(f"  {participant}: {'; '.join(reasons)}")

    def announce_inputs(self, methods: Sequence[Method]) -> None:
        """Report which covariates are used by methods that use those that there are, unless these are all complete."""
        known, n_scans = list_known_covariates(self.cohort), len(self.cohort)
        for method in {method.name: method for method in methods if not method.needs_all}.values():
            remarks = []
            for name in (name for name in COVARIATE_COLUMNS if name in method.needs):
                n_filled = int(find_filled(self.cohort.participants, COVARIATE_COLUMNS[name]).sum())
                if name not in known:
                    remarks.append(f"not {name}: {'the labels are computed from it' if n_filled else 'unknown'}")
                elif n_filled < n_scans:
                    gaps = format_count(n_scans - n_filled, "scan")
                    remarks.append(f"{name} is unknown for {gaps}, which get the mean of the source scans")
            if remarks:
                used = join_names([name for name in known if name in method.needs])
                self.say(f"method '{method.name}' uses {used} ({'; '.join(remarks)})")

    def announce_protocol(self, methods: Sequence[Method]) -> None:
        """Report how models are chosen if the cohort has too few sites for validation sites."""
        if not self.too_few_sites:
            return
        n = len(find_two_class_sites(self.cohort))
        self.say(f"{n} sites have both classes, too few for validation sites; models are chosen only on source scans:")
        names_by_choice: dict[str, list[str]] = {}
        for name, method in {method.name: method for method in methods}.items():
            given = self.spec.settings_of(name)
            applied = [f"{key}={value}" for key, value in self.settings_of(name).items() if key not in given]
            choice = ", ".join(applied) or "inner folds choose the settings"
            if method.facts.chooses_epochs_by_inner_folds:
                choice = "inner folds choose the number of epochs; each run is then trained on all source scans"
            names_by_choice.setdefault(choice, []).append(name)
        for choice, names in names_by_choice.items():
            self.say(f"  {', '.join(names)}: {choice}")


def open_cohort(spec: JobSpec) -> tuple[JobSpec, Cohort]:
    """Open the cohort of a job, and check its labels and the folds that the job names; needs no torch.

    Returns the specification with the opened cohort, and that cohort with the labels that the job asks for.
    """
    loaded = spec.cohort if isinstance(spec.cohort, Cohort) else Cohort.load(spec.cohort)
    cohort = spec.relabel(loaded)
    cohort.require_labels()
    check_folds(spec.folds or (), protocol.list_fold_names(cohort, spec.protocol, spec.protocol_settings))
    return spec if loaded is spec.cohort else dataclasses.replace(spec, cohort=loaded), cohort


def prepare_job(spec: JobSpec, progress: Progress = silent, say: Say = ignore, methods: Iterable[Method] = ()) -> Job:
    """Load and audit the cohort of a job and find its device."""
    spec, whole = open_cohort(spec)
    device = resolve_device(spec.device)
    check_memory(methods, whole, device)  # before the audit, which takes longer
    assert isinstance(spec.cohort, Cohort)
    for one in (spec.cohort, *spec.companions):
        one.verify()
    audited = audit(whole, spec.audit_rules, list(map(spec.relabel, spec.companions))) if spec.exclude else None
    used = whole if audited is None else whole.select(audited.keep)
    if len(used) == 0:
        raise BrioError(f"{whole.name}: the audit excludes every scan; see 'brio audit', or change its rules")

    return Job(spec, whole, used, audited, device, estimate_once(used, device.torch_device), progress, say)


def estimate_once(cohort: Cohort, device: torch.device) -> Callable[[], Connectomes]:
    """Return a function that estimates the connectomes of a cohort when it is first called."""

    @cache
    def estimate() -> Connectomes:
        from ..connectome import Connectomes

        return Connectomes(cohort, device)

    return estimate


_RECORD = 20_000
"""Bytes of a record and its folder."""
_COPIES = 6
"""Copies of the parameters of a network in training: values, gradients, two averages of AdamW, the best, a spare."""
_PASS = 12
"""Matrices that a re-estimate needs for its frames and one pass of a model."""


def estimate_memory(method: Method, cohort: Cohort) -> float:
    """Estimate the memory that one run of a method needs at least, connectomes included.

    A network larger than the default needs more, in proportion to the outputs of its layers. The networks of a
    user's own file are not measured in advance.
    """
    settings, bold = method.settings, 0.0
    if "bold" in method.needs and hasattr(settings, "bold_windows"):  # the windows of all scans
        bold = 4.0 * len(cohort) * settings.bold_windows * settings.bold_frames * cohort.n_rois
    reestimates = (method.facts.reestimates or 0) * cohort.n_rois**2 * 4.0 * _PASS
    own = bold + method.estimate_fit_bytes(len(cohort), cohort.n_rois)
    return _estimate_connectomes(cohort) + own + max(_estimate_step(method, cohort), reestimates)


def _estimate_connectomes(cohort: Cohort) -> float:
    """Memory of all connectomes, and of one more matrix of each scan, such as its logarithm."""
    return 2.0 * len(cohort) * cohort.n_rois**2 * 4.0


def _estimate_step(method: Method, cohort: Cohort) -> float:
    """Memory of an optimisation step and of the parameters; 0 for closed-form models."""
    from ..training import NeuralMethod

    if not isinstance(method, NeuralMethod):
        return 0.0
    n_sites = len(set(cohort.sites.tolist()))
    graph = cohort.n_rois**2 * 4.0
    step = 2 * n_sites * method.settings.cell_batch * graph * method.estimate_peak_matrices()
    default = type(method.settings)()
    pairs = [(getattr(method.settings, name), getattr(default, name)) for name in find_numbers(type(default))]
    is_enlarged = any(isinstance(now, int) and isinstance(usual, int) and now > usual for now, usual in pairs)
    if find_method(method.name).file or not is_enlarged:  # only then is measuring worth its second
        return step
    parameters, outputs = _measure(method, cohort.n_rois, n_sites)
    _, usual = _measure(type(method)(), cohort.n_rois, n_sites)
    return step * max(1.0, outputs / usual) + 4.0 * _COPIES * parameters


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
        what = f"method '{method.name}' with these settings, on {len(cohort):,} scans of {cohort.n_rois:,} ROIs, needs"
        advice = "choose settings that need less memory, or an atlas with fewer ROIs"
        for place, n_bytes in needed.items():
            require_memory(n_bytes, what, advice, find_free_memory(place.torch_device))


def state_needs(runs: Mapping[str, Method], cohort: Cohort, folder: Path, records_only: bool) -> str:
    """Report the resources that a job needs, and check that it fits on the disk."""
    needed = max(estimate_memory(method, cohort) for method in {id(one): one for one in runs.values()}.values())
    disk = len(runs) * (_RECORD + (0 if records_only else 16 * cohort.n_rois**2))
    number = format_count(len(runs), "run")
    advice = "choose another --out or, with 'brio run' and 'brio tune', store no weights (--records-only)"
    require_disk(disk, folder, f"{number} need{'s' if len(runs) == 1 else ''}", advice)
    memory = f"at least {format_bytes(needed)} of memory for scans and models"
    return f"{number}: {memory}, about {format_bytes(disk)} on disk"


def describe_rest(runs: Mapping[str, Method], store: RunStore) -> str:
    """Describe how long the unfinished runs of a job take; empty if none is left, or a method has no finished one."""
    seconds, unknown = store.estimate_rest({key: method.name for key, method in runs.items()})
    if unknown or not seconds:
        return ""
    return f"the remaining runs will take about {format_time(seconds)} at the rate so far"


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
    final: bool = False,
) -> None:
    """Check that a method can be run on a cohort, its folds and its harmonisation; ``final`` for one of all sites."""
    from ..training.contract import check_needs

    name, facts = method.name, method.facts
    check_frames(method, cohort)
    check_needs(cohort, method, f"method '{name}'")
    if harmonise.kind != "none" and ("bold" in method.needs or find_method(name).control):
        raise BrioError(
            f"method '{name}' reads inputs that are not connectomes and cannot be harmonised; leave out the method or "
            "harmonise.kind"
        )
    if harmonise.kind != "none" and facts.refits and any(len(fold.validation) for fold in folds):
        reason = "refit=true trains on validation scans, to which the harmonisation is not fitted"
        raise BrioError(f"method '{name}': {reason}; leave out refit or harmonise.kind")
    # folds have what a method chooses its model by: validation scans, or scans for inner folds
    validated = all(len(fold.validation) for fold in folds)
    if validated and method.needs_validation and not facts.setting_without_validation:
        return
    reason = explain_missing_validation(method, len(find_two_class_sites(cohort)), too_few_sites, final)
    if reason and not validated:
        raise BrioError(reason)
    for fold in folds:
        if facts.chooses_epochs_by_inner_folds and not validated:
            protocol.make_inner_folds(cohort, fold, 0)
        else:
            protocol.folds.assign_inner_folds(cohort, fold, least_sites=2)


def explain_missing_validation(method: Method, n_sites: int, too_few_sites: bool, final: bool = False) -> str:
    """Explain that a method cannot be run without validation sites, and what to do; empty if it can be."""
    setting = method.facts.setting_without_validation
    if not method.needs_validation or method.facts.chooses_epochs_by_inner_folds:
        return ""
    least = protocol.folds.LEAST_SOURCE_SITES if final else protocol.LEAST_SITES
    hint = f" ({setting} needs none)" if setting else ""
    why = "validation_sites=0 leaves none"
    if too_few_sites:
        needed = least + protocol.USUAL_VALIDATION_SITES
        why = (
            f"by default, validation sites are used only if at least {needed} sites have both classes (found {n_sites})"
        )
    ways_out = [f"add --set {setting}" if setting else "choose another method"]
    if n_sites > least:
        most = "" if n_sites == least + 1 else f" or more (at most {n_sites - least})"
        ways_out.append(f"set protocol.validation_sites to 1{most}")
    ways_out += [] if final else ["use --protocol kfold"]
    return f"method '{method.name}' chooses its model on validation scans{hint}, but {why}; {', or '.join(ways_out)}"


def check_sites(cohort: Cohort, spec: JobSpec) -> None:
    """Check that enough sites hold both classes to leave one out."""
    sites = find_two_class_sites(cohort)
    if spec.protocol != "loso" or len(sites) >= protocol.LEAST_SITES:
        return
    needed = f"leaving one site out needs at least {protocol.LEAST_SITES} sites with both classes"
    if not sites:
        raise BrioError(f"{needed}, but there are none; add participants of the missing class")
    folder = str(spec.cohort.path or spec.cohort.name if isinstance(spec.cohort, Cohort) else spec.cohort)
    methods = [word for name in spec.methods for word in ("--method", name)]
    settings = {name: value for name, value in spec.settings.items() if name != "protocol.validation_sites"}
    options = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    options += [*(["--label", spec.label] if spec.label else []), *([] if spec.exclude else ["--keep-all"])]
    words = ["brio", "run", folder, *methods, *options, "--protocol", "kfold", "--seeds", str(spec.seeds)]
    command = shlex.join([*words, "--out", f"{Path(folder).name}-kfold"])
    there = f"there {'is' if len(sites) == 1 else 'are'} {len(sites)} ({', '.join(sites)})"
    remedy = f"add sites, or test new participants of the same sites with --protocol kfold: {command}"
    raise BrioError(f"{needed}, but {there}; {remedy}")


def check_frames(method: Method, cohort: Cohort) -> None:
    """Check that a method needs no frames where a cohort holds connectomes alone."""
    purpose = _explain_frames(method)
    if not holds_fc(cohort.participants) or not purpose:
        return
    names = [entry.name for entry in list_methods() if not entry.fixed]
    work = [name for name in names if not _explain_frames(make_method(name))]
    problem = f"method '{method.name}' needs the frames of scans for {purpose}, but cohort '{cohort.name}' has none"
    raise BrioError(f"{problem}; import the time series, or use one of {', '.join(work)}")


def _explain_frames(method: Method) -> str:
    """What a method needs frames for; empty if connectomes are enough."""
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
            raise BrioError(
                "harmonise.unseen needs harmonise.kind=combat, and harmonise.covariates needs harmonise.kind=combat or "
                "residualise"
            )
        return
    if harmonise.covariates:
        values = read_covariates(cohort, harmonise.covariate_names, "harmonise.covariates", "leave out this covariate")
        for fold in folds:
            require_covariates(values[fold.source], harmonise, f"fold {fold.name}")
    for fold in folds if harmonise.unseen == "raise" else ():
        unseen = sorted(set(cohort.sites.tolist()) - set(cohort.sites[fold.source].tolist()))
        if unseen:
            problem = f"fold {fold.name}: ComBat is not fitted to site {unseen[0]} (harmonise.unseen=raise)"
            remedy = "set harmonise.unseen to identity, pooled or unlabelled (transductive)"
            raise BrioError(f"{problem}; {remedy}")

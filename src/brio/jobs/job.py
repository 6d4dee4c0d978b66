"""A job that is ready to be planned: its specification, the audited cohort and the device."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from ..cohort import Audit, Cohort, audit
from ..cohort.covariates import describe_question
from ..console import Progress, silent
from ..device import ComputeDevice, resolve_device
from ..errors import BrioError
from ..methods import make_method
from ..protocol import FOLD_RULE, ProtocolSettings, find_two_class_sites, list_fold_names, settle_protocol
from .checks import check_folds, check_frames, check_memory, explain_missing_validation
from .spec import JobSpec, settle_without_validation

if TYPE_CHECKING:
    from ..connectome import Connectomes
    from ..training import Method

Say = Callable[[str], None]
"""Called with each line that a job has to say to its user."""


def ignore(line: str) -> None:
    """Discard the line."""


@dataclass(frozen=True, eq=False)
class Job:
    """A specification and what it comes to on its cohort."""

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
    def seeds(self) -> range:
        """Seeds of its runs."""
        return range(self.spec.seeds)

    def with_spec(self, **changes: Any) -> Job:
        """Return the same job with some fields of its specification changed; the cohort is not audited again."""
        return dataclasses.replace(self, spec=dataclasses.replace(self.spec, **changes))

    @property
    def protocol_settings(self) -> ProtocolSettings:
        """Settings of the protocol, with the number of validation sites that this cohort allows."""
        return settle_protocol(self.spec.protocol_settings, self.cohort, self.spec.protocol)

    @property
    def too_few_sites(self) -> bool:
        """Whether its folds have no validation sites because the cohort has too few sites for them."""
        return self.spec.protocol_settings.validation_sites == "auto" and not self.protocol_settings.validation_sites

    def settings_of(self, name: str) -> dict[str, Any]:
        """Return the settings of a method.

        They are those of the specification; where the cohort has too few sites for validation sites, also the one under
        which the method needs none.
        """
        given = self.spec.settings_of(name)
        return settle_without_validation(name, given) if self.too_few_sites else given

    def make_methods(self, names: Sequence[str]) -> dict[str, Method]:
        """Make methods with their settings, by name."""
        return {name: make_method(name, self.settings_of(name)) for name in names}

    @property
    def protocol_identity(self) -> dict[str, Any]:
        """What the names of its folds mean: the protocol and, for k-fold, the scans that it deals out and the rule."""
        identity = {"name": self.spec.protocol, "settings": dataclasses.asdict(self.protocol_settings)}
        if self.spec.protocol == "loso":
            return identity
        return identity | {"fingerprint": self.cohort.fingerprint, "fold_rule": FOLD_RULE}

    def missing_inputs(self, name: str) -> str:
        """Return what the cohort lacks for a method, in words; empty where it lacks nothing."""
        from ..training.contract import check_needs

        method = make_method(name, self.settings_of(name))
        try:
            check_frames(method, self.cohort)
            check_needs(self.cohort, method.needs, method.settings, f"method '{name}'")
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
        """Say what is asked of them where it is another question, which scans are used and why the others are not."""
        if question := describe_question(self.cohort_before_exclusions):
            self.say(question)
        if self.audit is None:
            self.say(f"{len(self.cohort_before_exclusions)} scans, no exclusions applied")
            return
        exclusions = self.audit.explain_exclusions()
        ending = ", excluded by the audit:" if exclusions else ""
        self.say(f"{len(self.cohort)} of {len(self.cohort_before_exclusions)} scans are used{ending}")
        for participant, reasons in exclusions.items():
            self.say(f"  {participant}: {'; '.join(reasons)}")

    def announce_protocol(self, methods: Sequence[Method]) -> None:
        """Say how methods are chosen where the cohort has too few sites for validation sites."""
        if not self.too_few_sites:
            return
        n = len(find_two_class_sites(self.cohort))
        self.say(f"{n} sites hold both classes, too few for validation sites; models are chosen on source scans alone:")
        names_by_choice: dict[str, list[str]] = {}
        for name, method in {method.name: method for method in methods}.items():
            given = self.spec.settings_of(name)
            applied = [f"{key}={value}" for key, value in self.settings_of(name).items() if key not in given]
            choice = ", ".join(applied) or "by inner folds, as always"
            if method.facts.chooses_epochs_by_inner_folds:
                choice = "number of epochs by inner folds, then trained on all source scans"
            names_by_choice.setdefault(choice, []).append(name)
        for choice, names in names_by_choice.items():
            self.say(f"  {', '.join(names)}: {choice}")


def _load_cohort(spec: JobSpec) -> Cohort:
    return spec.cohort if isinstance(spec.cohort, Cohort) else Cohort.load(spec.cohort)


def open_cohort(spec: JobSpec) -> Cohort:
    """Open the cohort of a job with its labels, and check that it has the folds that the job names; needs no torch."""
    cohort = spec.relabel(_load_cohort(spec))
    cohort.require_labels()
    check_folds(spec.folds or (), list_fold_names(cohort, spec.protocol, spec.protocol_settings))
    return cohort


def prepare_job(spec: JobSpec, progress: Progress = silent, say: Say = ignore, methods: Iterable[Method] = ()) -> Job:
    """Load and audit the cohort of a job and find its device."""
    whole = open_cohort(spec)
    device = resolve_device(spec.device)
    check_memory(methods, whole, device)  # before the audit, which takes longer
    for one in (_load_cohort(spec), *spec.companions):
        one.verify()
    companions = [spec.relabel(companion) for companion in spec.companions]
    audited = audit(whole, spec.audit_rules, companions) if spec.exclude else None
    used = whole if audited is None else whole.select(audited.keep)
    if len(used) == 0:
        raise BrioError(f"{whole.name}: the audit excludes every scan; see 'brio audit', or change its rules")

    @cache
    def estimate() -> Connectomes:
        from ..connectome import Connectomes

        return Connectomes(used, device.torch_device)

    return Job(spec, whole, used, audited, device, estimate, progress, say)

"""Records of a job: plan, runs, summary, studies, tuning, and what is stored of the cohort."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd

from ..cohort import AuditRules
from ..cohort.auditing.audit import ExclusionReason
from ..connectome.harmonisation_rule import HarmonisationRule
from ..errors import REPEAT_JOB, BrioError, file_error
from ..formatting import MISSING, UNKNOWN_INTERVAL, disarm_html, format_count, format_interval
from ..protocol import PROTOCOLS, ProtocolSettings, explain_few_sites, new_site_interval
from ..schemas import (
    OMIT_NONE,
    Hex,
    Name,
    Setting,
    StoredCount,
    StoredNonNegative,
    StoredPositiveCount,
    StoredShare,
    check_fields,
    check_lengths,
    from_json,
    one_of,
    show_value,
    to_json,
)
from ..storage import lock_folder, remove_leftovers, write_recorded
from .files import (
    CONFIGURATIONS,
    FINDING,
    PLAN,
    STUDY,
    SUMMARY,
    TABLE,
    TUNING,
    format_csv,
    format_json,
    is_kept,
    read_csv,
    read_file,
    read_json,
    require_folder,
)

ProtocolName = Annotated[str, one_of(*PROTOCOLS)]


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """One row of ``results.csv``; a score is None where it has no meaning or training diverged.

    ``n_source``, ``n_validation`` and ``n_test`` count participants, each once however many scans they have.
    ``trained_epochs`` and ``steps`` are the epochs until the run stopped and its optimisation steps in them; None where
    nothing is trained by epochs.
    """

    cohort: str
    method: Name
    protocol: ProtocolName
    fold: Name
    test_sites: str
    validation_sites: str
    seed: StoredCount
    n_source: StoredCount
    n_validation: StoredCount
    n_test: StoredCount
    auc: StoredShare | None
    acc: StoredShare | None
    balanced_acc: StoredShare | None
    sensitivity: StoredShare | None
    specificity: StoredShare | None
    brier: StoredShare | None
    validation_auc: StoredShare | None
    selected_epoch: StoredCount | None
    trained_epochs: StoredCount | None
    steps: StoredCount | None
    block_length: StoredNonNegative | None
    seconds: StoredNonNegative
    device: str
    note: str


@dataclass(frozen=True)
class RunDetails:
    """Details of runs that brio reads again; a method may store others."""

    trained_epochs: StoredCount | None = None
    calibration: tuple[float, float] = (1.0, 0.0)  # slope and intercept that turn margins into logits
    validation_curve: tuple[tuple[StoredCount, StoredShare | None], ...] = ()


@dataclass(frozen=True)
class Predictions:
    """What a run predicts for its test participants, in their order; ``margin`` is None where training diverged.

    The margin of a participant with several scans is the mean of theirs.
    """

    participant_id: tuple[str, ...]
    site: tuple[str, ...]
    label: tuple[Literal[0, 1], ...]
    margin: tuple[float, ...] | None

    def __post_init__(self) -> None:
        check_lengths(self, "participant_id", "site", "label", "margin")


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What is stored of a finished run."""

    row: RunRow
    details: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Setting]  # of the method
    source_sites: tuple[str, ...]  # sites that the model learned from, sorted
    predictions: Predictions
    versions: dict[str, str] = field(default_factory=dict)  # of brio, torch, numpy and Python


@dataclass(frozen=True)
class TuningBudget:
    """How the settings of a method were tuned."""

    budget: StoredCount  # configurations that were tried
    cohort: str  # where it searched
    atlas: str


@dataclass(frozen=True)
class TunedChoice(TuningBudget):
    """Settings of a method that a search chose for each fold."""

    folds: dict[str, dict[str, Setting]]  # fold -> values of the tuned settings


@dataclass(frozen=True)
class PlannedMethod:
    """What a plan says about one method."""

    version: int  # of the method
    settings: dict[str, Setting]  # all settings; of a tuned method those that it has without the tuned values
    code: str | None = field(default=None, metadata=OMIT_NONE)  # hash of the file of a user's own method
    configurations: tuple[dict[str, Setting], ...] | None = field(default=None, metadata=OMIT_NONE)
    tuned: TunedChoice | None = field(default=None, metadata=OMIT_NONE)  # settings chosen for each fold


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that decides the numbers of a job."""

    brio: str  # version
    cohort: str
    atlas: str
    fingerprint_before_exclusions: str  # of the cohort as it was given, and of the scans that are used
    fingerprint: str
    n_scans: StoredCount  # scans that are used
    excluded: dict[str, tuple[ExclusionReason, ...]]
    audit: dict[str, Any] | None
    methods: dict[str, PlannedMethod]
    protocol: ProtocolName
    protocol_settings: dict[str, Any]
    harmonise: dict[str, Any] | None
    seeds: tuple[StoredCount, ...]
    folds: tuple[str, ...] | None  # folds that were asked for; None for all
    device: Name  # as --device takes it
    threads: StoredPositiveCount | None  # on a CPU, where a number depends on them
    stacks: tuple[tuple[Hex, ...], ...] = ()
    fold_rule: StoredPositiveCount | None = field(default=None, metadata=OMIT_NONE)
    label: str | None = field(default=None, metadata=OMIT_NONE)
    reused_from: str | None = field(default=None, metadata=OMIT_NONE)

    def identify(self) -> dict[str, Any]:
        """Return what identifies a job, as plain JSON values, without stacks and reasons for exclusions."""
        identity = dataclasses.replace(self, excluded=dict.fromkeys(self.excluded, ()), stacks=())
        return json.loads(json.dumps(to_json(identity)))

    def find_methods(self) -> dict[str, str]:
        """Find the method of each run, by key: stacks come in the order of the methods, each with as many folds."""
        keys = [key for stack in self.stacks for key in stack]
        shares = {name: len(method.configurations or ()) or 1 for name, method in self.methods.items()}
        each = len(keys) / max(1, sum(shares.values()))
        names = [name for name, share in shares.items() for _ in range(round(share * each))]
        return dict(zip(keys, names, strict=False))  # a plan that was changed by hand may have too few

    @classmethod
    def read(cls, folder: Path, remedy: str = REPEAT_JOB) -> Plan:
        """Read the plan of a job folder."""
        path = folder / PLAN
        plan = from_json(cls, read_json(path, remedy), path, remedy)
        parts = {"audit": AuditRules, "protocol_settings": ProtocolSettings, "harmonise": HarmonisationRule}
        for name, kind in parts.items():
            check_fields(kind, getattr(plan, name) or {}, path, remedy, name)
        return plan


INTERVALS = {"loso": "corrected t over sites", "kfold": "corrected t over folds"}
"""How intervals of means are computed under each protocol, as tables state it."""
METRICS = ("auc", "acc", "balanced_acc", "sensitivity", "specificity", "brier")


def describe_smoke_run(subject: str = "This") -> str:
    """State that numbers are from a smoke run, and why; every file and command uses this sentence."""
    return f"{subject} is a smoke run (fewer than three seeds, or not every fold): no basis for a claim."


LEAST_PER_CLASS = 10
"""With fewer participants of a class, scores support no claim."""


def explain_no_claim(
    smoke: str,
    n_fewest: int | None,
    n_units: int,
    interval: tuple[float, float] | None,
    unit: str = "site",
    subject: str = "this",
) -> str:
    """Explain why an AUC supports no claim; empty if it may support one. All that is said of results follows from it.

    ``smoke`` says why ``subject`` is a smoke run, ``n_fewest`` counts the participants of the smaller class.
    """
    why = ""
    if smoke:
        why = f"{subject} is a smoke run ({smoke})"
    elif n_fewest is not None and n_fewest < LEAST_PER_CLASS:
        why = f"only {format_count(n_fewest, 'participant')} of one class {'was' if n_fewest == 1 else 'were'} tested"
    elif n_units < 2:
        why = f"only one {unit} has an AUC" if n_units else f"no {unit} has an AUC"
    elif interval is None:
        why = f"the AUC is the same at all {n_units} {unit}s, so there is no interval"
    elif format_interval(interval) == UNKNOWN_INTERVAL:
        why = f"{n_units} {unit}s are too few for an interval"
    return why and f"{why}, which supports no claim"


@dataclass(frozen=True)
class MetricSummary:
    """A metric over test sites, or over the folds of all seeds under k-fold."""

    mean: StoredShare | None = None  # as shares of one; None where no site, or only one, has a score
    sd: StoredShare | None = None
    interval: tuple[float, float] | None = None  # 95% interval of the mean; :attr:Summary.intervals says which
    n: StoredCount = 0  # sites (folds) that have a score

    @property
    def new_site_interval(self) -> tuple[float, float] | None:
        """95% prediction interval of the metric at one new site; None for few sites, or where scores do not vary."""
        if self.mean is None or self.sd is None:
            return None
        scores = np.full(self.n, self.mean)  # with this mean and SD, in place of those that were not kept
        scores[:2] += self.sd * np.sqrt((self.n - 1) / 2) * np.array([1.0, -1.0])
        low, high = new_site_interval(scores, limits=(0.0, 1.0))
        return None if np.isnan(low) else (low, high)


@dataclass(frozen=True, kw_only=True)
class MethodSummary:
    """The results of one method of a job."""

    family: str
    provenance: str
    block: str  # block of a table in which it stands, see :data:brio.methods.registry.BLOCKS
    needs: tuple[str, ...]  # what it needs besides connectomes and labels
    transductive: bool  # whether unlabelled scans of the test site took part in its fit
    control: bool  # whether it sees no connectome
    tuning: TuningBudget | None = None
    runs: StoredCount  # how many there are
    folds: StoredCount
    seeds: StoredCount
    epochs: StoredCount | None = None  # largest number of epochs; None where nothing is trained by epochs
    trained_epochs: StoredNonNegative | None = None
    steps: StoredNonNegative | None = None
    K: StoredCount | None = None  # re-estimates of each scan; None where nothing is re-estimated
    dead_rois: str | None = None  # what the edges of ROIs without signal hold
    changed: dict[str, Setting]  # settings that differ from the defaults
    auc: MetricSummary  # over sites, of the mean over seeds
    acc: MetricSummary
    balanced_acc: MetricSummary
    sensitivity: MetricSummary
    specificity: MetricSummary
    brier: MetricSummary
    auc_of_averaged_logits: MetricSummary  # AUC, seeds averaged: that of the mean margins over seeds
    pair_weighted_auc: MetricSummary | None = None
    auc_interval_over_people: tuple[float, float] | None = None
    p_chance: StoredShare | None = None  # two-sided p of the mean AUC against chance, over sites or folds
    validation_auc: StoredShare | None = None  # mean over runs
    without_auc: dict[str, str] = dataclasses.field(default_factory=dict)  # fold -> why it has no AUC

    def metric(self, name: str) -> MetricSummary:
        """Return the summary of a metric by its name, one of :data:`METRICS`."""
        return getattr(self, name)

    @property
    def training(self) -> str:
        """The length of its training: mean and largest number of epochs, and mean number of optimisation steps."""
        if self.epochs is None:
            return MISSING
        if self.trained_epochs is None:
            return f"at most {self.epochs}"
        return f"{self.trained_epochs:.0f} of {self.epochs}" + ("" if self.steps is None else f" ({self.steps:,.0f})")

    @property
    def is_tuned(self) -> bool:
        """Whether settings were chosen among several for each fold."""
        return self.tuning is not None and self.tuning.budget > 1

    @property
    def is_above_chance(self) -> bool:
        """Whether the interval of its AUC lies above one half, or two or more equal AUCs do."""
        if self.auc.interval is not None:
            return self.auc.interval[0] > 0.5
        return self.auc.n > 1 and self.auc.mean is not None and self.auc.mean > 0.5


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The results of a job."""

    cohort: str
    atlas: str
    fingerprint: str
    n_scans: StoredCount
    n_excluded: StoredCount
    protocol: ProtocolName
    protocol_settings: dict[str, Any]
    fold_rule: StoredPositiveCount | None = dataclasses.field(default=None, metadata=OMIT_NONE)  # as in Plan
    folds: tuple[str, ...]
    seeds: tuple[StoredCount, ...]
    smoke_run: bool  # fewer than three seeds, or not every fold: no basis for a claim
    harmonise: str | None = None  # how sites were harmonised
    intervals: str  # how they were computed, see :data:`INTERVALS`
    warnings: tuple[str, ...] = ()
    selection: str = ""  # by what checkpoints and settings were chosen
    methods: dict[str, MethodSummary]

    @property
    def smoke_note(self) -> str:
        """The sentence that marks a smoke run; empty if the job is not one."""
        return describe_smoke_run() if self.smoke_run else ""

    @property
    def few_sites_note(self) -> str:
        """What few sites can show; empty if there are more sites, and under k-fold."""
        n_sites = max((method.auc.n for method in self.methods.values()), default=0)
        return explain_few_sites(n_sites) if self.protocol == "loso" else ""

    @property
    def cautions(self) -> list[str]:
        """Sentences without which the scores must not be read: smoke run, few sites, folds without AUC, baselines."""
        without_auc = {fold: why for m in self.methods.values() for fold, why in m.without_auc.items()}
        return [
            *filter(None, (self.smoke_note, self.few_sites_note)),
            *(f"no AUC for {fold}: {why}" for fold, why in without_auc.items()),
            *(f"warning: {warning}" for warning in self.warnings),
        ]

    @classmethod
    def read(cls, folder: Path) -> Summary:
        """Read the summary of a job folder."""
        require_folder(folder)
        path = folder / SUMMARY
        if not is_kept(path):
            raise file_error(folder, f"has no {SUMMARY}", "brio writes it when the job is finished")
        summary = from_json(cls, read_json(path), path)
        check_fields(ProtocolSettings, summary.protocol_settings, path, place="protocol_settings")
        return summary


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """The options of a study, so that it can be repeated."""

    methods: tuple[str, ...] | None = None  # methods that were named; None for those of the paper
    labels: tuple[str, ...] | None = field(default=None, metadata=OMIT_NONE)
    protocol: ProtocolName | None = field(default=None, metadata=OMIT_NONE)
    seeds: StoredCount = 3
    settings: dict[str, Any] = field(default_factory=dict)
    folds: tuple[str, ...] | None = None
    companions: tuple[str, ...] = ()  # atlases of the cohorts that were audited along with it
    exclude: bool = True  # whether the audit's exclusions were applied
    runs_per_stack: StoredCount | None = None
    reuse: tuple[str, ...] = ()
    device: str | None = None  # where the arms were trained; None where that was not recorded


@dataclass(frozen=True, kw_only=True)
class StudyRecord:
    """What ``study.json`` says about a study."""

    name: str
    title: str = ""
    paper: str = ""  # what the paper reports
    text: tuple[str, ...] = ()  # what was found, a sentence each
    smoke: str = ""  # why it is a smoke run; empty where it is not
    cohort: str = ""
    atlas: str = ""
    fingerprint: str = ""
    n_scans: StoredCount = 0
    folds: StoredCount = 0
    seeds: StoredCount = 3
    epochs: tuple[StoredCount, ...] = ()  # those of its runs
    K: tuple[StoredCount, ...] = ()
    arms: tuple[str, ...] = ()
    options: StudyOptions | None = None
    brio: str = ""  # version

    @property
    def smoke_note(self) -> str:
        """The sentence that marks a smoke run; empty if the study is not one."""
        return f"This is a smoke run ({self.smoke}): no basis for a claim." if self.smoke else ""

    def frame(self, paragraphs: Iterable[str]) -> list[str]:
        """Put title, the paper's claim and the figure around what was found; a page shows these by itself."""
        return [f"# {self.title}", *paragraphs, f"The paper: {self.paper}", f"![{self.title}](figure.png)"]


@dataclass(frozen=True, eq=False)
class StoredStudy:
    """A study folder: its record, what was found in Markdown, and its table (None where it was not kept)."""

    folder: Path
    record: StudyRecord
    finding: str
    table: pd.DataFrame | None

    @property
    def name(self) -> str:
        """Name of the study."""
        return self.folder.name

    @property
    def finding_alone(self) -> str:
        """What was found, without what :meth:`StudyRecord.frame` puts around it and without the mark of a smoke run."""
        beside = {disarm_html(line) for line in self.record.frame([self.record.smoke_note])}
        return "\n".join(line for line in self.finding.splitlines() if not line or line not in beside)

    @classmethod
    def read(cls, folder: Path) -> StoredStudy:
        """Read the folder of a study; its table or its text is enough, the record then has the name alone."""
        path = folder / STUDY
        finding = read_file(folder / FINDING).decode(errors="replace") if is_kept(folder / FINDING) else ""
        table = read_csv(folder / TABLE) if is_kept(folder / TABLE) else None
        only_tables = not is_kept(path) and (finding or table is not None)
        document = {"name": folder.name} | ({} if only_tables else read_json(path))
        return cls(folder, from_json(StudyRecord, document, path), finding, table)

    def write(self, float_format: str | None = None, figures: Mapping[str, bytes] | None = None) -> None:
        """Write the files of the study; its record comes last."""
        files: dict[str, str | bytes] = dict(figures or {})
        if self.table is not None:
            files[TABLE] = format_csv(self.table, float_format)
        files[FINDING] = disarm_html(self.finding)
        files[STUDY] = format_json(self.record)
        with lock_folder(self.folder.parent):
            remove_leftovers(self.folder, reserved=True)
            write_recorded(self.folder, files)


@dataclass(frozen=True, kw_only=True)
class TuningRecord:
    """What a search chose."""

    budget: StoredCount  # configurations that were tried for each method and fold
    cohort: str  # where it searched
    atlas: str
    protocol: dict[str, Any]  # its name and settings
    validation_sites: dict[str, tuple[str, ...]]  # fold -> the sites that chose for it
    given_settings: dict[str, Setting]
    tried: dict[str, StoredCount]  # method -> number of configurations that were tried
    choices: dict[str, dict[str, dict[str, Setting]]]  # method -> fold -> values of the tuned settings
    oracle: dict[str, StoredShare] | None = field(default=None, metadata=OMIT_NONE)
    fingerprint: str | None = field(default=None, metadata=OMIT_NONE)  # of the scans; None before version 0.3

    def __post_init__(self) -> None:
        protocol = self.protocol.get("name")
        if protocol not in PROTOCOLS:
            raise BrioError(f"protocol.name is {show_value(protocol)}, expected {' or '.join(PROTOCOLS)}")
        for method, folds in self.choices.items():
            if method not in self.tried:
                raise BrioError(f"tried.{method} is missing")
            absent = [fold for fold in folds if fold not in self.validation_sites]
            if absent and protocol == "loso":
                raise BrioError(f"validation_sites.{absent[0]} is missing")

    def choice(self, method: str) -> TunedChoice:
        """Return what was chosen for a method, as a plan has it."""
        return TunedChoice(self.tried[method], self.cohort, self.atlas, self.choices[method])

    def write(self, folder: Path, configurations: pd.DataFrame) -> None:
        """Write the search to a job folder."""
        write_recorded(folder, {CONFIGURATIONS: format_csv(configurations), TUNING: format_json(self)})

    @classmethod
    def read(cls, folder: Path) -> TuningRecord:
        """Read what ``brio tune`` left in a folder."""
        path, remedy = folder / TUNING, "give a folder written by 'brio tune'"
        return from_json(cls, read_json(path, remedy), path, remedy)

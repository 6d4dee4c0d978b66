"""``summary.json``: what each method of a job reached, over test sites or folds."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from ..errors import BrioError, file_error
from ..methods import find_method
from ..methods.provenance import find_block
from ..protocol import (
    FoldOverlap,
    ProtocolSettings,
    compare_by_corrected_t,
    fold_correction,
    new_site_interval,
    site_correction,
    t_interval,
)
from ..schemas import (
    OMIT_NONE,
    Setting,
    SettingsOf,
    StoredCount,
    StoredNonNegative,
    StoredPositiveCount,
    StoredShare,
    from_json,
    to_json,
)
from .files import SUMMARY, is_kept, read_json, require_folder
from .run_record import ProtocolName

INTERVALS = {"loso": "corrected t over sites", "kfold": "corrected t over folds"}
"""How intervals of means are computed under each protocol, as tables state it."""
METRICS = ("auc", "acc", "balanced_acc", "sensitivity", "specificity", "brier")


def describe_smoke_run(subject: str = "This") -> str:
    """Say that numbers are those of a smoke run, and why; every file and command has its sentence from here."""
    return f"{subject} is a smoke run (fewer than three seeds, or not every fold): no basis for a claim."


@dataclass(frozen=True)
class MetricSummary:
    """A metric over test sites, or over the folds of all seeds under k-fold."""

    mean: StoredShare | None = None  # as shares of one; None where no site, or only one, has a score
    sd: StoredShare | None = None
    interval: tuple[float, float] | None = None  # 95 % interval of the mean; :attr:Summary.intervals says which
    n: StoredCount = 0  # sites (folds) that have a score

    @property
    def new_site_interval(self) -> tuple[float, float] | None:
        """95 % prediction interval of the metric at one new site; None for few sites, or where scores do not vary."""
        low, high = new_site_interval(self._stand_in(), limits=(0.0, 1.0))
        return None if np.isnan(low) else (low, high)

    def _stand_in(self) -> np.ndarray:
        """Return scores with this mean and SD, in place of those that were not kept; empty where there is no SD."""
        if self.mean is None or self.sd is None:
            return np.empty(0)
        scores = np.full(self.n, self.mean)
        scores[:2] += self.sd * np.sqrt((self.n - 1) / 2) * np.array([1.0, -1.0])
        return scores

    def correct_interval(self, correction: FoldOverlap | None) -> MetricSummary:
        """Return the summary with today's interval, from its mean and SD."""
        low, high = t_interval(self._stand_in(), correction, limits=(0.0, 1.0))
        return dataclasses.replace(self, interval=None if np.isnan(low) else (low, high))

    def compare_with(self, value: float, correction: FoldOverlap | None) -> float | None:
        """Return the two-sided p of a value, from mean and SD; None where it cannot be tested."""
        p = compare_by_corrected_t(self._stand_in(), np.full(len(self._stand_in()), value), correction).p
        return None if np.isnan(p) else p


@dataclass(frozen=True)
class TuningBudget:
    """How the settings of a method were tuned: configurations tried, and on which cohort and atlas."""

    budget: StoredCount
    cohort: str
    atlas: str


@dataclass(frozen=True, kw_only=True)
class MethodSummary:
    """What one method of a job reached."""

    family: str
    provenance: str
    block: str = ""  # block of a table in which it stands, see :data:brio.methods.provenance.BLOCKS
    needs: tuple[str, ...] = ()  # what it needs besides connectomes and labels
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
    changed: dict[str, Setting] | None = None
    auc: MetricSummary  # over sites, of the mean over seeds
    acc: MetricSummary
    balanced_acc: MetricSummary
    sensitivity: MetricSummary
    specificity: MetricSummary
    brier: MetricSummary
    auc_of_averaged_logits: MetricSummary  # AUC, seeds averaged: that of the mean logits over seeds
    pair_weighted_auc: MetricSummary | None = None
    auc_interval_over_people: tuple[float, float] | None = None
    p_chance: StoredShare | None = None  # two-sided p of the mean AUC against chance, over sites or folds
    validation_auc: StoredShare | None = None  # mean over runs
    without_auc: dict[str, str] = dataclasses.field(default_factory=dict)  # fold -> why it has no AUC

    def metric(self, name: str) -> MetricSummary:
        """Return the summary of a metric by its name, one of :data:`METRICS`."""
        return getattr(self, name)

    @property
    def is_tuned(self) -> bool:
        """Whether settings were chosen among several for each fold."""
        return self.tuning is not None and self.tuning.budget > 1

    @property
    def is_above_chance(self) -> bool:
        """Whether the interval of its AUC lies above one half, or two or more AUCs do that are all the same."""
        if self.auc.interval is not None:
            return self.auc.interval[0] > 0.5
        return (
            self.auc.n > 1 and self.auc.mean is not None and self.auc.mean > 0.5
        )  # without spread: the same everywhere


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a job reached."""

    cohort: str
    atlas: str
    fingerprint: str
    n_scans: StoredCount
    n_excluded: StoredCount
    protocol: ProtocolName
    protocol_settings: Annotated[dict[str, Any], SettingsOf(ProtocolSettings)] | None = None
    fold_rule: StoredPositiveCount | None = dataclasses.field(default=None, metadata=OMIT_NONE)  # as in Plan
    folds: tuple[str, ...]
    seeds: tuple[StoredCount, ...]
    smoke_run: bool  # fewer than three seeds, or not every fold: no basis for a claim
    harmonise: str | None = None  # how sites were harmonised
    intervals: str = "bootstrap over sites or folds"
    warnings: tuple[str, ...] = ()
    selection: str = ""  # by what checkpoints and settings were chosen
    methods: dict[str, MethodSummary]

    @property
    def smoke_note(self) -> str:
        """The sentence that marks a smoke run; empty where the job is none."""
        return describe_smoke_run() if self.smoke_run else ""

    @property
    def cautions(self) -> list[str]:
        """Sentences without which the scores must not be read: smoke run, folds without AUC, confound baselines."""
        without_auc = {fold: why for m in self.methods.values() for fold, why in m.without_auc.items()}
        return [
            *([self.smoke_note] if self.smoke_run else []),
            *(f"no AUC for {fold}: {why}" for fold, why in without_auc.items()),
            *(f"warning: {warning}" for warning in self.warnings),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the summary as it is written to ``summary.json``."""
        return to_json(self)

    @classmethod
    def read(cls, folder: Path) -> Summary:
        """Read the summary of a job folder."""
        require_folder(folder)
        path = folder / SUMMARY
        if not is_kept(path):
            raise file_error(folder, f"has no {SUMMARY}", "'brio run' writes it when a job is finished")
        document = read_json(path)
        if isinstance(document.get("methods"), dict):
            for name, method in document["methods"].items():
                if isinstance(method, dict) and "family" not in method:
                    method |= _describe_method(name, path)
                if isinstance(method, dict) and (family := _MOVED.get((name, str(method["family"])))):
                    method |= {"family": family, "block": _find_block(name, method)}
                if isinstance(method, dict) and "block" not in method:
                    method["block"] = _find_block(name, method)
        return from_json(cls, document, path)._with_corrected_intervals()

    def _with_corrected_intervals(self) -> Summary:
        """Return summaries of earlier versions with the intervals and p values of today."""
        if self.intervals == INTERVALS[self.protocol]:
            return self
        k = len(self.folds)
        correction = None if self.protocol == "loso" else fold_correction(1, k - 1, k)
        methods = {}
        for name, method in self.methods.items():
            changed: dict[str, Any] = {m: method.metric(m).correct_interval(correction) for m in METRICS}
            changed["auc_of_averaged_logits"] = method.auc_of_averaged_logits.correct_interval(correction)
            changed["p_chance"] = method.auc.compare_with(0.5, correction)
            if method.pair_weighted_auc is not None:
                pairs = method.pair_weighted_auc
                widened = _widen(pairs.mean, pairs.interval, pairs.n)
                changed["pair_weighted_auc"] = dataclasses.replace(pairs, interval=widened)
                changed["auc_interval_over_people"] = _widen(
                    method.auc.mean, method.auc_interval_over_people, method.auc.n
                )
            methods[name] = dataclasses.replace(method, **changed)
        return dataclasses.replace(self, methods=methods, intervals=INTERVALS[self.protocol])


def _widen(mean: float | None, interval: tuple[float, float] | None, n_sites: int) -> tuple[float, float] | None:
    """Correct an interval over participants at left-out sites that earlier versions took to be independent."""
    if mean is None or interval is None or interval[0] == interval[1]:
        return None
    half = max(interval[1] - mean, mean - interval[0]) * np.sqrt(1 + n_sites * site_correction(n_sites))
    return max(0.0, float(mean - half)), min(1.0, float(mean + half))


_MOVED = {("mlp", "linear"): "network on edges"}
"""Method and the family that summaries of earlier versions have for it -> its family today; a family is a heading."""


def _describe_method(name: str, path: Path) -> dict[str, Any]:
    """Return what summaries written before version 0.1.0 do not say about a method."""
    try:
        entry = find_method(name)
    except BrioError:
        raise file_error(path, f"says nothing about its method '{name}', which is unknown here") from None
    return {
        "family": entry.family,
        "provenance": str(entry.provenance),
        "needs": list(entry.needs),
        "transductive": entry.transductive,
        "control": entry.control,
    }


def _find_block(name: str, method: dict[str, Any]) -> str:
    """Return the block of a method whose summary an earlier version wrote."""
    try:
        return find_method(name).block
    except BrioError:
        return find_block("", str(method.get("family", "")), bool(method.get("control")))

"""The evidence of a report: the jobs of a folder, their arms, and the studies."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from ..cohort.covariates import COVARIATE_COLUMNS, ClassNames
from ..errors import BrioError, file_error
from ..protocol.calibration import calibration_error
from ..results import MethodSummary, Plan, StoredJob, StoredRun, StoredStudy, average_seeds, name_units, unit_columns
from ..results.files import PLAN, PREDICTIONS, STUDY, SUMMARY, is_kept, require_folder
from ..studies.context import REUSED, REUSED_OF_0_1, TUNED
from ..studies.study import list_studies


@dataclass(frozen=True, eq=False)
class EvidenceArm:
    """A method with its settings: one row of the results table."""

    name: str  # as the report shows it: the name of the method, or that of the arm where a study changed its settings
    method: str
    job: StoredJob
    plain: bool

    @property
    def summary(self) -> MethodSummary:
        """The scores of the method."""
        return self.job.summary.methods[self.method]

    @property
    def plan(self) -> Plan:
        """The plan of its job."""
        return self.job.require_plan()

    @property
    def protocol(self) -> str:
        """``"loso"`` or ``"kfold"``."""
        return self.job.summary.protocol

    @property
    def unit(self) -> str:
        """What one score belongs to: a site, or a fold under k-fold."""
        return "site" if self.protocol == "loso" else "fold"

    @property
    def control(self) -> bool:
        """Whether the method sees no connectome."""
        return self.summary.control

    @cached_property
    def rows(self) -> pd.DataFrame:
        """One row per run, with the name of the arm as method."""
        return self.job.rows[self.job.rows["method"] == self.method].assign(method=self.name)

    @cached_property
    def scores(self) -> pd.Series:
        """The AUC of every unit that has one, by its name: a test site, or a fold of one seed."""
        scores = average_seeds(self.rows, units=unit_columns(self.protocol))[self.name]
        return scores.set_axis(name_units(scores.index)).dropna()

    @cached_property
    def predictions(self) -> pd.DataFrame:
        """Predictions for test scans, without runs that diverged; empty where predictions were not stored."""
        predictions = self.job.predictions
        if predictions is None:
            return pd.DataFrame(columns=["method", "fold", "seed", "participant_id", "site", "label", "logit"]).assign(
                probability=None
            )
        return predictions[predictions["method"] == self.method].dropna(subset=["logit"])

    @cached_property
    def calibration_error(self) -> float | None:
        """Expected calibration error over ten bins with equal numbers of predictions; None without predictions."""
        if self.predictions.empty:
            return None
        label = self.predictions["label"].to_numpy()
        return calibration_error(label, self.predictions["probability"].to_numpy(dtype=float), strategy="quantile")

    @property
    def runs(self) -> list[StoredRun]:
        """The stored runs of the arm."""
        return [run for run in self.job.runs if run.record.row.method == self.method]


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a report is written from."""

    folder: Path
    jobs: list[StoredJob]
    arms: list[EvidenceArm]
    studies: list[StoredStudy] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)  # arms without results yet
    elsewhere: list[str] = field(default_factory=list)  # arms that the studies use and other folders hold

    @property
    def audited(self) -> StoredJob | None:
        """The job whose audit is shown: that of the first main arm that has one, else that of the first."""
        jobs = [arm.job for arm in self.main]
        return next((job for job in jobs if job.audit is not None), jobs[0] if jobs else None)

    @property
    def cohort_facts(self) -> dict[str, Any] | None:
        """Counts and ranges of the cohort, from the first main arm that has them."""
        return next((arm.job.cohort_facts for arm in self.main if arm.job.cohort_facts), None)

    @property
    def classes(self) -> ClassNames:
        """Names of the classes: those of the cohort, or patient and control where the folder does not say."""
        described = self.cohort_facts or next((arm.job.audit for arm in self.main if arm.job.audit), None) or {}
        return ClassNames(*map(str, described["classes"])) if described.get("classes") else ClassNames()

    @property
    def label_is_sex(self) -> bool:
        """Whether the classes are the sexes: by their names, or by their counts at every site."""
        return self.classes.are_sexes or _count_alike((self.cohort_facts or {}).get("sites", []))

    @property
    def label_covariate(self) -> str | None:
        """The covariate or column that a question made the labels of; None for labels of their own."""
        column = (self.cohort_facts or {}).get("label_covariate")
        return next((name for name, known in COVARIATE_COLUMNS.items() if known == column), column)

    @property
    def controls(self) -> list[EvidenceArm]:
        """Main arms that see no connectome and have an AUC, without those that are given the label as a covariate."""
        scored = [arm for arm in self.main if arm.control and arm.summary.auc.mean is not None]
        return [arm for arm in scored if arm.name not in self.given_label]

    @property
    def given_label(self) -> set[str]:
        """Names of the arms that are given sex where sex is the label."""
        return {arm.name for arm in self.arms if "sex" in arm.summary.needs} if self.label_is_sex else set()

    @property
    def has_validation_scans(self) -> bool:
        """Whether some main arm withheld validation scans; without them, inner folds over source scans choose."""
        return any("n_validation" in arm.rows and (arm.rows["n_validation"] > 0).any() for arm in self.main)

    @property
    def selection_score(self) -> str:
        """What the score is called by which checkpoints, epochs and settings were chosen."""
        return "validation AUC" if self.has_validation_scans else "AUC on inner folds"

    def list_arms(self, protocol: str) -> list[EvidenceArm]:
        """Return the arms of a protocol."""
        return [arm for arm in self.arms if arm.protocol == protocol]

    @property
    def protocol(self) -> str:
        """The protocol of the verdict: leave one site out where there is such an arm."""
        return "loso" if self.list_arms("loso") or not self.arms else self.arms[0].protocol

    @property
    def main(self) -> list[EvidenceArm]:
        """The plain arms of that protocol; where there are none, all its arms."""
        arms = self.list_arms(self.protocol)
        return [arm for arm in arms if arm.plain] or arms

    @property
    def varied(self) -> list[EvidenceArm]:
        """Arms of that protocol that vary the settings or the scans of a method."""
        main = set(self.main)
        return [arm for arm in self.list_arms(self.protocol) if arm not in main]

    @property
    def smoke_reason(self) -> str:
        """Why a study is a smoke run, or empty; the summary of a job has its own flag."""
        return next((study.record.smoke for study in self.studies if study.record.smoke), "")


def read_evidence(folder: Path) -> Evidence:
    """Read a folder of ``brio run``, ``brio tune`` or ``brio study``."""
    require_folder(folder)
    if is_kept(folder / SUMMARY):
        job = _read_job(folder)
        arms = [EvidenceArm(name, name, job, plain=True) for name in job.summary.methods]
        return Evidence(folder, [job], arms, _read_studies(folder))
    places = _list_arm_folders(folder)
    finished = [place for place in places if is_kept(place / SUMMARY)]
    studies = _read_studies(folder)
    if not finished and not studies:
        problem = "its runs are not finished" if (folder / PLAN).is_file() or places else "it holds no results"
        raise BrioError(
            f"{folder}: {problem} (no summary.json, no studies); give the folder of a finished 'brio run', "
            "'brio tune' or 'brio study'"
        )
    jobs = [_read_job(place) for place in finished]
    usual = _find_usual_fingerprint(jobs)
    all_places = {place.parts[-2:] for place in places}
    arms = [arm for job in jobs for arm in _list_arms(job, usual, all_places)]
    unfinished = ["/".join(place.parts[-2:]) for place in places if place not in finished]
    used = {name for study in studies for name in study.record.arms}
    elsewhere = sorted(used - {place.name.removesuffix(TUNED) for place in places})
    return Evidence(folder, jobs, arms, studies, unfinished, elsewhere)


def _count_alike(sites: list[dict[str, Any]]) -> bool:
    """Return whether every site has as many participants of a sex as of a class; sites of equal counts say nothing."""
    told = [(site["n"], site["sex"]) for site in sites if site.get("sex") and site["n"][0] != site["n"][1]]
    names = sorted({name for _, sex in told for name in sex})
    if len(told) < 3 or len(names) != 2:
        return False
    orders = (names, names[::-1])
    return any(all([sex.get(name, 0) for name in order] == list(n) for n, sex in told) for order in orders)


def _list_arm_folders(folder: Path) -> list[Path]:
    """List the folders of arms: those trained here, then those with reused results that were not trained here."""
    places: list[Path] = []
    for parent in ("arms", REUSED, REUSED_OF_0_1):
        seen = {place.parts[-2:] for place in places}
        places += sorted(p for p in (folder / parent).glob("*/*") if p.is_dir() and p.parts[-2:] not in seen)
    return places


def _find_usual_fingerprint(jobs: list[StoredJob]) -> str:
    """Return the fingerprint that most jobs have; leave-one-site-out jobs decide where there are some."""
    fingerprints = [job.summary.fingerprint for job in jobs if job.summary.protocol == "loso"]
    counts = Counter(fingerprints or [job.summary.fingerprint for job in jobs]).most_common(1)
    return counts[0][0] if counts else ""


def _list_arms(job: StoredJob, usual: str, places: set[tuple[str, ...]]) -> list[EvidenceArm]:
    """Make the arms of a job, whose folder is named after its arm.

    The folder of a tuned method ends in " (tuned)". The name of the arm does so only where the same method is there
    untuned as well.
    """
    methods, name = list(job.summary.methods), job.folder.name
    same_scans = job.summary.fingerprint == usual
    if [name] == [f"{method}{TUNED}" for method in methods]:
        twin = (job.folder.parent.name, methods[0]) in places
        return [EvidenceArm(name if twin else methods[0], methods[0], job, plain=same_scans)]
    if len(methods) == 1:
        return [EvidenceArm(name, methods[0], job, plain=same_scans and name == methods[0])]
    return [EvidenceArm(m if name == m else f"{name}: {m}", m, job, plain=False) for m in methods]


def _read_job(folder: Path) -> StoredJob:
    """Read a job with its plan and, unless its results are reused, its predictions."""
    job = StoredJob.read(folder)
    plan = job.require_plan()
    for method in job.summary.methods:
        if method not in plan.methods:
            raise file_error(folder / PLAN, f"does not have method '{method}' of {SUMMARY}")
    if job.predictions is None and plan.reused_from is None:
        raise file_error(folder / PREDICTIONS, "cannot be read (there is no such file)")
    return job


def _read_studies(folder: Path) -> list[StoredStudy]:
    """Read the studies of a folder, in the order of the paper."""
    order = {study.name: k for k, study in enumerate(list_studies())}
    places = [place for place in (folder / "studies").glob("*") if is_kept(place / STUDY)]
    return [StoredStudy.read(p) for p in sorted(places, key=lambda p: (order.get(p.name, len(order)), p.name))]

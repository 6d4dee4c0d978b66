"""The evidence of a report: the jobs of a folder, the arms to compare, and the studies."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pandas as pd

from ...errors import BrioError
from ...results import MethodSummary, Plan, StoredJob, StoredRun, StoredStudy
from ...results.files import PLAN, PREDICTIONS, STUDY, SUMMARY, file_error
from ...studies.arms import TUNED
from ...studies.reused import REUSED, REUSED_OF_0_1
from ...studies.study import list_studies

__all__ = ["Evidence", "EvidenceArm", "read_evidence"]


@dataclass(frozen=True, eq=False)
class EvidenceArm:
    """A method with its settings, as one line of a table.

    Attributes
    ----------
    name : str
        As the reader sees it: the name of the method, or that of the arm where it has settings of its own.
    method : str
    job : StoredJob
    plain : bool
        Whether it is the method with its own settings, on the scans that most arms have. Such arms are compared with
        each other; arms that only vary a setting are not.
    """

    name: str
    method: str
    job: StoredJob
    plain: bool

    @property
    def summary(self) -> MethodSummary:
        """What the method reached."""
        return self.job.summary.methods[self.method]

    @property
    def plan(self) -> Plan:
        """The plan of its job."""
        return self.job.require_plan()

    @property
    def protocol(self) -> str:
        return self.job.summary.protocol

    @property
    def control(self) -> bool:
        return self.summary.control

    @cached_property
    def rows(self) -> pd.DataFrame:
        """Its runs, with the name of the arm as method."""
        return self.job.rows[self.job.rows["method"] == self.method].assign(method=self.name)

    @cached_property
    def predictions(self) -> pd.DataFrame:
        """What it predicted for test scans, without runs that diverged; empty where predictions were not kept."""
        predictions = self.job.predictions
        if predictions is None:
            return pd.DataFrame(columns=["method", "fold", "seed", "participant_id", "site", "label", "logit"]).assign(
                probability=None
            )
        return predictions[predictions["method"] == self.method].dropna(subset=["logit"])

    @property
    def runs(self) -> list[StoredRun]:
        """Its stored runs."""
        return [run for run in self.job.runs if run.record.row.method == self.method]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything that a report is made of.

    Attributes
    ----------
    folder : Path
    jobs : list of StoredJob
    arms : list of EvidenceArm
    studies : list of StoredStudy
    unfinished : list of str
        Arms that have no results yet.
    elsewhere : list of str
        Arms that studies count and other folders hold.
    """

    folder: Path
    jobs: list[StoredJob]
    arms: list[EvidenceArm]
    studies: list[StoredStudy] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)

    @property
    def audited(self) -> StoredJob | None:
        """The job whose audit is shown: the first of the main arms that has one, else the first."""
        jobs = [arm.job for arm in self.main]
        return next((job for job in jobs if job.audit is not None), jobs[0] if jobs else None)

    def under(self, protocol: str) -> list[EvidenceArm]:
        """Return the arms of a protocol."""
        return [arm for arm in self.arms if arm.protocol == protocol]

    @property
    def protocol(self) -> str:
        """The protocol that the verdict is about: unseen sites, where they were tested."""
        return "loso" if self.under("loso") or not self.arms else self.arms[0].protocol

    @property
    def main(self) -> list[EvidenceArm]:
        """The methods of that protocol with their own settings; where there are none, all its arms."""
        arms = self.under(self.protocol)
        return [arm for arm in arms if arm.plain] or arms

    @property
    def varied(self) -> list[EvidenceArm]:
        """Arms of that protocol that vary the settings or the scans of a method."""
        main = set(self.main)
        return [arm for arm in self.under(self.protocol) if arm not in main]

    @property
    def smoke(self) -> str:
        """Why a study is a smoke run, or empty; jobs say so in their summaries."""
        return next((study.record.smoke for study in self.studies if study.record.smoke), "")


def read_evidence(folder: Path) -> Evidence:
    """Read a folder of ``brio run``, ``brio tune`` or ``brio study``.

    Raises
    ------
    BrioError
        If it is none of them, or something in it cannot be read.
    """
    if not folder.is_dir():
        raise BrioError(f"{folder}: there is no such folder; give the --out of 'brio run', 'brio tune' or 'brio study'")
    if (folder / SUMMARY).is_file():
        job = _read_job(folder)
        arms = [EvidenceArm(name, name, job, plain=True) for name in job.summary.methods]
        return Evidence(folder, [job], arms, _read_studies(folder))
    places = _list_arm_folders(folder)
    finished = [place for place in places if (place / SUMMARY).is_file()]
    studies = _read_studies(folder)
    if not finished and not studies:
        problem = "its runs are not finished" if (folder / PLAN).is_file() or places else "it holds no results"
        raise BrioError(
            f"{folder}: {problem} (no summary.json, no studies); give the folder of a finished 'brio run', "
            "'brio tune' or 'brio study'"
        )
    jobs = [_read_job(place) for place in finished]
    usual = _usual_fingerprint(jobs)
    all_places = {place.parts[-2:] for place in places}
    arms = [arm for job in jobs for arm in _arms_of(job, usual, all_places)]
    unfinished = ["/".join(place.parts[-2:]) for place in places if place not in finished]
    counted = {name for study in studies for name in study.record.arms}
    elsewhere = sorted(counted - {place.name.removesuffix(TUNED) for place in places})
    return Evidence(folder, jobs, arms, studies, unfinished, elsewhere)


def _list_arm_folders(folder: Path) -> list[Path]:
    """List the folders of arms: those trained here, then those whose results are reused and that were not."""
    places: list[Path] = []
    for parent in ("arms", REUSED, REUSED_OF_0_1):
        seen = {place.parts[-2:] for place in places}
        places += sorted(p for p in (folder / parent).glob("*/*") if p.is_dir() and p.parts[-2:] not in seen)
    return places


def _usual_fingerprint(jobs: list[StoredJob]) -> str:
    """Fingerprint of the scans that most jobs have, of those that leave one site out where there are some."""
    prints = [job.summary.fingerprint for job in jobs if job.summary.protocol == "loso"]
    counts = Counter(prints or [job.summary.fingerprint for job in jobs]).most_common(1)
    return counts[0][0] if counts else ""


def _arms_of(job: StoredJob, usual: str, places: set[tuple[str, ...]]) -> list[EvidenceArm]:
    """Make the arms of a job, whose folder is named after its arm.

    The folder of tuned results says so in its name; the arm says so only where the method has an arm with its own
    settings as well.
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
    places = [place for place in (folder / "studies").glob("*") if (place / STUDY).is_file()]
    return [StoredStudy.read(p) for p in sorted(places, key=lambda p: (order.get(p.name, len(order)), p.name))]

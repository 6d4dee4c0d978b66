"""The evidence of a report, gathered once for the page and the model card: jobs, their arms, studies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..cohort.covariates import COVARIATE_COLUMNS, ClassNames
from ..errors import BrioError, file_error
from ..formatting import format_count
from ..models.external import Validation
from ..results import StoredJob, StoredStudy, Summary
from ..results.cohort import read_label_is_sex
from ..results.files import PLAN, PREDICTIONS, STUDY, SUMMARY, is_kept, require_folder
from ..studies.context import REUSED, TUNED
from ..studies.study import list_studies
from .answers import Answers, Judgement, Subgroup, judge_transfer, judge_usability, score_subgroups
from .cohort import AuditLine, find_audit_warnings, list_audit_lines
from .comparisons import Comparison, EvidenceArm, compare_arms
from .repeat import list_commands, list_versions


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything from which a report is written."""

    folder: Path
    jobs: list[StoredJob]
    arms: list[EvidenceArm]
    studies: list[StoredStudy] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)  # arms without results yet
    elsewhere: list[str] = field(default_factory=list)  # arms that the studies use and other folders hold
    validations: list[Validation] = field(default_factory=list)  # of models at new sites

    @property
    def protocol(self) -> str:
        """The protocol of the verdict: leave one site out where there is such an arm."""
        protocols = [arm.protocol for arm in self.arms]
        return "loso" if "loso" in protocols or not protocols else protocols[0]

    @cached_property
    def main(self) -> list[EvidenceArm]:
        """The plain arms of that protocol; where there are none, all its arms."""
        arms = [arm for arm in self.arms if arm.protocol == self.protocol]
        return [arm for arm in arms if arm.plain] or arms

    @property
    def other_protocol(self) -> list[EvidenceArm]:
        """Arms of the other protocol."""
        return [arm for arm in self.arms if arm.protocol != self.protocol]

    @property
    def varied(self) -> list[EvidenceArm]:
        """Arms of that protocol that vary the settings or the scans of a method."""
        return [arm for arm in self.arms if arm.protocol == self.protocol and arm not in self.main]

    @property
    def unit(self) -> str:
        """What one score belongs to under that protocol."""
        return "site" if self.protocol == "loso" else "fold"

    @property
    def summary(self) -> Summary | None:
        """The summary that stands for all main arms; None where there is none."""
        return self.main[0].job.summary if self.main else None

    @property
    def preliminary(self) -> str:
        """What is missing of a job that is not finished; empty for finished jobs."""
        return next((job.unfinished for job in self.jobs if job.unfinished), "")

    @property
    def title(self) -> str:
        """The name of the cohort, else that of the folder."""
        return self.main[0].job.summary.cohort if self.main else self.folder.resolve().name

    @property
    def audited(self) -> StoredJob | None:
        """The job whose audit is shown: that of the first main arm that has one, else that of the first."""
        jobs = [arm.job for arm in self.main]
        return next((job for job in jobs if job.audit is not None), jobs[0] if jobs else None)

    @property
    def audit_warnings(self) -> list[str] | None:
        """The warnings of the audit; None if no audit is stored."""
        if self.audited is None or self.audited.audit is None:
            return None
        return list(find_audit_warnings(self.audited.audit, self.classes).values())

    @property
    def audit_lines(self) -> list[AuditLine]:
        """The findings of the audit."""
        return list_audit_lines(self.audited, self.classes) if self.audited else []

    @property
    def exclusions(self) -> dict[str, tuple[Any, ...]]:
        """Excluded participants with the reasons, by name."""
        excluded = [item for arm in reversed(self.main) for item in arm.job.require_plan().excluded.items()]
        return dict(sorted(dict(excluded).items()))

    @property
    def cohort_facts(self) -> dict[str, Any] | None:
        """Counts and ranges of the cohort, from the first main arm that has them."""
        return next((arm.job.cohort_facts for arm in self.main if arm.job.cohort_facts), None)

    @property
    def classes(self) -> ClassNames:
        """Names of the classes: those of the cohort, or patient and control where the folder does not say."""
        return ClassNames(*(self.cohort_facts or {}).get("classes", ()))

    @property
    def label_is_sex(self) -> bool:
        """Whether the classes are the sexes."""
        return read_label_is_sex(self.cohort_facts)

    @property
    def label_covariate(self) -> str | None:
        """The covariate or column that a question made the labels of; None for labels of their own."""
        column = (self.cohort_facts or {}).get("label_covariate")
        return next((name for name, known in COVARIATE_COLUMNS.items() if known == column), column)

    @property
    def given_label(self) -> set[str]:
        """Names of the arms that are given sex where sex is the label."""
        return {arm.name for arm in self.arms if "sex" in arm.summary.needs} if self.label_is_sex else set()

    @property
    def controls(self) -> list[EvidenceArm]:
        """Main arms that see no connectome and have an AUC, without those that are given the label as a covariate."""
        scored = [arm for arm in self.main if arm.control and arm.summary.auc.mean is not None]
        return [arm for arm in scored if arm.name not in self.given_label]

    @property
    def has_validation_scans(self) -> bool:
        """Whether some main arm withheld validation scans; without them, inner folds over source scans choose."""
        return any("n_validation" in arm.rows and (arm.rows["n_validation"] > 0).any() for arm in self.main)

    @property
    def selection_score(self) -> str:
        """The name of the score by which checkpoints, epochs and settings were chosen."""
        return "validation AUC" if self.has_validation_scans else "AUC on inner folds"

    @property
    def selection(self) -> str:
        """State how checkpoints and settings were chosen."""
        if self.has_validation_scans:
            return "Checkpoints and settings were chosen on validation scans or inner folds, never on test scans."
        return (
            "There were no validation scans, so epochs and settings were chosen on inner folds of source scans, never "
            "on test scans."
        )

    @cached_property
    def comparison(self) -> Comparison:
        """The main arms, ranked and tested against the reference."""
        return compare_arms(self.main)

    @property
    def smoke_reason(self) -> str:
        """Why the results are a smoke run; empty if they are not."""
        reason = next((study.record.smoke for study in self.studies if study.record.smoke), "")
        summaries = [arm.job.summary for arm in self.comparison.ranked if arm.job.summary.smoke_run]
        if reason or not summaries:
            return reason
        seeds = min(len(summary.seeds) for summary in summaries)
        folds = min(len(summary.folds) for summary in summaries)
        return f"{format_count(seeds, 'seed')}, {format_count(folds, 'fold')}"

    @cached_property
    def answers(self) -> Answers | None:
        """What predictions of the best method mean for individuals; None if nothing is ranked."""
        return Answers(self.comparison.ranked[0]) if self.comparison.ranked else None

    @cached_property
    def no_claim(self) -> str:
        """Why the results support no claim and are not tested; empty if they may support one."""
        return self.answers.explain_no_claim(self.smoke_reason) if self.answers else self.smoke_reason

    @cached_property
    def transfer(self) -> Judgement:
        """Whether the best method is better than chance at unseen sites."""
        p_values = [arm.summary.p_chance for arm in self.comparison.ranked]
        return judge_transfer(self.answers, self.smoke_reason, p_values)

    @cached_property
    def usability(self) -> Judgement:
        """Whether predictions for one individual can be used, and why not."""
        return judge_usability(self.answers, self.transfer)

    @cached_property
    def subgroups(self) -> list[Subgroup]:
        """Scores of the best method within groups; not of sex where it is the label."""
        return score_subgroups(self.answers.arm, skip=("sex",) if self.label_is_sex else ()) if self.answers else []

    @property
    def commands(self) -> list[str]:
        """The commands that compute the results again."""
        return list_commands(self.folder, self.jobs, self.studies)

    @cached_property
    def versions(self) -> list[tuple[str, str]]:
        """The software versions and devices of the runs."""
        return list_versions(self.jobs)


def read_job(folder: Path) -> StoredJob:
    """Read a job, or what there is of an unfinished one, with its plan and, unless reused, its predictions."""
    job = StoredJob.read(folder, allow_unfinished=True)
    plan = job.require_plan()
    for method in job.summary.methods:
        if method not in plan.methods:
            raise file_error(folder / PLAN, f"does not contain method '{method}', which is in {SUMMARY}")
    if job.predictions is None and plan.reused_from is None:
        raise file_error(folder / PREDICTIONS, "cannot be read (there is no such file)")
    return job


def read_evidence(folder: Path, read_job: Callable[[Path], StoredJob] = read_job) -> Evidence:
    """Read a folder of ``brio run``, ``brio tune`` or ``brio study``; ``read_job`` may recompute its jobs."""
    require_folder(folder)
    studies = _read_studies(folder)
    if is_kept(folder / SUMMARY) or (folder / PLAN).is_file():
        job = read_job(folder)
        return Evidence(folder, [job], [EvidenceArm(m, m, job, plain=True) for m in job.summary.methods], studies)
    places: list[Path] = []  # of arms: those trained here, then those with reused results that were not trained here
    for parent in ("arms", REUSED):
        seen = {place.parts[-2:] for place in places}
        places += sorted(p for p in (folder / parent).glob("*/*") if p.is_dir() and p.parts[-2:] not in seen)
    finished = [place for place in places if is_kept(place / SUMMARY)]
    if not finished and not studies:
        problem = "its runs are unfinished" if places else "has no results"
        raise BrioError(f"{folder}: {problem}; give the folder of a finished 'brio run', 'brio tune' or 'brio study'")
    jobs = [read_job(place) for place in finished]
    # the scans that most jobs have are the usual ones; leave-one-site-out jobs decide where there are some
    deciding = [job for job in jobs if job.summary.protocol == "loso"] or jobs
    usual = Counter(job.summary.fingerprint for job in deciding).most_common(1)
    all_places = {place.parts[-2:] for place in places}
    arms = [arm for job in jobs for arm in _list_arms(job, usual[0][0], all_places)]
    unfinished = ["/".join(place.parts[-2:]) for place in places if place not in finished]
    used = {name for study in studies for name in study.record.arms}
    elsewhere = sorted(used - {place.name.removesuffix(TUNED) for place in places})
    return Evidence(folder, jobs, arms, studies, unfinished, elsewhere)


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


def _read_studies(folder: Path) -> list[StoredStudy]:
    """Read the studies of a folder, in the order of the paper."""
    order = {study.name: k for k, study in enumerate(list_studies())}
    places = [place for place in (folder / "studies").glob("*") if is_kept(place / STUDY)]
    return [StoredStudy.read(p) for p in sorted(places, key=lambda p: (order.get(p.name, len(order)), p.name))]

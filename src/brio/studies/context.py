"""What a study works with: its arms, and a context that trains them or reuses the results of other jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..cohort import Cohort
from ..cohort.covariates import describe_labels
from ..console import Progress, report_part, silent
from ..errors import BrioError, nearest
from ..formatting import format_count
from ..jobs import Job, JobSpec, prepare_job
from ..jobs.job import Say, check_memory, ignore
from ..jobs.plan import JobPlan, build_plan
from ..jobs.resume import OTHER_OUT, list_names, read_earlier_plan, resume_plan, write_job_plan
from ..jobs.run import execute_plan, train_shard
from ..jobs.spec import settle_without_validation, split_settings
from ..methods import find_method, list_methods, make_method
from ..protocol import FOLD_RULE, ProtocolSettings, list_fold_names
from ..protocol.metrics import ONE_CLASS
from ..results import (
    FULL_SEEDS,
    INTERVALS,
    MethodSummary,
    MetricSummary,
    Plan,
    StoredJob,
    StudyOptions,
    lock_folder,
    summarise_metrics,
    write_tables,
)
from ..results.files import PLAN
from ..results.summarise import is_smoke_run

if TYPE_CHECKING:
    from ..connectome import Connectomes
    from ..diagnostics import FrozenRuns
    from ..training import FittedRun, Method, Run


TUNED = " (tuned)"
"""Suffix of the folder of an arm whose reused results are tuned."""

_PAPER_NAMES = {
    **{f"brio-wo-{part}": f"w/o {part.upper()}" for part in ("rs", "tr", "sm", "sf", "qg")},
    **{"brio": "BRIO", "brio-shuffled": "shuffled sites", "backbone-shuffled": "backbone, shuffled sites"},
}


@dataclass(frozen=True)
class Arm:
    """A method, the settings in which it differs from its defaults, and the protocol it is run under."""

    method: str
    settings: tuple[tuple[str, Any], ...] = ()
    protocol: str = "loso"
    tuned: bool = False
    label: str | None = None

    @property
    def name(self) -> str:
        """Its name in tables and folders, such as ``brio`` or ``brio,K=2``."""
        return ",".join([self.method, *(f"{key}={value}" for key, value in self.settings)])

    @property
    def untuned(self) -> Arm:
        """The same arm without reuse of tuned results."""
        return replace(self, tuned=False)


def make_arm(method: str, protocol: str = "loso", *, tuned: bool = False, **settings: Any) -> Arm:
    """Make an arm; settings are given as keywords."""
    return Arm(method, tuple(settings.items()), protocol, tuned)


def list_own_arms(context: StudyContext, default: Sequence[str] = ("ridge",)) -> list[Arm]:
    """List the arms of a study of one or few methods."""
    spec, arms = context.job.spec, []
    for name in context.methods or default:
        given = spec.settings_of(name)
        settled = given if context.job.protocol_settings.validation_sites else settle_without_validation(name, given)
        arms.append(make_arm(name, **{key: value for key, value in settled.items() if key not in given}))
    return arms


def display_name(name: str) -> str:
    """Return the name of an arm as readers see it: the paper's name if it has one, then the settings."""
    method, *settings = name.split(",")
    return ", ".join([_PAPER_NAMES.get(method, method), *(setting.strip() for setting in settings)])


def display_method(name: str) -> str:
    """Return the name of the method of an arm as readers see it."""
    return display_name(name.split(",")[0])


@dataclass(frozen=True, eq=False)
class ArmResults:
    """The results of an arm, trained here or reused."""

    arm: Arm
    job: StoredJob  # the job that computed them
    rows: pd.DataFrame  # one row per run of the arm
    reused: bool = False  # whether another command computed them

    @property
    def summary(self) -> MethodSummary:
        """The summary of the method in that job, which may have more runs than the arm."""
        return self.job.summary.methods[self.arm.method]

    @property
    def facts(self) -> dict[str, Any]:
        """Folds, seeds, epochs and K of its runs, which every row of a study states."""
        counts = {"folds": self.rows["fold"].nunique(), "seeds": self.rows["seed"].nunique()}
        return counts | {"epochs": self.summary.epochs, "K": self.summary.K}


REUSED = "reused"
"""Folder of reused results inside the folder of studies."""


def read_reused_results(folder: Path, fingerprint: str, protocol_settings: ProtocolSettings) -> StoredJob:
    """Read the folder of a finished job, to reuse its results in a study."""
    job = StoredJob.read(folder)
    summary, stored = job.summary, job.summary.protocol_settings
    if summary.fingerprint != fingerprint:
        problem = "its runs used another cohort, other labels or other exclusions"
        raise BrioError(f"{folder}: {problem}; do not reuse this folder")
    for name in ["validation_sites"] if summary.protocol == "loso" else ["n_folds", "validation_folds"]:
        there, here = stored.get(name), getattr(protocol_settings, name)
        if there != here:
            problem = f"its folds differ: protocol.{name} is {there} in that job, but {here} here"
            raise BrioError(f"{folder}: {problem}; do not reuse this folder")
    if summary.protocol == "kfold" and summary.fold_rule != FOLD_RULE:
        raise BrioError(f"{folder}: its folds follow the rule of another version; run that job again")
    return job


def write_reused_results(results: ArmResults, plan: Plan, job: Job, place: Path) -> None:
    """Write reused results of an arm as a job folder of its own, so that a report can show them."""
    name, rows, source = results.arm.method, results.rows, results.job
    folder = place / (results.arm.name + (TUNED if results.summary.is_tuned else ""))
    tuned = source.tuning.choice(name) if source.tuning is not None and name in source.tuning.choices else None
    settings = plan.methods[name].settings | results.summary.changed
    planned = replace(plan.methods[name], settings=settings, tuned=tuned)
    seeds = tuple(sorted(rows["seed"].unique().tolist()))
    plan = replace(plan, methods={name: planned}, seeds=seeds, reused_from=str(source.folder))
    metrics: dict[str, Any] = {**summarise_metrics(rows, plan.protocol)}
    if results.summary.seeds != len(seeds):  # the AUC of averaged margins needs the predictions of all seeds
        metrics |= {"auc_of_averaged_logits": MetricSummary()}
        metrics |= dict.fromkeys(("pair_weighted_auc", "auc_interval_over_people", "p_chance"))
    predictions = source.predictions
    if predictions is not None:
        selected = predictions["method"].eq(name) & predictions["seed"].isin(seeds)
        predictions = predictions[selected & predictions["fold"].isin(rows["fold"])]
    own = {key: value for key, value in settings.items() if key not in find_method(name).fixed}
    summary = replace(
        source.summary,
        methods={name: replace(results.summary, **metrics, runs=len(rows), seeds=len(seeds))},
        n_excluded=len(plan.excluded),
        seeds=seeds,
        smoke_run=source.summary.smoke_run or is_smoke_run(plan, {name: make_method(name, own).facts}),
        intervals=INTERVALS[plan.protocol],
        warnings=(),
    )
    with lock_folder(folder):
        write_job_plan(job, plan, folder)
        write_tables(folder, rows, predictions, summary)


LABELS = "labels"
"""Folder of the arms for other labels, with one folder of studies for each label."""
_OWN_FOLDERS = {"arms", "studies", LABELS, REUSED}
"""A folder that holds one of these has been used for studies before."""


class StudyContext:
    """The audited cohort, the protocol and the arms that studies share.

    An arm is an ordinary job in a folder of its own, so two studies that need the same arm share its runs, and a study
    that was interrupted is resumed.
    """

    def __init__(
        self,
        spec: JobSpec,
        out: str | Path,
        *,
        questions: Sequence[str] = (),
        reuse: Sequence[str | Path] = (),
        progress: Progress = silent,
        say: Say = ignore,
    ) -> None:
        self.out, self.progress, self.say = Path(out), progress, say
        if (names := list_names(self.out)) and not names & _OWN_FOLDERS:
            raise BrioError(f"{self.out}: contains files that do not belong to a brio study; {OTHER_OUT}")
        for name in spec.methods:
            find_method(name)  # an unknown name is reported before anything is read
        _check_settings(spec)
        self.methods = list(spec.methods) or None
        self.questions = list(dict.fromkeys(questions))
        self.job = prepare_job(spec)
        self.reused = [
            read_reused_results(Path(folder), self.cohort.fingerprint, self.job.protocol_settings) for folder in reuse
        ]
        replace(self.job, say=say).announce_exclusions()
        self.left_out: dict[str, str] = {}
        self._jobs: dict[str | None, Job] = {None: self.job}
        self._results: dict[Arm, ArmResults] = {}
        self._trained: dict[Arm, ArmResults] = {}
        self._discrepancies: dict[Arm, pd.DataFrame] = {}
        self._block_lengths: dict[tuple[str, int], float] = {}

    @property
    def cohort(self) -> Cohort:
        """The scans that passed the audit."""
        return self.job.cohort

    @property
    def connectomes(self) -> Connectomes:
        """Connectomes of these scans."""
        return self.job.connectomes

    def record_options(self, arms: Sequence[Arm]) -> StudyOptions:
        """Record the options of the command; the device is the one on which the arms were trained."""
        spec = self.job.spec
        trained = [folder for a in arms if (folder := self._folder_of(a.untuned)).joinpath(PLAN).is_file()]
        return StudyOptions(
            methods=None if self.methods is None else tuple(self.methods),
            labels=tuple(self.questions) or (None if spec.label is None else (spec.label,)),
            protocol=None if spec.protocol == "loso" else spec.protocol,
            seeds=spec.seeds,
            settings=dict(spec.settings),
            folds=None if spec.folds is None else tuple(spec.folds),
            companions=tuple(companion.atlas.name for companion in spec.companions),
            exclude=spec.exclude,
            runs_per_stack=spec.runs_per_stack,
            reuse=tuple("/".join(job.folder.resolve().parts[-2:]) for job in self.reused),
            device=Plan.read(trained[0]).device if trained else self.job.device.name,
        )

    def explain_smoke(self, arms: Sequence[Arm] = ()) -> str:
        """State why some arms are a smoke run; empty with all folds, three seeds and default settings."""
        spec = self.job.spec
        reasons = ["not every fold"] if spec.folds is not None else []
        reasons += [format_count(spec.seeds, "seed")] if spec.seeds < FULL_SEEDS else []
        reasons += [f"{key}={value}" for key, value in spec.method_settings.items()]
        for a in filter(lambda a: self.results_of(a).reused, arms):
            by_itself = self.job_of(a).settings_of(a.method).keys() - spec.settings_of(a.method).keys()
            changed = self.results_of(a).summary.changed
            reasons += [f"{a.name} reused with {k}={v}" for k, v in changed.items() if k not in by_itself]
        return ", ".join(reasons)

    def select_runnable_methods(self, names: Sequence[str]) -> list[str]:
        """Select the methods that the cohort has all inputs for; say once what is missing for each of the others."""
        missing = {name: self.job.missing_inputs(name) for name in names}
        for name, reason in missing.items():
            if reason and name not in self.left_out:
                self.left_out[name] = reason
                self.say(f"left out: {reason}")
        return [name for name, reason in missing.items() if not reason]

    def job_for(self, label: str | None) -> Job:
        """Return the job with the labels of a question, on the folds that it leaves; None: the cohort's own labels."""
        if label not in self._jobs:
            spec = self.job.spec
            job = prepare_job(replace(spec, label=label, folds=None))
            if spec.folds is not None:
                known = list_fold_names(job.cohort, spec.protocol, spec.protocol_settings)
                folds = [fold for fold in spec.folds if fold in known]
                if not folds:
                    named = ", ".join(spec.folds)
                    raise BrioError(
                        f"with the label '{label}', no scans remain in these folds: {named}; choose other folds"
                    )
                job = job.with_spec(folds=folds)
            self.say(f"{label}: {describe_labels(job.cohort_before_exclusions)}")
            self._jobs[label] = job
        return self._jobs[label]

    def settings_of(self, method: str) -> Any:
        """Return the settings of the plain arm of a method."""
        return make_method(method, self.job.spec.settings_of(method)).settings

    def train(self, arms: Sequence[Arm]) -> None:
        """Train the arms that have no results yet. All arms are checked before the first is trained."""
        wanted = [a for a in dict.fromkeys(arms) if a not in self._results]
        plans = {a: self.plan_arm(a) for a in wanted}
        reused = {a: results for a in wanted if (results := self._find_reused(a, plans[a])) is not None}
        missing = [a for a in wanted if a not in reused]
        for a in missing:
            if (earlier := read_earlier_plan(self._folder_of(a))) is not None:
                resume_plan(earlier, plans[a], self._folder_of(a))
        for a, results in reused.items():
            place = self.out / REUSED / self.protocol_of(a)
            write_reused_results(results, plans[a].document, self.job_of(a), place)
        self._results |= reused
        to_train = [a for a in dict.fromkeys(a.untuned for a in missing) if a not in self._results]
        for a, progress in self._share_progress(to_train):
            self._results[a] = self._execute(a, progress)
        self._results |= {a: self._results[a.untuned] for a in missing}

    def train_shard(self, arms: Sequence[Arm]) -> bool:
        """Train the stacks of some arms that belong to the shard of the job; returns whether all are finished."""
        plans = {a: self.plan_arm(a) for a in dict.fromkeys(arms)}
        to_train = {a.untuned: plan for a, plan in plans.items() if self._find_reused(a, plan) is None}
        finished = [
            train_shard(self.job_of(a, progress), to_train[a], self._folder_of(a))
            for a, progress in self._share_progress(list(to_train))
        ]
        return all(finished)

    def _share_progress(self, arms: Sequence[Arm]) -> Iterator[tuple[Arm, Progress]]:
        """Yield arms, each with a function that reports its progress as a share of the total."""
        for number, a in enumerate(arms):
            prefix = f"arm {number + 1} of {len(arms)}, " if len(arms) > 1 else ""
            yield a, report_part(self.progress, number / len(arms), 1 / len(arms), prefix)

    def results_of(self, arm: Arm) -> ArmResults:
        """Return the results of an arm, trained here or reused."""
        self.train([arm])
        return self._results[arm]

    def trained_results(self, arm: Arm) -> ArmResults:
        """Return the results of an arm with its weights; an arm with reused results is trained here."""
        if arm not in self._trained:
            results = self.results_of(arm)
            self._trained[arm] = self._execute(arm, self.progress) if results.reused else results
        return self._trained[arm]

    def collect_rows(self, arms: Sequence[Arm]) -> pd.DataFrame:
        """Collect the runs of some arms: one row per run, with the name of its arm, epochs and K."""
        self.train(arms)
        results = [self._results[a] for a in arms]
        return pd.concat([r.rows.assign(arm=r.arm.name, **r.facts) for r in results], ignore_index=True)

    def load_fitted_runs(self, arm: Arm) -> tuple[Method, list[FittedRun]]:
        """Load the method of an arm and its fitted runs, with their weights."""
        from ..jobs.train import load_fitted_runs  # imports torch

        return load_fitted_runs(self.job_of(arm), arm.method, self.trained_results(arm).job.folder)

    def freeze_runs(self, arm: Arm) -> FrozenRuns:
        """Load the fitted runs of an arm for the diagnostics, which share block lengths and so re-estimates."""
        from ..diagnostics import FrozenRuns

        method, fitted_runs = self.load_fitted_runs(arm)
        lengths = [self.estimate_block_length(fitted.run) for fitted in fitted_runs]
        return FrozenRuns(method, fitted_runs, self.connectomes, lengths)

    def measure_discrepancies(self, arm: Arm) -> pd.DataFrame:
        """Measure D_site and predictive variation of every run of an arm; all arms use the same re-estimates."""
        from ..diagnostics import measure_discrepancies

        if arm not in self._discrepancies:
            table = measure_discrepancies(self.freeze_runs(arm))
            auc = self.trained_results(arm).rows.set_index(["fold", "seed"])["auc"]
            order = pd.MultiIndex.from_frame(table[["fold", "seed"]])
            table.insert(0, "arm", arm.name)
            self._discrepancies[arm] = table.assign(auc=auc.loc[order].to_numpy())
        return self._discrepancies[arm]

    def estimate_block_length(self, run: Run) -> float:
        """Estimate the block length of a fold and seed, which all diagnostics share."""
        from ..diagnostics import estimate_source_block_length

        key = run.fold.name, run.seed
        if key not in self._block_lengths:
            self._block_lengths[key] = estimate_source_block_length(self.connectomes, run)
        return self._block_lengths[key]

    def plan_arm(self, arm: Arm) -> JobPlan:
        """Plan the runs of an arm."""
        job = self.job_of(arm)
        plan = build_plan(job, [arm.method])
        methods = {id(planned.method): planned.method for planned in plan.runs.values()}
        check_memory(methods.values(), job.cohort, job.device)
        folds = [planned.run.fold for planned in plan.runs.values()]
        if all(len(np.unique(job.cohort.labels[fold.test])) < 2 for fold in folds):
            names = list(dict.fromkeys(fold.name for fold in folds))
            where = f"fold{'s' if len(names) > 1 else ''} {', '.join(names)}"
            raise BrioError(f"{where}: {ONE_CLASS}, so there is no AUC; choose other folds")
        return plan

    def protocol_of(self, arm: Arm) -> str:
        """Return the protocol of an arm: that of the study, unless the arm is always k-fold."""
        return "kfold" if arm.protocol == "kfold" else self.job.spec.protocol

    def job_of(self, arm: Arm, progress: Progress = silent) -> Job:
        """Return the job of an arm."""
        of_label = self.job_for(arm.label)
        spec, folds = of_label.spec, of_label.spec.folds
        protocol = self.protocol_of(arm)
        if folds is not None and protocol == "kfold" and spec.protocol == "loso":
            n_folds = min(len(set(folds)), spec.protocol_settings.n_folds)
            folds = tuple(str(k + 1) for k in range(n_folds))
        shared = {key: value for key, value in spec.settings.items() if "." in key}
        settings = shared | spec.settings_of(arm.method) | dict(arm.settings)
        job = of_label.with_spec(protocol=protocol, settings=settings, folds=folds)
        return replace(job, progress=progress)

    def _find_reused(self, arm: Arm, plan: JobPlan) -> ArmResults | None:
        """Find the results of an arm in the first reused folder that has it; None if it is to be trained.

        Only plain arms with the study's own labels reuse results; tuned results are reused only by arms that allow it.
        """
        if arm.settings or arm.label is not None:
            return None
        protocol = plan.document.protocol
        jobs = [job for job in self.reused if job.summary.protocol == protocol and not job.summary.harmonise]
        having = [job for job in jobs if arm.method in job.summary.methods]
        for job in having:
            rows = self._select_reused_runs(job, arm.method, plan)
            if arm.tuned or not job.summary.methods[arm.method].is_tuned:
                self._check_reused_settings(job, arm.method)
                return ArmResults(arm, job, rows, reused=True)
        if having:
            self.say(f"{arm.name}: trained here, because the reused results are tuned")
        return None

    def _select_reused_runs(self, job: StoredJob, method: str, plan: JobPlan) -> pd.DataFrame:
        """Select the rows of the planned runs of a method in a finished job; an error where one is missing."""
        rows = job.rows[job.rows["method"] == method].set_index(["fold", "seed"], drop=False)
        runs = [(planned.run.fold.name, planned.run.seed) for planned in plan.runs.values()]
        for fold, seed in runs:
            if (fold, seed) not in rows.index:
                raise BrioError(
                    f"{job.folder}: has no run of '{method}' for fold {fold}, seed {seed}, which this study needs; "
                    "run that job with the folds and seeds of the study, or do not reuse the folder"
                )
        return rows.loc[runs].reset_index(drop=True)

    def _check_reused_settings(self, job: StoredJob, method: str) -> None:
        """Check that the settings given to a study are those of the runs that it reuses, unless these are tuned."""
        own, here = job.summary.methods[method], asdict(self.settings_of(method))
        there = asdict(make_method(method).settings) | own.changed
        for name in self.job.spec.settings_of(method):
            if there[name] != here[name] and not own.is_tuned:
                raise BrioError(
                    f"{job.folder}: its runs of '{method}' use {name}={there[name]}, but this study uses "
                    f"{name}={here[name]}; leave out the setting, or do not reuse the folder"
                )

    def _execute(self, arm: Arm, progress: Progress) -> ArmResults:
        job = self.job_of(arm, progress)
        stored = execute_plan(job, build_plan(job, [arm.method]), self._folder_of(arm))
        return ArmResults(arm, stored, stored.rows)

    def _folder_of(self, arm: Arm) -> Path:
        place = self.out
        if arm.label is not None:
            question = arm.label.replace(">", " above ").replace("=", " is ")
            place = place / LABELS / re.sub(r"[^\w.]+", "-", question).strip("-.")
        return place / "arms" / self.protocol_of(arm) / arm.name


def _check_settings(spec: JobSpec) -> None:
    """Refuse settings that no method has, and harmonisation, before anything is read."""
    names = {name for entry in list_methods() for name in entry.settings}
    for key in spec.method_settings:
        if key not in names:
            raise BrioError(f"no method has the setting '{key}'; {nearest(key, names)}")
    if split_settings(spec.settings)["harmonise"]:
        raise BrioError(
            "studies do not support harmonisation, because their diagnostics need the original connectomes; "
            "use 'brio run'"
        )

"""Results of finished jobs that a study reuses instead of training its arms again."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..errors import BrioError
from ..jobs.job import Job
from ..jobs.resume import write_job_plan
from ..methods import make_method
from ..protocol import FOLD_RULE, ProtocolSettings
from ..results import INTERVALS, MetricSummary, Plan, StoredJob, lock_folder, summarise_metrics, write_tables
from .arms import TUNED, Arm, ArmResults

REUSED, REUSED_OF_0_1 = "reused", "handed-in"
"""Folder of reused results inside the folder of studies, and its name in version 0.1.0."""


@dataclass(frozen=True, eq=False)
class ReusedResults:
    """A finished job whose results are reused for the methods it holds."""

    job: StoredJob

    def find_arm(
        self, arm: Arm, runs: Iterable[tuple[str, int]], given: Mapping[str, Any] = MappingProxyType({})
    ) -> ArmResults | None:
        """Find the results of an arm in the job.

        Only plain arms can be found, not those with settings of their own. Tuned results are found only for arms that
        allow them.

        Returns None if the job does not have the arm.
        """
        summary = self.job.summary
        if arm.settings or arm.method not in summary.methods or summary.protocol != arm.protocol or summary.harmonise:
            return None
        wanted = list(runs)
        rows = self.job.rows[self.job.rows["method"] == arm.method].set_index(["fold", "seed"], drop=False)
        for fold, seed in wanted:
            if (fold, seed) not in rows.index:
                raise BrioError(
                    f"{self.job.folder}: has no run of '{arm.method}' for fold {fold}, seed {seed}, which this study "
                    "needs; finish that job, or do not reuse the folder"
                )
        own = summary.methods[arm.method]
        if own.is_tuned and not arm.tuned:
            return None
        stored = dataclasses.asdict(make_method(arm.method).settings) | dict(own.changed or {})
        for name, value in given.items():
            if stored[name] != value and not own.is_tuned:
                raise BrioError(
                    f"{self.job.folder}: its runs of '{arm.method}' have {name}={stored[name]}, but this study is "
                    f"given {name}={value}; leave out the setting, or do not reuse the folder"
                )
        return ArmResults(arm, self.job, rows.loc[wanted].reset_index(drop=True), reused=True)


def read_reused_results(folder: Path, fingerprint: str, protocol_settings: ProtocolSettings) -> ReusedResults:
    """Read the folder of a finished job, to reuse its results in a study."""
    job = StoredJob.read(folder)
    summary, stored = job.summary, job.summary.protocol_settings
    if stored is None or any(method.changed is None for method in summary.methods.values()):
        raise BrioError(f"{folder}: was written by an earlier version, which did not store all settings; run it again")
    if summary.fingerprint != fingerprint:
        raise BrioError(f"{folder}: its runs are of another cohort, or have other exclusions")
    wanted = dataclasses.asdict(protocol_settings)
    for name in ["validation_sites"] if summary.protocol == "loso" else ["n_folds", "validation_folds"]:
        if stored.get(name) != wanted[name]:
            raise BrioError(
                f"{folder}: has other folds: protocol.{name} is {stored.get(name)} there, {wanted[name]} here"
            )
    if summary.protocol == "kfold" and summary.fold_rule != FOLD_RULE:
        raise BrioError(
            f"{folder}: its folds were made by an earlier rule, under which classes were not balanced; run it again"
        )
    return ReusedResults(job)


def write_reused_results(results: ArmResults, plan: Plan, job: Job, place: Path) -> None:
    """Write reused results of an arm as a job folder of its own, so that a report can show them."""
    name, rows, source = results.arm.method, results.rows, results.job
    folder = place / (results.arm.name + (TUNED if results.summary.is_tuned else ""))
    planned = plan.methods[name]
    tuned = source.tuning.choice(name) if source.tuning is not None and name in source.tuning.choices else None
    planned = dataclasses.replace(planned, settings=planned.settings | results.changed_settings, tuned=tuned)
    seeds = tuple(sorted(int(seed) for seed in rows["seed"].unique()))
    plan = dataclasses.replace(plan, methods={name: planned}, seeds=seeds, reused_from=str(source.folder))
    metrics: dict[str, Any] = {**summarise_metrics(rows, results.arm.protocol)}
    method = dataclasses.replace(results.summary, **metrics, runs=len(rows), seeds=len(seeds))
    if results.summary.seeds != len(seeds):  # the AUC of averaged logits needs the predictions of all seeds
        method = dataclasses.replace(method, auc_of_averaged_logits=MetricSummary())
        method = dataclasses.replace(method, pair_weighted_auc=None, auc_interval_over_people=None, p_chance=None)
    predictions = source.predictions
    if predictions is not None:
        selected = predictions["method"].eq(name) & predictions["seed"].isin(seeds)
        predictions = predictions[selected & predictions["fold"].isin(rows["fold"])]
    summary = dataclasses.replace(
        source.summary,
        methods={name: method},
        n_excluded=len(plan.excluded),
        seeds=seeds,
        intervals=INTERVALS[results.arm.protocol],
        warnings=(),
    )
    with lock_folder(folder):
        write_job_plan(job, plan, folder)
        write_tables(folder, rows, predictions, summary)

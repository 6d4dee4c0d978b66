"""Running a job: its methods with their settings, or with those that an earlier search chose for each fold."""

from __future__ import annotations

from pathlib import Path

from ..progress import Progress, silent
from .execute import FinishedJob, execute_plan, start_job
from .job import Say, ignore
from .plan import build_plan
from .resume import read_earlier_plan
from .spec import JobSpec
from .tuning import plan_tuned_methods


def run_job(spec: JobSpec, out: Path, progress: Progress = silent, say: Say = ignore) -> FinishedJob:
    """Evaluate the methods of a specification; runs that are finished in ``out`` are not computed again."""
    read_earlier_plan(out)
    job, names = start_job(spec, progress, say)
    return FinishedJob(job, execute_plan(job, build_plan(job, names, plan_tuned_methods(job, names)), out))

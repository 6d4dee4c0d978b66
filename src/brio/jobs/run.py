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

__all__ = ["run_job"]


def run_job(spec: JobSpec, out: Path, progress: Progress = silent, say: Say = ignore) -> FinishedJob:
    """Evaluate the methods of a specification; runs that are finished in ``out`` are not computed again.

    Parameters
    ----------
    spec : JobSpec
    out : Path
        Folder of the job.
    progress : Progress
    say : function of a line

    Raises
    ------
    BrioError
        If something in the specification is wrong, or the folder belongs to another job.
    """
    read_earlier_plan(out)
    job, names = start_job(spec, progress, say)
    return FinishedJob(job, execute_plan(job, build_plan(job, names, plan_tuned_methods(job, names)), out))

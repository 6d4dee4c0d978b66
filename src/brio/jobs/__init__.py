"""Jobs: what a job is, planning, resuming, tuning, and the engine that trains its runs on this machine."""

from .execute import FinishedJob
from .job import Job, prepare_job
from .run import run_job
from .spec import JobSpec
from .tuning import tune_job

__all__ = ["FinishedJob", "Job", "JobSpec", "prepare_job", "run_job", "tune_job"]

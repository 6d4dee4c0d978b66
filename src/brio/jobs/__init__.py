"""Jobs: what a job is, planning, resuming, tuning, and the engines that train its runs here or on many machines."""

from .job import Job, prepare_job
from .run import run_job, tune_job
from .spec import JobSpec

__all__ = ["Job", "JobSpec", "prepare_job", "run_job", "tune_job"]

"""Runs: what a job is, the store of finished runs, tuning, and the engine that executes jobs on this machine."""

from .execute import Result, run
from .store import RunStore
from .tune import tune
from .tuned import Tuned

__all__ = ["Result", "RunStore", "Tuned", "run", "tune"]

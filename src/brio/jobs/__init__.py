"""Runs: what a job is, the store of finished runs, tuning, and the engine that executes jobs on this machine."""

from .execute import Result, run
from .search import tune
from .store import RunStore
from .tuned import Tuned

__all__ = ["Result", "RunStore", "Tuned", "run", "tune"]

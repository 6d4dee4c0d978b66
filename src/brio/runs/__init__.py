"""Runs: what a job is, the store of finished runs, and the engine that executes jobs on this machine."""

from .execute import Result, run
from .store import RunStore

__all__ = ["Result", "RunStore", "run"]

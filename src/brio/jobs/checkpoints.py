"""Checkpoints of stacks in training: when they are stored, what they belong to, and what is said of them."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path

import numpy as np
import torch

from ..errors import BrioError
from ..results import Plan
from ..results.checkpoint import read_checkpoint, write_checkpoint
from ..training import StackCheckpoint
from .job import Job

FORMAT = 2
"""Increase it whenever a checkpoint holds something else, or means it otherwise."""


class CheckpointFile:
    """The checkpoint of one stack, in the folder of its job (:class:`brio.training.CheckpointStore`).

    A checkpoint that cannot be trusted is named and not used.
    """

    def __init__(self, path: Path, identity: str, every: float) -> None:
        self._path, self._identity, self._every = path, identity, every
        self._found: StackCheckpoint | None = None
        self._earlier_seconds, self.message = 0.0, ""
        if path.exists():
            try:
                self._found, self._earlier_seconds = read_checkpoint(path, identity)
                self.message = f"resuming after {self._found.describe()}"
            except BrioError as problem:
                self.message = str(problem)
        self.start_clock()

    def start_clock(self) -> None:
        """Count seconds from now on."""
        self._start = self._last = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds that the stack has trained, those up to the checkpoint included."""
        return self._earlier_seconds + time.monotonic() - self._start

    def load(self) -> StackCheckpoint | None:
        """Return the checkpoint that was found, once."""
        found, self._found = self._found, None
        return found

    def is_due(self) -> bool:
        """Return whether enough seconds have passed since the last checkpoint, or since the start."""
        return self._every > 0 and time.monotonic() - self._last >= self._every

    def save(self, checkpoint: StackCheckpoint) -> None:
        """Write a checkpoint in place of the one before."""
        write_checkpoint(self._path, self._identity, self.seconds, checkpoint)
        self._last = time.monotonic()


def checkpoint_identity(job: Job, plan: Plan, stack: tuple[str, ...]) -> str:
    """Compute what a checkpoint belongs to: the plan, the stack, the device and the versions that computed it."""
    identity = {
        "format": FORMAT,
        "plan": plan.identify(),
        "stack": stack,
        "device": job.device.describe(),
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()

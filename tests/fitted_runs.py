"""Fitted runs compared, and the checkpoints of a training."""

import json
from pathlib import Path

import numpy as np
import torch

from brio.results.store import read_checkpoint, write_checkpoint
from brio.training import FittedRun, StackCheckpoint

FACTS = ("validation_auc", "selected_epoch", "trained_epochs", "block_length", "details", "steps")


def same_weights(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)


def assert_same_training(one: FittedRun, other: FittedRun) -> None:
    """Weights, state and facts agree bit for bit; NaN equals NaN."""
    facts = [json.dumps({name: getattr(fitted, name) for name in FACTS}) for fitted in (one, other)]
    assert facts[0] == facts[1]
    assert [(n, t.dtype) for n, t in one.tensors.items()] == [(n, t.dtype) for n, t in other.tensors.items()]
    assert [n for n, t in one.tensors.items() if not torch.equal(t, other.tensors[n])] == []


def assert_same_runs(runs: list[FittedRun], others: list[FittedRun]) -> None:
    """The margins of the test scans agree as well."""
    for one, other in zip(runs, others, strict=True):
        assert_same_training(one, other)
        assert np.array_equal(one.run.fold.test, other.run.fold.test)
        assert np.array_equal(one.test_logit, other.test_logit, equal_nan=True)


def assert_close_run(fitted: FittedRun, alone: FittedRun, logit: float = 1e-7) -> None:
    """A run in a stack agrees with the run alone, up to rounding."""
    assert fitted.selected_epoch == alone.selected_epoch
    assert fitted.tensors.keys() == alone.tensors.keys()
    for name, t in alone.tensors.items():
        torch.testing.assert_close(fitted.tensors[name], t, atol=1e-8, rtol=0, msg=name)
    np.testing.assert_allclose(fitted.test_logit, alone.test_logit, atol=logit)


class StoredCheckpoints:
    """The checkpoint of every epoch as it is read from a file, after the one that the training begins with."""

    def __init__(self, folder: Path, start: StackCheckpoint | None = None) -> None:
        self.file, self.start, self.stored = folder / "checkpoint.safetensors", start, []

    def load(self) -> StackCheckpoint | None:
        return self.start

    def is_due(self) -> bool:
        return True

    def save(self, checkpoint: StackCheckpoint) -> None:
        write_checkpoint(self.file, "tests", 1.5, checkpoint)
        self.stored.append(read_checkpoint(self.file, "tests")[0])

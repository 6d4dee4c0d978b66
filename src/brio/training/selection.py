"""Choosing each run's checkpoint by AUC on its validation scans, and knowing when to stop."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from typing import Protocol

import numpy as np
import torch

from ..cohort import Cohort
from ..errors import BrioError
from ..protocol import auc
from .fitted_run import Run, Tensors

ScoreScans = Callable[[np.ndarray], np.ndarray]
"""Logit margins of scans of each run, positions [R, n] in and margins [R, n] out."""


class SelectionSettings(Protocol):
    """Settings that the choice of a checkpoint reads, see :class:`brio.training.NeuralSettings`."""

    @property
    def validation_auc(self) -> str: ...
    @property
    def patience(self) -> int | None: ...


def rank_auc(logit: np.ndarray, label: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Compute the AUC of each row over the masked entries, ties counted half.

    Shapes: logit [R, n], label [R, n], mask [R, n]; returns [R].

    Returns NaN where the labels are of one class only, or the run has diverged.
    """
    finite = [bool(np.isfinite(row[here]).all()) for row, here in zip(logit, mask, strict=True)]
    rows = zip(label, logit, mask, finite, strict=True)
    return np.array([auc(y[here], row[here]) if ok else np.nan for y, row, here, ok in rows])


class CheckpointChoice(ABC):
    """The best checkpoint so far of each run in a stack.

    Shapes: best [R], epoch [R], checkpoint [R, ...], curve [R].
    """

    best: np.ndarray  # score of the checkpoint; not finite while there is none
    epoch: np.ndarray  # epoch of the checkpoint, counted from 1; 0 before the first

    def __init__(self) -> None:
        self.checkpoint: Tensors = {}
        self.curve: list[tuple[int, np.ndarray]] = []

    @abstractmethod
    def consider(self, score_scans: ScoreScans, tensors: Tensors, epoch: int) -> None:
        """Consider the tensors after an epoch as the checkpoint.

        Shapes: tensors [R, ...].
        """

    @abstractmethod
    def is_finished(self, epoch: int) -> np.ndarray:
        """Which runs need no further epoch. Shape [R], bool."""

    def select(self, keep: np.ndarray) -> CheckpointChoice:
        """Select some of the runs (boolean mask)."""
        out = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(out, name, value[keep])
        out.curve = [(epoch, score[keep]) for epoch, score in self.curve]
        rows = torch.from_numpy(np.flatnonzero(keep))
        out.checkpoint = {name: t[rows.to(t.device)] for name, t in self.checkpoint.items()}
        return out

    def keep(self, tensors: Tensors, which: np.ndarray) -> None:
        """Keep the present tensors of some runs (boolean mask)."""
        if not self.checkpoint:
            self.checkpoint = {name: t.clone() for name, t in tensors.items()}
        elif which.any():
            rows = torch.from_numpy(np.flatnonzero(which))
            for name, t in tensors.items():
                self.checkpoint[name][rows.to(t.device)] = t[rows.to(t.device)]


class BestValidationEpoch(CheckpointChoice):
    """The best AUC on the validation scans of each run, until patience ends.

    Shapes: scans [R, n].
    """

    def __init__(self, cohort: Cohort, runs: Sequence[Run], settings: SelectionSettings) -> None:
        super().__init__()
        width = max(len(run.fold.validation) for run in runs)
        self.rule, self.patience = settings.validation_auc, settings.patience
        self.scans = np.zeros((len(runs), width), dtype=np.int64)
        self.mask = np.zeros((len(runs), width), dtype=bool)
        for r, run in enumerate(runs):
            scans = run.fold.validation
            if len(np.unique(cohort.labels[scans])) < 2:
                raise BrioError(
                    f"fold {run.fold.name}: the validation scans ({', '.join(run.fold.validation_sites)}) hold one "
                    "class only, so no checkpoint can be chosen; use more validation sites, or larger validation folds"
                )
            self.scans[r, : len(scans)] = scans
            self.mask[r, : len(scans)] = True
        self.label = cohort.labels[self.scans]
        self.site = cohort.sites[self.scans]
        self.best = np.full(len(runs), -np.inf)
        self.epoch = np.zeros(len(runs), dtype=np.int64)

    def score(self, logit: np.ndarray) -> np.ndarray:
        """AUC of each run under the selection rule. Shape [R, n] -> [R]."""
        if self.rule == "pooled":
            return rank_auc(logit, self.label, self.mask)
        rows = []
        for r in range(len(logit)):
            here = [self.mask[r] & (self.site[r] == s) for s in np.unique(self.site[r][self.mask[r]])]
            one = [rank_auc(logit[r : r + 1], self.label[r : r + 1], m[None])[0] for m in here]
            rows.append(np.nanmean(one))
        return np.array(rows)

    def consider(self, score_scans: ScoreScans, tensors: Tensors, epoch: int) -> None:
        score = self.score(score_scans(self.scans))
        self.curve.append((epoch, score))
        better = score > self.best
        self.best[better], self.epoch[better] = score[better], epoch
        self.keep(tensors, better)

    def is_finished(self, epoch: int) -> np.ndarray:
        return epoch - self.epoch >= (math.inf if self.patience is None else self.patience)


class BestMeanEpoch(BestValidationEpoch):
    """The best mean AUC over inner folds, each of which is a row of the stack; those of one run stop together.

    Shapes: owner [R].
    """

    def __init__(self, cohort: Cohort, runs: Sequence[Run], settings: SelectionSettings, owner: np.ndarray) -> None:
        super().__init__(cohort, runs, settings)
        self.owner = owner
        self.rule = "pooled"  # an inner fold is one site, or too few scans of each for an AUC of their own

    def score(self, logit: np.ndarray) -> np.ndarray:
        """Mean AUC over the inner folds of a run, the same for each of them. Shape [R, n] -> [R]."""
        _, owner = np.unique(self.owner, return_inverse=True)
        return (np.bincount(owner, super().score(logit)) / np.bincount(owner))[owner]


class GivenEpoch(CheckpointChoice):
    """The checkpoint of each run after an epoch that is given, whatever it scores. ``wanted``: int64, shape [R]."""

    def __init__(self, wanted: np.ndarray) -> None:
        super().__init__()
        self.wanted = wanted
        self.best = np.full(len(wanted), -np.inf)
        self.epoch = np.zeros(len(wanted), dtype=np.int64)

    def consider(self, score_scans: ScoreScans, tensors: Tensors, epoch: int) -> None:
        now = self.wanted == epoch
        self.best[now], self.epoch[now] = 0.0, epoch
        self.keep(tensors, now)

    def is_finished(self, epoch: int) -> np.ndarray:
        return self.wanted <= epoch

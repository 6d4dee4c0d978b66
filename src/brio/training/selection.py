"""Choosing each run's checkpoint by AUC on its validation scans, and knowing when to stop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..cohort import Cohort
from ..errors import BrioError
from .contract import Run

__all__ = ["Validation", "rank_auc"]


def rank_auc(logit: np.ndarray, label: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """AUC of each row over the masked entries, ties counted half. Shapes [R, n] -> [R].

    NaN for one class, and for a run that has diverged."""
    positive, negative = mask & (label == 1), mask & (label == 0)
    out = np.full(len(logit), np.nan)
    for r in range(len(logit)):
        p, q = logit[r, positive[r]], np.sort(logit[r, negative[r]])
        if len(p) and len(q) and np.isfinite(logit[r, mask[r]]).all():
            below, not_above = np.searchsorted(q, p, "left"), np.searchsorted(q, p, "right")
            out[r] = (below + not_above).sum() / (2.0 * len(p) * len(q))
    return out


class Validation:
    """Validation scans of every run in a stack and the best checkpoint seen so far.

    Attributes
    ----------
    scans : ndarray of int64, shape [R, n]
        Padded positions of the validation scans.
    best : ndarray, shape [R]
        Best validation AUC so far.
    epoch : ndarray of int64, shape [R]
        Its epoch, counted from 1; 0 before the first.
    curve : list of (int, ndarray of shape [R])
        Every epoch that was scored, with the validation AUC of each run.
    """

    def __init__(self, cohort: Cohort, runs: Sequence[Run], rule: str) -> None:
        width = max(len(run.fold.validation) for run in runs)
        self.rule = rule
        self.scans = np.zeros((len(runs), width), dtype=np.int64)
        self.mask = np.zeros((len(runs), width), dtype=bool)
        for r, run in enumerate(runs):
            scans = run.fold.validation
            if len(np.unique(cohort.labels[scans])) < 2:
                raise BrioError(
                    f"fold {run.fold.name}: the validation scans ({', '.join(run.fold.validation_sites)}) hold one "
                    "class only, so no checkpoint can be chosen; use more validation sites"
                )
            self.scans[r, : len(scans)] = scans
            self.mask[r, : len(scans)] = True
        self.label = cohort.labels[self.scans]
        self.site = cohort.sites[self.scans]
        self.best = np.full(len(runs), -np.inf)
        self.epoch = np.zeros(len(runs), dtype=np.int64)
        self.kept: dict[str, Tensor] = {}
        self.curve: list[tuple[int, np.ndarray]] = []

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

    def offer(self, logit: np.ndarray, state: dict[str, Tensor], epoch: int) -> None:
        """Keep the present state of the runs whose validation AUC rose."""
        score = self.score(logit)
        self.curve.append((epoch, score))
        better = score > self.best
        self.best[better], self.epoch[better] = score[better], epoch
        if not self.kept:
            self.kept = {name: t.clone() for name, t in state.items()}
        elif better.any():
            rows = torch.from_numpy(np.flatnonzero(better))
            for name, t in state.items():
                self.kept[name][rows.to(t.device)] = t[rows.to(t.device)]

    def select(self, keep: np.ndarray) -> Validation:
        """Go on with some of the runs."""
        out = object.__new__(Validation)
        out.rule = self.rule
        out.scans, out.mask, out.label, out.site = (a[keep] for a in (self.scans, self.mask, self.label, self.site))
        out.best, out.epoch = self.best[keep], self.epoch[keep]
        out.curve = [(epoch, score[keep]) for epoch, score in self.curve]
        rows = torch.from_numpy(np.flatnonzero(keep))
        out.kept = {name: t[rows.to(t.device)] for name, t in self.kept.items()}
        return out

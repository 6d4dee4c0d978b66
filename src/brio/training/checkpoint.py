"""Which epoch is kept, and checkpoints of a training that goes on after an interruption."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from ..cohort import Cohort
from ..errors import BrioError
from ..protocol import auc
from .contract import FittedRun, Run, RunState, Tensors, group_tensors
from .stack import Stack, StackedAdamW

if TYPE_CHECKING:
    from .neural import NeuralSettings

ScoreScans = Callable[[np.ndarray], np.ndarray]
"""Logit margins of scans of each run, positions [R, n] in and margins [R, n] out."""


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

    def __init__(self, cohort: Cohort, runs: Sequence[Run], settings: NeuralSettings) -> None:
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

    def __init__(self, cohort: Cohort, runs: Sequence[Run], settings: NeuralSettings, owner: np.ndarray) -> None:
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


Tree = dict[str, Any]
"""Tensors and arrays by name, in groups inside groups."""


class StackCheckpoint(NamedTuple):
    """What is stored of a stack in training."""

    facts: dict[str, Any]  # ready for JSON
    tensors: Tensors  # on the CPU, with the strides of a fresh tensor; no two share memory

    def describe(self) -> str:
        """Say after which epoch it was stored."""
        number = len(self.facts["finished"]) + 1
        return f"epoch {self.facts['epoch']}" + (f" of training {number}" if number > 1 else "")


class CheckpointStore(Protocol):
    """Where the training of one stack keeps its checkpoint."""

    def load(self) -> StackCheckpoint | None:
        """Return the checkpoint of an interrupted training of the same stack, or None."""

    def is_due(self) -> bool:
        """Return whether it is time for another checkpoint."""

    def save(self, checkpoint: StackCheckpoint) -> None:
        """Store a checkpoint in place of the one before."""


@dataclass(eq=False)
class StackTraining:
    """Where the training of a stack stands between two epochs.

    Shapes: order [R], running [R].
    """

    stack: Stack  # runs that have stopped may have left it
    optimiser: StackedAdamW
    choice: CheckpointChoice
    order: np.ndarray  # which of the runs each row of the stack is
    running: np.ndarray
    done: dict[int, FittedRun]  # runs that have stopped, by number
    epoch: int = 0  # epochs that are finished, of all stages

    def select(self, keep: np.ndarray) -> None:
        """Go on with some rows of the stack (boolean mask, shape [R])."""
        self.stack, self.choice = self.stack.select(keep), self.choice.select(keep)
        rows = torch.from_numpy(np.flatnonzero(keep)).to(self.stack.connectomes.device)
        self.optimiser.select(self.stack.params, rows)
        self.order, self.running = self.order[keep], self.running[keep]

    def to_tree(self) -> Tree:
        """Return all tensors and arrays that an epoch changes."""
        stack, optimiser, choice = self.stack, self.optimiser, self.choice
        return {
            "params": stack.params,
            "buffers": stack.buffers,
            "state": stack.state._asdict(),
            "optimiser": {"mean": optimiser.mean, "square": optimiser.square, "steps": optimiser.steps},
            "best": choice.checkpoint,
            # numbers of a choice of any class; names of sites and the like are those of the runs
            "choice": {n: v for n, v in vars(choice).items() if isinstance(v, np.ndarray) and v.dtype.kind in "biuf"},
            "curve": {str(epoch): score for epoch, score in choice.curve},
            "rows": {"order": self.order, "running": self.running},
            "done": {str(number): _fitted_tree(fitted) for number, fitted in self.done.items()},
        }

    def restore(self, facts: Mapping[str, Any], tree: Tree) -> None:
        """Take over from an interrupted training of the same runs, which has just begun anew here."""
        order, runs = tree["rows"]["order"].numpy(), self.stack.runs
        self.done = {int(n): _restore_fitted(one, tree["done"][n], runs[int(n)]) for n, one in facts["done"].items()}
        if len(order) < len(self.stack):
            self.select(np.isin(np.arange(len(self.stack)), order))
        stack, optimiser, choice = self.stack, self.optimiser, self.choice
        tree = _move(tree, stack.connectomes.device)
        stack.params = {name: p.requires_grad_() for name, p in tree["params"].items()}
        stack.buffers = tree.get("buffers", {})
        groups = tree.get("state", {})
        stack.state = RunState(*(groups.get(name, {}) for name in RunState._fields))
        optimiser.params = stack.params
        optimiser.mean, optimiser.square = tree["optimiser"]["mean"], tree["optimiser"]["square"]
        optimiser.steps = tree["optimiser"]["steps"]
        choice.checkpoint = tree.get("best", {})
        for name, value in tree["choice"].items():
            setattr(choice, name, value.cpu().numpy())
        choice.curve = [(int(epoch), score.cpu().numpy()) for epoch, score in tree.get("curve", {}).items()]
        self.order, self.running = (tree["rows"][n].cpu().numpy() for n in ("order", "running"))
        self.epoch = facts["epoch"]


class ResumableTraining:
    """The trainings of one stack, one after the other (a fit, a refit), and the checkpoint that they go on from.

    A training is known by its number: the same stack has the same trainings in the same order.
    """

    def __init__(self, store: CheckpointStore | None = None) -> None:
        self._store = store
        loaded = None if store is None else store.load()
        self._facts: dict[str, Any] | None = None if loaded is None else loaded.facts
        self._tree = {} if loaded is None else _nest_tensors(loaded)
        self._finished: list[list[FittedRun]] = []

    def find_finished(self, runs: Sequence[Run]) -> list[FittedRun] | None:
        """Return the fitted runs of the next training if the interrupted job had finished it, else None."""
        number = len(self._finished)
        if self._facts is None or number >= len(self._facts["finished"]):
            return None
        trees = self._tree["finished"][str(number)]
        fitted_runs = [
            _restore_fitted(facts, trees[str(i)], run)
            for i, (facts, run) in enumerate(zip(self._facts["finished"][number], runs, strict=True))
        ]
        self._finished.append(fitted_runs)
        return fitted_runs

    def restore(self, training: StackTraining) -> None:
        """Let a training that has just begun take over from the interrupted one, if there is one."""
        if self._facts is not None:
            training.restore(self._facts, self._tree["now"])
            self._facts, self._tree = None, {}

    def save_if_due(self, training: StackTraining) -> None:
        """Store a checkpoint of the present training, after an epoch, if it is time for one."""
        if self._store is None or not self._store.is_due():
            return
        facts = {
            "epoch": training.epoch,
            "done": {str(number): _fitted_facts(fitted) for number, fitted in training.done.items()},
            "finished": [[_fitted_facts(fitted) for fitted in fitted_runs] for fitted_runs in self._finished],
        }
        finished = [{str(i): _fitted_tree(one) for i, one in enumerate(runs)} for runs in self._finished]
        tree = {"now": training.to_tree(), "finished": {str(k): one for k, one in enumerate(finished)}}
        self._store.save(_flatten_tensors(facts, tree))

    def finish(self, fitted_runs: list[FittedRun]) -> list[FittedRun]:
        """Note the fitted runs of the present training, and return them."""
        self._finished.append(fitted_runs)
        return fitted_runs


_IN_TREE = ("run", "test_logit", "parameters", "state")
"""Fields of a fitted run that are its tensors, or given."""


def _fitted_facts(fitted: FittedRun) -> dict[str, Any]:
    return {field.name: getattr(fitted, field.name) for field in fields(fitted) if field.name not in _IN_TREE}


def _fitted_tree(fitted: FittedRun) -> Tree:
    return {"test_logit": fitted.test_logit, "tensors": fitted.tensors}


def _restore_fitted(facts: Mapping[str, Any], tree: Tree, run: Run) -> FittedRun:
    parameters, state = group_tensors(tree.get("tensors", {}))
    return FittedRun(run=run, test_logit=tree["test_logit"].numpy(), parameters=parameters, state=state, **facts)


def _flatten_tensors(facts: dict[str, Any], tree: Tree) -> StackCheckpoint:
    """Give every tensor of a tree one name, and note its place in the tree and in memory.

    Sums in another order of memory may round differently, so strides are restored too.
    """
    places: dict[str, dict[str, list]] = {}
    tensors: Tensors = {}

    def walk(branch: Tree, groups: list[str]) -> None:
        for name, value in branch.items():
            path = [*groups, name]
            if isinstance(value, dict):
                walk(value, path)
            else:
                t = torch.from_numpy(value) if isinstance(value, np.ndarray) else value.detach()
                places["/".join(path)] = {"path": path, "stride": list(t.stride())}
                # not contiguous(): it keeps a stride of 0 where a tensor is empty or an axis has length 1
                fresh = torch.empty_like(t, device="cpu", memory_format=torch.contiguous_format)
                tensors["/".join(path)] = fresh.copy_(t)

    walk(tree, [])
    return StackCheckpoint({**facts, "places": places}, tensors)


def _nest_tensors(checkpoint: StackCheckpoint) -> Tree:
    """Undo :func:`_flatten_tensors`; groups without a tensor are lost."""
    tree: Tree = {}
    for full_name, place in checkpoint.facts["places"].items():
        *groups, name = place["path"]
        branch = tree
        for group in groups:
            branch = branch.setdefault(group, {})
        branch[name] = _restride(checkpoint.tensors[full_name], place["stride"])
    return tree


def _restride(t: Tensor, stride: Sequence[int]) -> Tensor:
    """Lay out a contiguous tensor in memory with other strides, where these leave no gap and no overlap."""
    expected = 1
    for size, step in sorted(zip(t.shape, stride, strict=True), key=lambda pair: pair[1]):
        if size != 1 and step != expected:
            return t
        expected *= size
    return torch.empty_strided(t.shape, stride, dtype=t.dtype).copy_(t)


def _move(tree: Tree, device: torch.device) -> Tree:
    return {n: _move(value, device) if isinstance(value, dict) else value.to(device) for n, value in tree.items()}

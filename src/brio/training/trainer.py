"""The training of a stack: stages and steps, choice of the epoch of each run, resuming after an interruption."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from .. import draws
from ..cohort import Cohort
from ..connectome import Connectomes
from ..console import Progress, report_part
from ..errors import BrioError
from ..formatting import format_count
from ..protocol import auc, count_inner_folds, make_inner_folds
from .contract import FittedRun, Run, RunState, Stage, Tensors, group_tensors
from .stack import Stack, StackedAdamW

if TYPE_CHECKING:
    from .neural import NeuralMethod, NeuralSettings


COMPACT_BELOW = 0.75
"""Runs that have stopped leave the stack once at most this share of it is running; a smaller stack is a new one."""


class Trainer:
    """The trainings of one stack, one after the other (a fit, a refit), and the checkpoint from which they resume.

    A training is identified by its number: the same stack has the same trainings in the same order.
    """

    def __init__(self, method: NeuralMethod, connectomes: Connectomes, store: CheckpointStore | None = None) -> None:
        self.method, self.connectomes, self._store = method, connectomes, store
        loaded = None if store is None else store.load()
        self._interrupted: Tree = {"finished": []} if loaded is None else loaded.to_tree()
        self._finished: list[list[FittedRun]] = []

    def fit(self, runs: Sequence[Run], progress: Progress) -> list[FittedRun]:
        """Train the runs and score their test scans.

        Validation scans choose the checkpoint of each run. Where folds have none, inner folds of the source scans
        choose the number of epochs, and each run is trained on all its source scans to that epoch.
        """
        cohort, settings = self.connectomes.cohort, self.method.settings
        if any(len(run.fold.validation) for run in runs):
            first_share = 0.5 if settings.refit else 1.0
            choice = BestValidationEpoch(cohort, runs, settings)
            first_fits = self.train(runs, choice, report_part(progress, 0.0, first_share))
            if not settings.refit:
                return first_fits
        else:
            n_inner = sum(count_inner_folds(cohort, run.fold) for run in runs)
            first_share = n_inner / (n_inner + len(runs))  # of all trainings, if each takes as long
            first_fits = self._choose_by_inner_folds(runs, report_part(progress, 0.0, first_share))
        sound = [first for first in first_fits if first.selected_epoch is not None]  # the others have diverged
        if not sound:
            return first_fits
        refits = [Run(first.run.fold.move_validation_to_source(cohort), first.run.seed) for first in sound]
        epochs = GivenEpoch(np.array([first.selected_epoch for first in sound], dtype=np.int64))
        second_fits = iter(self.train(refits, epochs, report_part(progress, first_share, 1 - first_share)))
        return [
            first if first.selected_epoch is None else _merge_fits(first, next(second_fits)) for first in first_fits
        ]

    def _choose_by_inner_folds(self, runs: Sequence[Run], progress: Progress) -> list[FittedRun]:
        """Choose the epoch of each run by a training for each inner fold; the weights are those of the first."""
        cohort = self.connectomes.cohort
        folds = [make_inner_folds(cohort, run.fold, run.seed) for run in runs]
        inner_runs = [Run(fold, run.seed) for run, own in zip(runs, folds, strict=True) for fold in own]
        owner = np.repeat(np.arange(len(runs)), [len(own) for own in folds])
        choice = BestMeanEpoch(cohort, inner_runs, self.method.settings, owner)
        fits = self.train(inner_runs, choice, lambda message, share: progress(f"inner folds: {message}", share))
        chosen = []
        for r, run in enumerate(runs):
            own = [fits[i] for i in np.flatnonzero(owner == r)]
            none = np.full(len(run.fold.test), np.nan)
            chosen.append(replace(own[0], run=run, test_logit=none, steps=sum(fit.steps or 0 for fit in own)))
        return chosen

    def train(self, runs: Sequence[Run], choice: CheckpointChoice, progress: Progress) -> list[FittedRun]:
        """Train runs together until the checkpoint of each run is chosen."""
        number, interrupted = len(self._finished), self._interrupted
        if number < len(interrupted["finished"]):
            trees = zip(interrupted["finished"][number], runs, strict=True)
            self._finished.append([_restore_fitted(tree, run) for tree, run in trees])
            return self._finished[-1]
        method, settings = self.method, self.method.settings
        stack = Stack.build(method, self.connectomes, runs)
        optimiser = StackedAdamW(stack.params, settings.learning_rate, settings.weight_decay)
        now = StackTraining(stack, optimiser, choice, np.arange(len(stack)), np.ones(len(stack), dtype=bool), {})
        if "now" in interrupted:
            now.restore(interrupted.pop("now"))
        stages = method.stages()
        total = sum(stage.epochs for stage in stages)
        end = 0
        for stage in stages:
            start, end = end, end + stage.epochs
            if now.epoch <= start:  # else the interrupted training had begun it
                method.begin_stage(now.stack, stage)
                if stage.fresh_optimiser:
                    optimiser.forget()
            step = Step(now.stack, optimiser, stage)
            while now.epoch < end:
                runs_left = format_count(int(now.running.sum()), "run")
                progress(f"{runs_left}, {stage.name}, epoch {now.epoch + 1} of {total}", now.epoch / total)
                if stage.refresh_every is not None and (now.epoch - start) % stage.refresh_every == 0:
                    method.refresh(now.stack, now.running, (now.epoch - start) // stage.refresh_every)
                now.epoch += 1
                if settings.schedule == "cosine":
                    share = 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * (now.epoch - 1) / max(1, total - 1)))
                    optimiser.rate.fill_(settings.learning_rate * share)
                _train_epoch(method, step, now.epoch, now.running)
                if stage.selectable:
                    now.stop_runs(last=now.epoch == total)
                    if not now.running.any():
                        self._finished.append([now.done[i] for i in range(len(runs))])
                        return self._finished[-1]
                    if now.running.mean() <= COMPACT_BELOW:
                        now.select(now.running)
                        step = Step(now.stack, optimiser, stage)
                if self._store is not None and self._store.is_due():
                    finished = [[_to_tree(fitted) for fitted in fitted_runs] for fitted_runs in self._finished]
                    self._store.save(StackCheckpoint.of_tree({"now": now.to_tree(), "finished": finished}))
        raise BrioError(
            f"method '{method.name}' ends without a checkpoint to choose; make its last stage selectable, with an epoch"
        )


def _merge_fits(first: FittedRun, second: FittedRun) -> FittedRun:
    """Return the refitted run with the score that chose its epoch in the first fit; NaN if the refit diverged."""
    finite = all(bool(t.isfinite().all()) for t in second.tensors.values()) and np.isfinite(second.test_logit).all()
    score = first.validation_auc if finite else float("nan")
    facts: dict[str, Any] = {"trained_epochs": first.trained_epochs, "details": first.details, "steps": first.steps}
    return replace(second, run=first.run, validation_auc=score, **facts)


class Step:
    """Loss, gradient and update of every active run under one stage.

    The models are so small that a GPU spends most of a step waiting for the next kernel to be launched. So the second
    call is recorded as a CUDA graph, and every later one replays it on new inputs. Everything else that a step reads
    (parameters, state) must be changed in place and never moved; a new stage or a stack of other runs needs a new step.
    """

    def __init__(self, stack: Stack, optimiser: StackedAdamW, stage: Stage) -> None:
        self.stack, self.optimiser, self.stage = stack, optimiser, stage
        for name, p in stack.params.items():
            p.requires_grad_(not name.startswith(stage.frozen) if stage.frozen else True)
        self._called = False
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: tuple[Tensor, ...] = ()

    def __call__(self, scans: np.ndarray, active: np.ndarray, key: np.ndarray, epoch: int) -> None:
        """Take one step. Shapes: scans [R, E, 2, n], active [R], key [R]."""
        inputs = tuple(self.stack.to_tensor(a) for a in (scans, active, key, np.array(float(epoch))))
        if inputs[0].device.type == "cpu" or not self._called:
            self._take_step(*inputs)
            self._called = True
            return
        if self._graph is None:
            self._inputs = inputs
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._take_step(*self._inputs)
        else:
            for recorded, new in zip(self._inputs, inputs, strict=True):
                recorded.copy_(new)
        self._graph.replay()

    def _take_step(self, scans: Tensor, active: Tensor, key: Tensor, epoch: Tensor) -> None:
        updated = [*self.stack.buffers.values(), *self.stack.state.training.values()]  # what a loss may change in place
        before = [(t, t.clone(), t._version) for t in updated]
        losses = self.stack.compute_losses(scans, key, epoch, self.stage)
        torch.where(active, losses, torch.zeros_like(losses)).sum().backward()
        self.optimiser.step(active)
        for t, old, version in before:  # an inactive run keeps its own
            if t._version != version:
                t.copy_(torch.where(active.view(-1, *[1] * (t.dim() - 1)), t, old))


def _train_epoch(method: NeuralMethod, step: Step, epoch: int, running: np.ndarray) -> None:
    """Train one epoch of the runs that are still running."""
    sources = step.stack.sources
    batches, active = sources.batches(epoch, method.settings.cell_batch)
    for number, (scans, takes_step) in enumerate(zip(batches, active & running, strict=True)):
        key = draws.key(sources.seeds, "step", epoch, number).view(np.int64)
        step(scans, takes_step, key, epoch)


def _build_fitted_run(stack: Stack, choice: CheckpointChoice, row: int, epoch: int) -> FittedRun:
    """Build the fitted run of one row of a stack from its chosen checkpoint, and score its test scans."""
    method, run = stack.method, stack.runs[row]
    steps = epoch * int(stack.sources.steps(method.settings.cell_batch)[row])
    if not np.isfinite(choice.best[row]):  # diverged: no checkpoint has a finite score
        nothing = np.full(len(run.fold.test), np.nan)
        return FittedRun(run, nothing, float("nan"), trained_epochs=epoch, steps=steps)
    named = {name: t[row].detach().cpu().clone() for name, t in choice.checkpoint.items()}
    parameters, state = method.remove_padding(*group_tensors(named), int(stack.sources.n_sites[row]))
    scores = [(e, float(score[row])) for e, score in choice.curve]  # not finite where the run had diverged
    fitted = FittedRun(
        run=run,
        test_logit=np.empty(0),
        validation_auc=float(choice.best[row]),
        selected_epoch=int(choice.epoch[row]),
        trained_epochs=epoch,
        block_length=method.block_length(state),
        parameters=parameters,
        state=state,
        details={"validation_curve": [[e, round(s, 5) if math.isfinite(s) else None] for e, s in scores]},
        steps=steps,
    )
    if len(run.fold.test):  # inner folds and final models have none, and not every network can be called with none
        fitted.test_logit = method.predict_margins(fitted, stack.connectomes, run.fold.test)
    return fitted


ScoreScans = Callable[[np.ndarray], np.ndarray]
"""Logit margins of scans of each run, positions [R, n] in and margins [R, n] out."""


class CheckpointChoice(ABC):
    """The best checkpoint so far of each run in a stack: its score, not finite while there is none, and its epoch.

    Epochs are counted from 1; 0 before the first.

    Shapes: best [R], epoch [R], checkpoint [R, ...], curve [R].
    """

    def __init__(self, n_runs: int) -> None:
        self.best, self.epoch = np.full(n_runs, -np.inf), np.zeros(n_runs, dtype=np.int64)
        self.checkpoint: Tensors = {}
        self.curve: list[tuple[int, np.ndarray]] = []

    @abstractmethod
    def consider(self, score_scans: ScoreScans, tensors: Tensors, epoch: int) -> None:
        """Consider the tensors after an epoch as the checkpoint. Shapes: tensors [R, ...]."""

    @abstractmethod
    def is_finished(self, epoch: int) -> np.ndarray:
        """Whether each run needs no further epoch. Shape [R], bool."""

    def select(self, keep: np.ndarray) -> CheckpointChoice:
        """Select some of the runs (boolean mask)."""
        out = copy(self)
        vars(out).update({name: v[keep] for name, v in vars(self).items() if isinstance(v, np.ndarray)})
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
    """The best AUC on the validation scans of each run, until patience ends. Shapes: scans [R, n]."""

    def __init__(self, cohort: Cohort, runs: Sequence[Run], settings: NeuralSettings) -> None:
        super().__init__(len(runs))
        width = max(len(run.fold.validation) for run in runs)
        self.rule, self.patience = settings.validation_auc, settings.patience
        self.scans = np.zeros((len(runs), width), dtype=np.int64)
        self.mask = np.zeros((len(runs), width), dtype=bool)
        for r, run in enumerate(runs):
            scans = run.fold.validation
            if len(np.unique(cohort.labels[scans])) < 2:
                raise BrioError(
                    f"fold {run.fold.name}: the validation scans (sites {', '.join(run.fold.validation_sites)}) have "
                    "only one class, so no checkpoint can be chosen; reduce protocol.n_folds"
                )
            self.scans[r, : len(scans)] = scans
            self.mask[r, : len(scans)] = True
        self.label = cohort.labels[self.scans]
        self.site = cohort.sites[self.scans]

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
    """The checkpoint of each run after a given epoch, whatever its score. ``wanted``: int64, shape [R]."""

    def __init__(self, wanted: np.ndarray) -> None:
        super().__init__(len(wanted))
        self.wanted = wanted

    def consider(self, score_scans: ScoreScans, tensors: Tensors, epoch: int) -> None:
        now = self.wanted == epoch
        self.best[now], self.epoch[now] = 0.0, epoch
        self.keep(tensors, now)

    def is_finished(self, epoch: int) -> np.ndarray:
        return self.wanted <= epoch


def rank_auc(logit: np.ndarray, label: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Compute the AUC of each row over the masked entries, ties counted half.

    Shapes: logit [R, n], label [R, n], mask [R, n]; returns [R].

    Returns NaN where the labels are of one class only, or the run has diverged.
    """
    finite = [bool(np.isfinite(row[here]).all()) for row, here in zip(logit, mask, strict=True)]
    rows = zip(label, logit, mask, finite, strict=True)
    return np.array([auc(y[here], row[here]) if ok else np.nan for y, row, here, ok in rows])


@dataclass(eq=False)
class StackTraining:
    """Where the training of a stack stands between two epochs. Shapes: order [R], running [R]."""

    stack: Stack  # runs that have stopped may have left it
    optimiser: StackedAdamW
    choice: CheckpointChoice
    order: np.ndarray  # which of the runs each row of the stack is
    running: np.ndarray
    done: dict[int, FittedRun]  # runs that have stopped, by number
    epoch: int = 0  # epochs that are finished, of all stages

    def select(self, keep: np.ndarray) -> None:
        """Continue with some rows of the stack (boolean mask, shape [R])."""
        self.stack, self.choice = self.stack.select(keep), self.choice.select(keep)
        rows = torch.from_numpy(np.flatnonzero(keep)).to(self.stack.connectomes.device)
        self.optimiser.select(self.stack.params, rows)
        self.order, self.running = self.order[keep], self.running[keep]

    def stop_runs(self, last: bool) -> None:
        """Consider the present weights as checkpoints; stop the runs whose choice is made, all of them if ``last``."""
        self.stack.method.update_inference_state(self.stack)
        self.choice.consider(self.stack.score_scans, self.stack.checkpoint(), self.epoch)
        stop = self.running & (self.choice.is_finished(self.epoch) | last)
        for row in np.flatnonzero(stop):
            self.done[int(self.order[row])] = _build_fitted_run(self.stack, self.choice, int(row), self.epoch)
        self.running = self.running & ~stop

    def to_tree(self) -> Tree:
        """Return all that an epoch changes."""
        return {
            "epoch": self.epoch,
            "order": self.order,
            "running": self.running,
            "params": self.stack.params,
            "buffers": self.stack.buffers,
            "state": self.stack.state._asdict(),
            "optimiser": {name: getattr(self.optimiser, name) for name in ("mean", "square", "steps")},
            "choice": {name: getattr(self.choice, name) for name in ("best", "epoch", "checkpoint", "curve")},
            "done": {str(number): _to_tree(fitted) for number, fitted in self.done.items()},
        }

    def restore(self, tree: Tree) -> None:
        """Take over from an interrupted training of the same runs, which has just been restarted here."""
        self.done = {int(n): _restore_fitted(one, self.stack.runs[int(n)]) for n, one in tree.pop("done").items()}
        if len(tree["order"]) < len(self.stack):
            self.select(np.isin(np.arange(len(self.stack)), tree["order"]))
        device = self.stack.connectomes.device
        tree = tree_map_only(Tensor, lambda t: t.to(device), tree)
        self.stack.params = {name: p.requires_grad_() for name, p in tree["params"].items()}
        self.stack.buffers, self.stack.state = tree["buffers"], RunState(**tree["state"])
        vars(self.optimiser).update(tree["optimiser"], params=self.stack.params)
        vars(self.choice).update(tree["choice"])
        self.epoch, self.order, self.running = tree["epoch"], tree["order"], tree["running"]


class CheckpointStore(Protocol):
    """The store of the checkpoint of one stack."""

    def load(self) -> StackCheckpoint | None:
        """Return the checkpoint of an interrupted training of the same stack, or None."""

    def is_due(self) -> bool:
        """Return whether it is time for another checkpoint."""

    def save(self, checkpoint: StackCheckpoint) -> None:
        """Store a checkpoint in place of the one before."""


Tree = dict[str, Any]
"""Tensors, arrays and plain values by name, in groups inside groups and in lists."""


class StackCheckpoint(NamedTuple):
    """What is stored for a stack in training."""

    facts: dict[str, Any]  # ready for JSON
    tensors: Tensors  # on the CPU, with the strides of a fresh tensor; no two share memory

    @classmethod
    def of_tree(cls, tree: Tree) -> StackCheckpoint:
        """Make the checkpoint of a running training (``now``) and of those before it (``finished``)."""
        tensors: Tensors = {}
        facts = {"epoch": tree["now"]["epoch"], "number": len(tree["finished"]) + 1}
        return cls({**facts, "tree": _take_out(tree, "", tensors)}, tensors)

    def to_tree(self) -> Tree:
        """Undo :meth:`of_tree`."""
        return _put_back(self.facts["tree"], self.tensors)

    def describe(self) -> str:
        """State after which epoch it was stored."""
        number = self.facts["number"]
        return f"epoch {self.facts['epoch']}" + (f" of training {number}" if number > 1 else "")


def _to_tree(fitted: FittedRun) -> Tree:
    values = {field.name: getattr(fitted, field.name) for field in fields(fitted) if field.name != "run"}
    return {**values, "state": fitted.state._asdict()}


def _restore_fitted(tree: Tree, run: Run) -> FittedRun:
    return FittedRun(run=run, **{**tree, "state": RunState(**tree["state"])})


def _take_out(value: Any, path: str, tensors: Tensors) -> Any:
    """Move the tensors and arrays of a tree into ``tensors``, each under its path, and note where they were.

    Sums in another order of memory may round differently, so strides are noted too.
    """
    if isinstance(value, dict):
        return {"group": {name: _take_out(one, f"{path}/{name}", tensors) for name, one in value.items()}}
    if isinstance(value, list | tuple):
        return [_take_out(one, f"{path}/{k}", tensors) for k, one in enumerate(value)]
    if not isinstance(value, np.ndarray | Tensor):
        return value
    t = torch.as_tensor(value).detach()
    # not contiguous(): it keeps a stride of 0 where a tensor is empty or an axis has length 1
    tensors[path] = torch.empty_like(t, device="cpu", memory_format=torch.contiguous_format).copy_(t)
    return {"tensor": path, "stride": t.stride(), "is_array": isinstance(value, np.ndarray)}


def _put_back(value: Any, tensors: Tensors) -> Any:
    """Undo :func:`_take_out`."""
    if isinstance(value, list):
        return [_put_back(one, tensors) for one in value]
    if not isinstance(value, dict):
        return value
    if "group" in value:
        return {name: _put_back(one, tensors) for name, one in value["group"].items()}
    t = _restride(tensors[value["tensor"]], value["stride"])
    return t.numpy() if value["is_array"] else t


def _restride(t: Tensor, stride: Sequence[int]) -> Tensor:
    """Lay out a contiguous tensor in memory with other strides, where these leave no gap and no overlap."""
    expected = 1
    for size, step in sorted(zip(t.shape, stride, strict=True), key=lambda pair: pair[1]):
        if size != 1 and step != expected:
            return t
        expected *= size
    return torch.empty_strided(t.shape, stride, dtype=t.dtype).copy_(t)

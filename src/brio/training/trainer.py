"""The training of a stack: stages and steps, which epoch of a run is kept, and how an interrupted training goes on."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from .. import draws
from ..cohort import Cohort
from ..connectome import Connectomes
from ..console import Progress
from ..errors import BrioError
from ..formatting import format_count
from ..protocol import auc, count_inner_folds, make_inner_folds
from .contract import FittedRun, Run, RunState, Stage, Tensors, group_tensors
from .stack import Stack, StackedAdamW

if TYPE_CHECKING:
    from .neural import NeuralMethod, NeuralSettings


def train(
    method: NeuralMethod,
    connectomes: Connectomes,
    runs: Sequence[Run],
    progress: Progress,
    checkpoints: CheckpointStore | None = None,
) -> list[FittedRun]:
    """Train the runs of one stack and score their test scans.

    Validation scans choose the checkpoint of each run. Where folds have none, inner folds of the source scans choose
    the number of epochs, and each run is trained on all its source scans to that epoch.
    """
    resumable, cohort = ResumableTraining(checkpoints), connectomes.cohort
    if any(len(run.fold.validation) for run in runs):
        first_share = 0.5 if method.settings.refit else 1.0
        choice, part = BestValidationEpoch(cohort, runs, method.settings), report_part(progress, 0.0, first_share)
        first_fits = _train_until_chosen(method, connectomes, runs, choice, part, resumable)
        if not method.settings.refit:
            return first_fits
    else:
        n_inner = sum(count_inner_folds(cohort, run.fold) for run in runs)
        first_share = n_inner / (n_inner + len(runs))  # of all trainings, if each takes as long
        part = report_part(progress, 0.0, first_share)
        first_fits = _choose_by_inner_folds(method, connectomes, runs, part, resumable)
    sound = [first for first in first_fits if first.selected_epoch is not None]  # the others have diverged
    if not sound:
        return first_fits
    refits = [Run(first.run.fold.move_validation_to_source(cohort), first.run.seed) for first in sound]
    epochs = GivenEpoch(np.array([first.selected_epoch for first in sound], dtype=np.int64))
    part = report_part(progress, first_share, 1 - first_share)
    second_fits = iter(_train_until_chosen(method, connectomes, refits, epochs, part, resumable))
    return [first if first.selected_epoch is None else _merge_fits(first, next(second_fits)) for first in first_fits]


def report_part(progress: Progress, before: float, share: float) -> Progress:
    """Return a progress of a part of the work, which begins at ``before`` and is a share of the whole."""
    return lambda message, part: progress(message, before + share * part)


def _choose_by_inner_folds(
    method: NeuralMethod,
    connectomes: Connectomes,
    runs: Sequence[Run],
    progress: Progress,
    resumable: ResumableTraining,
) -> list[FittedRun]:
    """Choose the epoch of each run by a training for each of its inner folds; the weights are those of the first."""
    cohort = connectomes.cohort
    folds = [make_inner_folds(cohort, run.fold, run.seed) for run in runs]
    inner_runs = [Run(fold, run.seed) for run, own in zip(runs, folds, strict=True) for fold in own]
    owner = np.repeat(np.arange(len(runs)), [len(own) for own in folds])
    choice = BestMeanEpoch(cohort, inner_runs, method.settings, owner)

    def report(message: str, share: float) -> None:
        progress(f"inner folds: {message}", share)

    fits = _train_until_chosen(method, connectomes, inner_runs, choice, report, resumable)
    chosen = []
    for r, run in enumerate(runs):
        own = [fits[i] for i in np.flatnonzero(owner == r)]
        none = np.full(len(run.fold.test), np.nan)
        chosen.append(replace(own[0], run=run, test_logit=none, steps=sum(fit.steps or 0 for fit in own)))
    return chosen


def _merge_fits(first: FittedRun, second: FittedRun) -> FittedRun:
    """The refitted run with what its epoch was chosen by in the first fit; NaN if it diverged in the second."""
    finite = all(bool(t.isfinite().all()) for t in second.tensors.values()) and np.isfinite(second.test_logit).all()
    return replace(
        second,
        run=first.run,
        validation_auc=first.validation_auc if finite else float("nan"),
        trained_epochs=first.trained_epochs,
        details=first.details,
        steps=first.steps,
    )


COMPACT_BELOW = 0.75
"""Runs that have stopped leave the stack once at most this share of it is running; a smaller stack is a new one."""


def _train_until_chosen(
    method: NeuralMethod,
    connectomes: Connectomes,
    runs: Sequence[Run],
    choice: CheckpointChoice,
    progress: Progress,
    resumable: ResumableTraining,
) -> list[FittedRun]:
    """Train runs together until the choice of each run's checkpoint is made."""
    finished = resumable.find_finished(runs)
    if finished is not None:
        return finished
    settings = method.settings
    stack = Stack.build(method, connectomes, runs)
    optimiser = StackedAdamW(stack.params, settings.learning_rate, settings.weight_decay)
    now = StackTraining(stack, optimiser, choice, np.arange(len(stack)), np.ones(len(stack), dtype=bool), {})
    resumable.restore(now)
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
                _stop_runs(method, now, last=now.epoch == total)
                if not now.running.any():
                    return resumable.finish([now.done[i] for i in range(len(runs))])
                if now.running.mean() <= COMPACT_BELOW:
                    now.select(now.running)
                    step = Step(now.stack, optimiser, stage)
            resumable.save_if_due(now)
    raise BrioError(f"method '{method.name}': its settings leave no epoch in which a checkpoint could be chosen")


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


def _stop_runs(method: NeuralMethod, now: StackTraining, last: bool) -> None:
    """Consider the present weights as checkpoints, and stop the runs whose choice is made, all of them if ``last``."""
    method.update_inference_state(now.stack)
    now.choice.consider(now.stack.score_scans, now.stack.checkpoint(), now.epoch)
    stop = now.running & (now.choice.is_finished(now.epoch) | last)
    for row in np.flatnonzero(stop):
        now.done[int(now.order[row])] = _build_fitted_run(method, now.stack, now.choice, int(row), now.epoch)
    now.running = now.running & ~stop


def _build_fitted_run(method: NeuralMethod, stack: Stack, choice: CheckpointChoice, row: int, epoch: int) -> FittedRun:
    """Build the fitted run of one row of a stack from its chosen checkpoint, and score its test scans."""
    run = stack.runs[row]
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
                    f"fold {run.fold.name}: the validation scans ({', '.join(run.fold.validation_sites)}) hold one "
                    "class only, so no checkpoint can be chosen; use more validation sites, or larger validation folds"
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
    """The checkpoint of each run after an epoch that is given, whatever it scores. ``wanted``: int64, shape [R]."""

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


class CheckpointStore(Protocol):
    """Where the training of one stack keeps its checkpoint."""

    def load(self) -> StackCheckpoint | None:
        """Return the checkpoint of an interrupted training of the same stack, or None."""

    def is_due(self) -> bool:
        """Return whether it is time for another checkpoint."""

    def save(self, checkpoint: StackCheckpoint) -> None:
        """Store a checkpoint in place of the one before."""


class StackCheckpoint(NamedTuple):
    """What is stored of a stack in training."""

    facts: dict[str, Any]  # ready for JSON
    tensors: Tensors  # on the CPU, with the strides of a fresh tensor; no two share memory

    def describe(self) -> str:
        """Say after which epoch it was stored."""
        number = len(self.facts["finished"]) + 1
        return f"epoch {self.facts['epoch']}" + (f" of training {number}" if number > 1 else "")


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


Tree = dict[str, Any]
"""Tensors and arrays by name, in groups inside groups."""


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

"""The training of a stack: steps, stages, and how the epoch of each run is chosen; on a GPU a step is recorded once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from .. import draws
from ..connectome import Connectomes
from ..console import Progress
from ..errors import BrioError
from ..formatting import format_count
from ..protocol import count_inner_folds, make_inner_folds
from .checkpoint import (
    BestMeanEpoch,
    BestValidationEpoch,
    CheckpointChoice,
    CheckpointStore,
    GivenEpoch,
    ResumableTraining,
    StackTraining,
)
from .contract import FittedRun, Run, Stage, group_tensors
from .stack import Stack, StackedAdamW

if TYPE_CHECKING:
    from .neural import NeuralMethod


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
        """Take one step.

        Shapes: scans [R, E, 2, n], active [R], key [R].
        """
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


COMPACT_BELOW = 0.75
"""Runs that have stopped leave the stack once at most this share of it is running; a smaller stack is a new one."""


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
        choice, first_progress = (
            BestValidationEpoch(cohort, runs, method.settings),
            report_part(progress, 0.0, first_share),
        )
        first_fits = _train_until_chosen(method, connectomes, runs, choice, first_progress, resumable)
        if not method.settings.refit:
            return first_fits
    else:
        n_inner = sum(count_inner_folds(cohort, run.fold) for run in runs)
        first_share = n_inner / (n_inner + len(runs))  # of all trainings, if each takes as long
        first_fits = _choose_by_inner_folds(
            method, connectomes, runs, report_part(progress, 0.0, first_share), resumable
        )
    sound = [first for first in first_fits if first.selected_epoch is not None]  # the others have diverged
    if not sound:
        return first_fits
    refits = [Run(first.run.fold.move_validation_to_source(cohort), first.run.seed) for first in sound]
    epochs = GivenEpoch(np.array([first.selected_epoch for first in sound], dtype=np.int64))
    second_progress = report_part(progress, first_share, 1 - first_share)
    second_fits = iter(_train_until_chosen(method, connectomes, refits, epochs, second_progress, resumable))
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

    fits = _train_until_chosen(
        method,
        connectomes,
        inner_runs,
        choice,
        lambda message, share: progress(f"inner folds: {message}", share),
        resumable,
    )
    return [
        replace(
            fits[int(np.flatnonzero(owner == r)[0])],
            run=run,
            test_logit=np.full(len(run.fold.test), np.nan),
            steps=sum(fits[i].steps or 0 for i in np.flatnonzero(owner == r)),
        )
        for r, run in enumerate(runs)
    ]


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
                optimiser.set_rate(settings.learning_rate * share)
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


def _stop_runs(method: NeuralMethod, now: StackTraining, last: bool) -> None:
    """Consider the present weights as checkpoints, and stop the runs whose choice is made, all of them if ``last``."""
    method.update_inference_state(now.stack)
    now.choice.consider(now.stack.score_scans, now.stack.checkpoint(), now.epoch)
    stop = now.running & (now.choice.is_finished(now.epoch) | last)
    for row in np.flatnonzero(stop):
        now.done[int(now.order[row])] = _build_fitted_run(method, now.stack, now.choice, int(row), now.epoch)
    now.running = now.running & ~stop


def _train_epoch(method: NeuralMethod, step: Step, epoch: int, running: np.ndarray) -> None:
    """Train one epoch of the runs that are still running."""
    sources = step.stack.sources
    batches, active = sources.batches(epoch, method.settings.cell_batch)
    for number, (scans, takes_step) in enumerate(zip(batches, active & running, strict=True)):
        key = draws.key(sources.seeds, "step", epoch, number).view(np.int64)
        step(scans, takes_step, key, epoch)


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

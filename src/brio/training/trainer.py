"""Training all runs of a stack together; each keeps its own best checkpoint and stops on its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from .. import draws
from ..connectome import Connectomes
from ..errors import BrioError
from ..progress import Progress
from .adamw import StackedAdamW
from .contract import FittedRun, NeuralMethod, Run
from .selection import BestValidationEpoch, CheckpointChoice, GivenEpoch
from .stack import Stack
from .step import Step

__all__ = ["train"]

COMPACT_BELOW = 0.75
"""Runs that have stopped leave the stack once at most this share of it is running; a smaller stack is a new one."""


def train(method: NeuralMethod, connectomes: Connectomes, runs: Sequence[Run], progress: Progress) -> list[FittedRun]:
    """Train the runs of one stack and score their test scans.

    Returns
    -------
    list of FittedRun
        In the order of ``runs``.
    """
    validation = BestValidationEpoch(connectomes.cohort, runs, method.settings)
    if not method.settings.refit:
        return _train(method, connectomes, runs, validation, progress)

    def half(done: float) -> Progress:
        return lambda message, share: progress(message, done + share / 2)

    chosen = _train(method, connectomes, runs, validation, half(0.0))
    sound = [first for first in chosen if first.selected_epoch is not None]  # the others have diverged
    again = [Run(first.run.fold.without_validation(connectomes.cohort), first.run.seed) for first in sound]
    wanted = GivenEpoch(np.array([first.selected_epoch for first in sound], dtype=np.int64))
    second = iter(_train(method, connectomes, again, wanted, half(0.5)) if sound else [])
    return [_refitted(first, next(second)) if first.selected_epoch is not None else first for first in chosen]


def _refitted(first: FittedRun, again: FittedRun) -> FittedRun:
    """A run that was trained again on all its scans, with what it was chosen by; NaN if it diverged this time."""
    sound = all(bool(t.isfinite().all()) for t in again.weights.values()) and bool(np.isfinite(again.test_logit).all())
    return replace(
        again,
        run=first.run,
        validation_auc=first.validation_auc if sound else float("nan"),
        trained_epochs=first.trained_epochs,
        details=first.details,
    )


def _train(
    method: NeuralMethod, connectomes: Connectomes, runs: Sequence[Run], choice: CheckpointChoice, progress: Progress
) -> list[FittedRun]:
    """Train runs together until the choice of each run's checkpoint is made."""
    settings = method.settings
    stack = Stack.build(method, connectomes, runs)
    optimiser = StackedAdamW(stack.params, settings.learning_rate, settings.weight_decay)
    order = np.arange(len(runs))  # which of the runs each row of the stack is
    running = np.ones(len(runs), dtype=bool)
    done: dict[int, FittedRun] = {}
    stages = method.stages()
    total = sum(stage.epochs for stage in stages)
    epoch = 0
    for stage in stages:
        method.begin_stage(stack, stage)
        if stage.fresh_optimiser:
            optimiser.forget()
        step = Step(stack, optimiser, stage)
        taken = np.zeros(len(stack), dtype=np.int64)  # optimisation steps of this stage, for each run
        for _ in range(stage.epochs):
            epoch += 1
            progress(f"{running.sum()} runs, {stage.name}, epoch {epoch} of {total}", (epoch - 1) / total)
            optimiser.set_rate(settings.learning_rate * _share(settings.schedule, epoch, total))
            taken = _epoch(step, epoch, taken, running)
            if not stage.selectable:
                continue
            method.update_inference_state(stack)
            choice.consider(stack.margins, stack.state(), epoch)
            stop = running & (choice.is_finished(epoch) | (epoch == total))
            for row in np.flatnonzero(stop):
                done[int(order[row])] = _build_fitted_run(stack, choice, int(row), epoch)
            running &= ~stop
            if not running.any():
                return [done[i] for i in range(len(runs))]
            if running.mean() <= COMPACT_BELOW:
                stack, choice = stack.select(running), choice.select(running)
                optimiser.select(stack.params, torch.from_numpy(np.flatnonzero(running)).to(connectomes.device))
                order, taken, running = order[running], taken[running], running[running]
                step = Step(stack, optimiser, stage)
    raise BrioError(f"method '{method.name}': its settings leave no epoch in which a checkpoint could be chosen")


def _share(schedule: str, epoch: int, total: int) -> float:
    """Share of the learning rate that an epoch is trained with."""
    if schedule == "constant":
        return 1.0
    return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * (epoch - 1) / max(1, total - 1)))


def _epoch(step: Step, epoch: int, taken: np.ndarray, running: np.ndarray) -> np.ndarray:
    """One epoch of the runs that are still running; returns the optimisation steps each has taken in the stage."""
    stack, every = step.stack, step.stage.refresh_every
    batches, active = stack.sources.batches(epoch, stack.method.settings.cell_batch)
    active = active & running
    for number, (scans, go) in enumerate(zip(batches, active, strict=True)):
        if every is not None:
            due = go & (taken % every == 0)
            if due.any():
                stack.method.refresh(stack, due, taken // every)
        key = draws.key(stack.sources.seeds, "step", epoch, number).view(np.int64)
        step(scans, go, key, epoch)
        taken = taken + go
    return taken


def _build_fitted_run(stack: Stack, choice: CheckpointChoice, row: int, epoch: int) -> FittedRun:
    """The chosen checkpoint of one run, with the scores of its test scans."""
    run = stack.runs[row]
    if not np.isfinite(choice.best[row]):  # diverged: no checkpoint has a finite score
        return FittedRun(run, np.full(len(run.fold.test), np.nan), float("nan"), trained_epochs=epoch)
    weights: dict[str, Tensor] = {name: t[row].detach().cpu().clone() for name, t in choice.kept.items()}
    weights = stack.method.remove_padding(weights, int(stack.sources.n_sites[row]))
    fitted = FittedRun(
        run=run,
        test_logit=np.empty(0),
        validation_auc=float(choice.best[row]),
        selected_epoch=int(choice.epoch[row]),
        trained_epochs=epoch,
        block_length=float(weights["context.block_length"]) if "context.block_length" in weights else None,
        weights=weights,
        details={"validation_curve": [[e, _rounded(score[row])] for e, score in choice.curve]},
    )
    fitted.test_logit = stack.method.margins(fitted, stack.connectomes, run.fold.test)
    return fitted


def _rounded(score: float) -> float | None:
    """A score as a record keeps it; none where the run had diverged in that epoch."""
    return round(float(score), 5) if np.isfinite(score) else None

"""Training all runs of a stack together; each keeps its own best checkpoint and stops on its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..connectome import Connectomes
from ..errors import BrioError
from ..progress import Progress
from .adamw import StackedAdamW
from .contract import NeuralMethod, Outcome, Run, Stage
from .selection import Validation
from .stack import Stack

__all__ = ["train"]


def train(method: NeuralMethod, connectomes: Connectomes, runs: Sequence[Run], progress: Progress) -> list[Outcome]:
    """Train the runs of one stack and score their test scans.

    Returns
    -------
    list of Outcome
        In the order of ``runs``.
    """
    settings = method.settings
    stack = Stack.build(method, connectomes, runs)
    validation = Validation(connectomes.cohort, runs, settings.validation_auc)
    optimiser = StackedAdamW(stack.params, settings.learning_rate, settings.weight_decay)
    order = np.arange(len(runs))  # which of the runs each row of the stack is
    done: dict[int, Outcome] = {}
    stages = method.stages()
    total = sum(stage.epochs for stage in stages)
    epoch = 0
    for stage in stages:
        method.enter(stack, stage)
        taken = np.zeros(len(stack), dtype=np.int64)  # optimisation steps of this stage, for each run
        for _ in range(stage.epochs):
            epoch += 1
            progress(f"{len(stack)} runs, {stage.name}, epoch {epoch} of {total}", (epoch - 1) / total)
            taken = _epoch(stack, optimiser, stage, epoch, taken)
            if not stage.selectable:
                continue
            validation.offer(stack.margins(validation.scans), stack.state(), epoch)
            stop = np.full(len(stack), epoch == total)
            if settings.patience is not None:
                stop |= epoch - validation.epoch >= settings.patience
            if stop.any():
                for row in np.flatnonzero(stop):
                    done[int(order[row])] = _outcome(stack, validation, int(row), epoch)
                if stop.all():
                    return [done[i] for i in range(len(runs))]
                keep = ~stop
                stack, validation = stack.select(keep), validation.select(keep)
                optimiser.select(stack.params, torch.from_numpy(np.flatnonzero(keep)).to(connectomes.device))
                order, taken = order[keep], taken[keep]
    raise BrioError(f"method '{method.name}': its settings leave no epoch in which a checkpoint could be chosen")


def _epoch(stack: Stack, optimiser: StackedAdamW, stage: Stage, epoch: int, taken: np.ndarray) -> np.ndarray:
    """One epoch of every run; returns the optimisation steps each has taken in the stage."""
    batches, active = stack.sources.batches(epoch, stack.method.settings.cell_batch)
    go = stack.tensor(active)
    for name, p in stack.params.items():
        p.requires_grad_(not name.startswith(stage.frozen) if stage.frozen else True)
    for step in range(len(batches)):
        if stage.refresh_every is not None:
            due = active[step] & (taken % stage.refresh_every == 0)
            if due.any():
                stack.method.refresh(stack, due, taken // stage.refresh_every)
        losses = stack.losses(batches[step], stage)
        torch.where(go[step], losses, torch.zeros_like(losses)).sum().backward()
        optimiser.step(go[step])
        taken = taken + active[step]
    return taken


def _outcome(stack: Stack, validation: Validation, row: int, epoch: int) -> Outcome:
    """The chosen checkpoint of one run, with the scores of its test scans."""
    run = stack.runs[row]
    weights: dict[str, Tensor] = {name: t[row].detach().cpu().contiguous() for name, t in validation.kept.items()}
    outcome = Outcome(
        run=run,
        test_logit=np.empty(0),
        validation_auc=float(validation.best[row]),
        selected_epoch=int(validation.epoch[row]),
        trained_epochs=epoch,
        block_length=float(weights["context.block_length"]) if "context.block_length" in weights else None,
        weights=weights,
    )
    outcome.test_logit = stack.method.margins(outcome, stack.connectomes, run.fold.test)
    return outcome

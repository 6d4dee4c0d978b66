"""Train one stack of a plan: its checkpoint, its fit, the records of its runs; and load fitted runs again."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import math
import platform
import time
import traceback
from pathlib import Path

import numpy as np
import torch

from ..connectome import Connectomes, harmonise_connectomes
from ..console import Progress, silent
from ..errors import BrioError
from ..methods import find_method
from ..protocol import average_margins, calibrate_margins, count_participants
from ..results import Plan, Predictions, RunRecord, RunRow, RunStore, score_run
from ..results.files import RUNS
from ..results.store import read_checkpoint, remove_checkpoint, report_stack, write_checkpoint
from ..training import CheckpointStore, FittedRun, Method, Run, StackCheckpoint, group_tensors
from .job import Job
from .plan import JobPlan, PlannedRun, build_plan

_VERSIONS = {"torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()}
FORMAT = 3
"""Increase it whenever the content of checkpoints or its meaning changes."""


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
        """Start to count seconds."""
        self._start = self._last = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds that the stack has trained, including those before the checkpoint."""
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
        "versions": _VERSIONS,
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def train_stack(
    job: Job,
    plan: JobPlan,
    number: int,
    store: RunStore,
    *,
    progress: Progress = silent,
    allow_divergence: bool = False,
) -> None:
    """Train one stack of a plan, as a whole, and store its runs."""
    stack, title = plan.document.stacks[number - 1], plan.name_stack(number)
    runs = [plan.runs[key] for key in stack]
    method = runs[0].method
    with report_stack(store.folder.parent, number, title) as report_share:

        def report(message: str, share: float) -> None:
            report_share(share)
            progress(f"{title}: {message}", share)

        identity = checkpoint_identity(job, plan.document, stack)
        checkpoint = CheckpointFile(store.checkpoint_path(stack), identity, job.spec.checkpoint_every)
        if checkpoint.message:
            job.say(f"{title}: {checkpoint.message}")
        report("starting", 0.0)
        connectomes = job.connectomes
        checkpoint.start_clock()  # not before the connectomes are there, which all stacks share
        inputs = harmonise_connectomes(connectomes, runs[0].run.fold.source, job.spec.harmonisation_rule)
        with job.device.network_precision():
            fitted_runs = _fit(method, inputs, [planned.run for planned in runs], report, checkpoint)
        seconds = checkpoint.seconds / len(runs)
        for planned, fitted in zip(runs, fitted_runs, strict=True):
            if not allow_divergence:
                fitted.require_finite(method.name)
            store.write(planned.key, _make_record(job, plan.document, planned, fitted, seconds), fitted.tensors)
        report("done", 1.0)
    remove_checkpoint(store.checkpoint_path(stack))


def _fit(
    method: Method, connectomes: Connectomes, runs: list[Run], progress: Progress, checkpoint: CheckpointStore
) -> list[FittedRun]:
    """Fit runs; an error inside a user's own method names its file and line."""
    file = find_method(method.name).file
    # every network takes it, but a user's own one may have a `fit` with the three parameters of all methods
    further = {"checkpoints": checkpoint} if "checkpoints" in inspect.signature(method.fit).parameters else {}
    try:
        return method.fit(connectomes, runs, progress, **further)
    except BrioError:
        raise
    except Exception as error:
        if not file:
            raise
        own = Path(file).resolve()
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).resolve() == own]
        line = f", line {lines[-1]}" if lines else ""
        raise BrioError(f"{file}{line}, method '{method.name}': {type(error).__name__}: {error}") from error


def _make_record(job: Job, plan: Plan, planned: PlannedRun, fitted: FittedRun, seconds: float) -> RunRecord:
    """Make the record of a finished run."""
    cohort, fold = job.cohort, planned.run.fold
    learned = planned.method.training_scans(cohort, fold)
    test, margin = average_margins(cohort, fold.test, fitted.test_logit)
    label = cohort.labels[test]
    finite = bool(np.isfinite(margin).all())
    known, notes = score_run(label, margin, calibrate_margins(margin, fitted.details))
    if fold.one_class_sites:
        notes.append(f"not used as source sites, because they have one class only: {', '.join(fold.one_class_sites)}")
    row = RunRow(
        cohort=cohort.name,
        method=planned.method.name,
        protocol=plan.protocol,
        fold=fold.name,
        test_sites=";".join(fold.test_sites),
        validation_sites=";".join(fold.validation_sites),
        seed=planned.run.seed,
        n_source=count_participants(cohort, learned),
        n_validation=count_participants(cohort, fold.validation),
        n_test=len(test),
        **known,
        validation_auc=fitted.validation_auc if math.isfinite(fitted.validation_auc) else None,
        selected_epoch=fitted.selected_epoch,
        trained_epochs=fitted.trained_epochs,
        steps=fitted.steps,
        block_length=fitted.block_length,
        seconds=round(seconds, 3),
        device=planned.method.place_fit(job.device).describe(),
        note="; ".join(notes),
    )
    return RunRecord(
        row=row,
        details={"trained_epochs": fitted.trained_epochs, **fitted.details},
        settings=dataclasses.asdict(planned.method.settings),
        source_sites=tuple(sorted(set(cohort.sites[learned].tolist()))),
        predictions=Predictions(
            participant_id=tuple(cohort.participant_ids[test].tolist()),
            site=tuple(cohort.sites[test].tolist()),
            label=tuple(label.tolist()),
            margin=tuple(margin.tolist()) if finite else None,
        ),
        versions=_VERSIONS | {"brio": plan.brio},
    )


def load_fitted_runs(job: Job, name: str, folder: Path) -> tuple[Method, list[FittedRun]]:
    """Load a method and its fitted runs, in the order of seeds and folds.

    Their ``test_logit`` has one margin per test participant, as it was stored: the mean over the scans of each.
    """
    planned_runs = list(build_plan(job, [name]).runs.values())
    store = RunStore(folder / RUNS)
    return planned_runs[0].method, [load_fitted_run(planned, store) for planned in planned_runs]


def load_fitted_run(planned: PlannedRun, store: RunStore) -> FittedRun:
    """Load one fitted run."""
    record = store.read_record(planned.key)
    row, margin, details = record.row, record.predictions.margin, dict(record.details)
    trained_epochs = details.pop("trained_epochs", None)  # which a record adds
    return FittedRun(
        planned.run,
        np.array([] if margin is None else margin),
        float("nan") if row.validation_auc is None else row.validation_auc,
        row.selected_epoch,
        trained_epochs,
        row.block_length,
        *group_tensors(store.read_weights(planned.key)),
        details,
        row.steps,
    )

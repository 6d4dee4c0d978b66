"""Training the runs of a plan that are not finished, and what is kept of each."""

from __future__ import annotations

import dataclasses
import math
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..cohort import Cohort
from ..connectome import Connectomes, harmonise_connectomes
from ..errors import BrioError
from ..methods import find_method
from ..progress import Progress
from ..protocol import score_predictions
from ..protocol.metrics import ONE_CLASS
from ..training import FittedRun, Method, Run
from .plan import Plan, PlannedRun
from .prepare import Prepared
from .store import RunStore

__all__ = ["train"]


def train(prepared: Prepared, plan: Plan, store: RunStore, searching: bool = False) -> None:
    """Train every stack that is not finished; a stack is always trained whole.

    A run that diverges ends the job, but in a search, where it is a configuration not to choose.
    """
    weight = [_effort(plan, stack) for stack in plan.stacks]
    total, before = sum(weight), 0.0
    for number, (stack, effort) in enumerate(zip(plan.stacks, weight, strict=True), 1):
        if all(key in store for key in stack):
            before += effort
            continue
        jobs = [plan.jobs[key] for key in stack]
        method, graphs = jobs[0].method, prepared.graphs
        title = f"{method.name}, {_folds(jobs)}, stack {number} of {len(plan.stacks)}"

        def tell(
            message: str, share: float, title: str = title, before: float = before, effort: float = effort
        ) -> None:
            prepared.progress(f"{title}: {message}", (before + effort * share) / total)

        tell("starting", 0.0)
        start = time.perf_counter()
        seen = harmonise_connectomes(graphs, jobs[0].run.fold.source, plan.harmonise)
        with prepared.device.network_precision():
            fitted_runs = _fit(method, seen, [job.run for job in jobs], tell)
        seconds = (time.perf_counter() - start) / len(jobs)
        for job, fitted in zip(jobs, fitted_runs, strict=True):
            if not searching:
                fitted.require_finite(method.name)
            store.write(
                job.key, _record(plan, job, fitted, graphs.cohort, seconds, prepared.device.describe()), fitted.tensors
            )
        before += effort
        prepared.progress(f"{title}: done", before / total)


def _fit(method: Method, graphs: Connectomes, runs: list[Run], progress: Progress) -> list[FittedRun]:
    """Fit runs; what goes wrong inside a user's own method is told as such."""
    file = find_method(method.name).file
    try:
        return method.fit(graphs, runs, progress)
    except BrioError:
        raise
    except Exception as error:
        if not file:
            raise
        own = Path(file).resolve()
        where = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).resolve() == own]
        line = f", line {where[-1]}" if where else ""
        raise BrioError(f"{file}{line}, method '{method.name}': {type(error).__name__}: {error}") from error


def _effort(plan: Plan, stack: list[str]) -> float:
    """About how long a stack takes, for the time left: epochs times runs, or next to nothing."""
    settings = plan.jobs[stack[0]].method.settings
    per_run = getattr(settings, "epochs", 2) * (2.0 if getattr(settings, "lambda_env", 0) else 1.0)
    return len(stack) * per_run


def _folds(jobs: list[PlannedRun]) -> str:
    names = list(dict.fromkeys(job.run.fold.name for job in jobs))
    return f"fold {names[0]}" if len(names) == 1 else f"folds {names[0]} to {names[-1]}"


def _record(
    plan: Plan, job: PlannedRun, fitted: FittedRun, cohort: Cohort, seconds: float, device: str
) -> dict[str, Any]:
    """The row, the predictions and the notes of a finished run."""
    fold = job.run.fold
    learned = job.method.training_scans(cohort, fold)
    label, logit = cohort.labels[fold.test], np.asarray(fitted.test_logit, dtype=float)
    finite = bool(np.isfinite(logit).all())
    scored = score_predictions(label, logit if finite else np.zeros(len(logit)))
    found = {name: None if math.isnan(value) or not finite else value for name, value in scored.items()}
    notes = ["training diverged"] if not finite else [ONE_CLASS] if found["auc"] is None else []
    if fold.left_out:
        notes.append(f"not used as source, one class only: {', '.join(fold.left_out)}")
    return {
        "row": {
            "cohort": cohort.name,
            "method": job.method.name,
            "protocol": plan.facts["protocol"],
            "fold": fold.name,
            "test_sites": ";".join(fold.test_sites),
            "validation_sites": ";".join(fold.validation_sites),
            "seed": job.run.seed,
            "n_source": len(learned),
            "n_validation": len(fold.validation),
            "n_test": len(fold.test),
            **found,
            "validation_auc": fitted.validation_auc if math.isfinite(fitted.validation_auc) else None,
            "selected_epoch": fitted.selected_epoch,
            "block_length": fitted.block_length,
            "seconds": round(seconds, 3),
            "device": device,
            "note": "; ".join(notes),
        },
        "details": {"trained_epochs": fitted.trained_epochs, **fitted.details},
        "settings": dataclasses.asdict(job.method.settings),
        "source_sites": sorted(set(cohort.sites[learned].tolist())),
        "predictions": {
            "participant_id": cohort.ids[fold.test].tolist(),
            "site": cohort.sites[fold.test].tolist(),
            "label": label.tolist(),
            "logit": logit.tolist() if finite else None,
        },
        "versions": {"brio": plan.facts["brio"], "torch": torch.__version__, "numpy": np.__version__},
    }

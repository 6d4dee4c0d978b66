"""Running a job: audit, plan, train what is missing, write the tables."""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from ..cohort import Audit, Cohort, audit
from ..connectome import Connectomes
from ..device import describe_device, resolve_device
from ..errors import BrioError
from ..progress import Progress, silent
from ..protocol import PROTOCOLS, scores
from ..protocol.metrics import ONE_CLASS
from ..settings import require
from ..training import Outcome
from ..version import __version__
from .plan import Job, Plan, make_plan, method_settings, protocol_of, rules_of, split_settings, stacked
from .resume import earlier_plan, stacks_of
from .store import RunStore, write_atomically
from .tables import write_tables

__all__ = ["Result", "run"]


@dataclass(frozen=True, eq=False)
class Result:
    """What a job leaves: tables, a summary and the folder with everything."""

    folder: Path
    rows: pd.DataFrame
    predictions: pd.DataFrame
    summary: dict[str, Any]
    audit: Audit | None

    def table(self) -> pd.DataFrame:
        """Mean, SD over sites and 95 % interval of each method, in percent."""
        rows = {}
        for name, found in self.summary["methods"].items():
            interval = found["auc"]["interval"] or [None, None]
            rows[name] = {
                "AUC": _percent(found["auc"]["mean"]),
                "SD": _percent(found["auc"]["sd"]),
                "low": _percent(interval[0]),
                "high": _percent(interval[1]),
                "AUC, seeds averaged": _percent(found["auc_of_averaged_logits"]["mean"]),
                "ACC": _percent(found["acc"]["mean"]),
                "balanced ACC": _percent(found["balanced_acc"]["mean"]),
                "folds": found["folds"],
                "seeds": found["seeds"],
                "epochs": found["epochs"],
                "K": found["K"],
            }
        return pd.DataFrame(rows).T


def _percent(share: float | None) -> float:
    return math.nan if share is None else 100 * share


def run(
    cohort: Cohort | str | Path,
    methods: Sequence[str] | str = ("brio",),
    *,
    protocol: str = "loso",
    seeds: int = 1,
    out: str | Path | None = None,
    settings: dict[str, Any] | None = None,
    folds: Sequence[str] | None = None,
    companions: Sequence[Cohort] = (),
    exclude: bool = True,
    device: str = "auto",
    runs_per_stack: int | None = None,
    progress: Progress = silent,
    say: Callable[[str], None] = lambda line: None,
) -> Result:
    """Evaluate methods on a cohort under a protocol.

    Runs that are finished in ``out`` are not computed again; a job that was killed goes on.

    Parameters
    ----------
    cohort : Cohort or path of a cohort folder
    methods : names, see ``brio methods``
    protocol : {"loso", "kfold"}
        Leave one site out, or folds stratified by site and class.
    seeds : int
        Seeds 0 to seeds - 1; a seed decides initial weights, draws and the ring of validation sites.
    out : path, optional
        Folder for results; a temporary one if left out.
    settings : dict, optional
        Settings of the methods, the protocol (``protocol.validation_sites``) and the audit (``audit.min_frames``).
    folds : names, optional
        Only these folds (test sites); the result is then marked as a smoke run.
    companions : cohorts
        The same participants in other atlases; all are audited and exclusions hold for all alike.
    exclude : bool
        Apply the exclusions that the audit proposes.
    device : {"auto", "cpu", "cuda"}
    runs_per_stack : int, optional
        Runs that train together; by default as many as memory allows.

    Examples
    --------
    >>> from brio.cohort.simulate import Simulation, simulate
    >>> result = run(simulate(Simulation(n_sites=5, per_class=6)), ["ridge"], device="cpu")
    >>> sorted(result.rows["fold"])
    ['site01', 'site02', 'site03', 'site04', 'site05']
    """
    require(seeds >= 1, "seeds", seeds, "at least 1")
    require(runs_per_stack is None or runs_per_stack >= 1, "runs_per_stack", runs_per_stack, "at least 1")
    require(protocol in PROTOCOLS, "protocol", protocol, " or ".join(PROTOCOLS))
    whole = cohort if isinstance(cohort, Cohort) else Cohort.load(cohort)
    of_methods, of_protocol, of_audit = split_settings(dict(settings or {}))
    chosen = method_settings([methods] if isinstance(methods, str) else list(dict.fromkeys(methods)), of_methods)
    rules, of_folds, target = rules_of(of_audit), protocol_of(of_protocol), resolve_device(device)
    folder = Path(tempfile.mkdtemp(prefix="brio-")) if out is None else Path(out)
    earlier = earlier_plan(folder)
    whole.verify()
    found = audit(whole, rules, companions) if exclude else None
    used = whole if found is None else whole.select(found.keep)
    if len(used) == 0:
        raise BrioError(f"{whole.name}: the audit excludes every scan; see 'brio audit', or change its rules")
    plan = make_plan(used, whole, found, rules, chosen, protocol, of_folds, range(seeds), folds, target, __version__)
    written = None if earlier is None else stacks_of(earlier, plan, folder)
    _announce(used, whole, found, say)
    graphs = None
    if written is None:
        graphs = Connectomes(used, target)
        plan = stacked(plan, graphs, runs_per_stack)
        _write_plan(plan, found, folder)
    else:
        plan.stacks.extend(written)
    with RunStore(folder / "runs") as store:
        finished = sum(key in store for key in plan.jobs)
        if written is not None:
            say(f"going on: {finished} of {len(plan.jobs)} runs are finished")
        if finished < len(plan.jobs):
            _train(plan, graphs or Connectomes(used, target), store, progress)
        rows, predictions, summary = write_tables(plan, store, folder)
    return Result(folder, rows, predictions, summary, found)


def _write_plan(plan: Plan, found: Audit | None, folder: Path) -> None:
    """Write down what was decided; the plan comes last, and with it the folder belongs to this job."""
    folder.mkdir(parents=True, exist_ok=True)
    if found is not None:
        write_atomically(folder / "audit.json", json.dumps(found.to_dict(), indent=1) + "\n")
        write_atomically(folder / "exclusions.tsv", _exclusions(found))
    write_atomically(folder / "plan.json", json.dumps(plan.document, indent=1) + "\n")


def _announce(used: Cohort, whole: Cohort, found: Audit | None, say: Callable[[str], None]) -> None:
    """Say which scans are used and why the others are not."""
    if found is None:
        say(f"{len(whole)} scans, no exclusions applied")
        return
    say(f"{len(used)} of {len(whole)} scans are used" + (", excluded by the audit:" if found.exclusions else ""))
    for who, reasons in found.exclusions.items():
        say(f"  {who}: {'; '.join(reasons)}")


def _exclusions(found: Audit) -> str:
    lines = ["participant_id\treasons", *(f"{who}\t{'; '.join(why)}" for who, why in found.exclusions.items())]
    return "\n".join(lines) + "\n"


def _train(plan: Plan, graphs: Connectomes, store: RunStore, progress: Progress) -> None:
    """Train every stack that is not finished; a stack is always trained whole."""
    weight = [_effort(plan, stack) for stack in plan.stacks]
    total, before = sum(weight), 0.0
    for number, (stack, effort) in enumerate(zip(plan.stacks, weight, strict=True), 1):
        if all(key in store for key in stack):
            before += effort
            continue
        jobs = [plan.jobs[key] for key in stack]
        method = plan.methods[jobs[0].method]
        title = f"{method.name}, {_folds(jobs)}, stack {number} of {len(plan.stacks)}"

        def tell(
            message: str, share: float, title: str = title, before: float = before, effort: float = effort
        ) -> None:
            progress(f"{title}: {message}", (before + effort * share) / total)

        tell("starting", 0.0)
        start = time.perf_counter()
        outcomes = method.fit(graphs, [job.run for job in jobs], tell)
        seconds = (time.perf_counter() - start) / len(jobs)
        for job, outcome in zip(jobs, outcomes, strict=True):
            store.write(job.key, _record(plan, job, outcome, graphs, seconds), outcome.weights)
        before += effort
        progress(f"{title}: done", before / total)


def _effort(plan: Plan, stack: list[str]) -> float:
    """About how long a stack takes, for the time left: epochs times runs, or next to nothing."""
    settings = plan.methods[plan.jobs[stack[0]].method].settings
    per_run = getattr(settings, "epochs", 2) * (2.0 if getattr(settings, "lambda_env", 0) else 1.0)
    return len(stack) * per_run


def _folds(jobs: list[Job]) -> str:
    names = list(dict.fromkeys(job.run.fold.name for job in jobs))
    return f"fold {names[0]}" if len(names) == 1 else f"folds {names[0]} to {names[-1]}"


def _record(plan: Plan, job: Job, outcome: Outcome, graphs: Connectomes, seconds: float) -> dict[str, Any]:
    """The row, the predictions and the notes of a finished run."""
    cohort, fold = graphs.cohort, job.run.fold
    label, logit = cohort.labels[fold.test], np.asarray(outcome.test_logit, dtype=float)
    if not np.isfinite(logit).all():
        raise BrioError(f"method '{job.method}', fold {fold.name}, seed {job.run.seed}: training diverged")
    found = {name: None if math.isnan(value) else value for name, value in scores(label, logit).items()}
    notes = [ONE_CLASS] if found["auc"] is None else []
    if fold.left_out:
        notes.append(f"not used as source, one class only: {', '.join(fold.left_out)}")
    return {
        "row": {
            "cohort": cohort.name,
            "method": job.method,
            "protocol": plan.facts["protocol"],
            "fold": fold.name,
            "test_sites": ";".join(fold.test_sites),
            "validation_sites": ";".join(fold.validation_sites),
            "seed": job.run.seed,
            "n_source": len(fold.source),
            "n_validation": len(fold.validation),
            "n_test": len(fold.test),
            **found,
            "validation_auc": outcome.validation_auc,
            "selected_epoch": outcome.selected_epoch,
            "block_length": outcome.block_length,
            "seconds": round(seconds, 3),
            "device": describe_device(graphs.device),
            "note": "; ".join(notes),
        },
        "notes": {"trained_epochs": outcome.trained_epochs, **outcome.notes},
        "source_sites": sorted(set(cohort.sites[fold.source].tolist())),
        "predictions": {
            "participant_id": cohort.ids[fold.test].tolist(),
            "site": cohort.sites[fold.test].tolist(),
            "label": label.tolist(),
            "logit": logit.tolist(),
        },
        "versions": {"brio": plan.facts["brio"], "torch": torch.__version__, "numpy": np.__version__},
    }

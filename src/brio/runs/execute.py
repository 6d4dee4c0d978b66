"""Running a job: audit, plan, train what is missing, write the tables."""

from __future__ import annotations

import dataclasses
import json
import math
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from ..cohort import Audit, AuditRules, Cohort, audit
from ..connectome import Connectomes, Harmonise, harmonised
from ..device import describe_device, resolve_device
from ..errors import BrioError
from ..methods import entry
from ..progress import Progress, silent
from ..protocol import PROTOCOLS, ProtocolSettings, scores
from ..protocol.metrics import ONE_CLASS
from ..settings import require
from ..training import Method, Outcome, Run
from ..version import __version__
from .plan import (
    Candidates,
    Job,
    Plan,
    described,
    harmonise_of,
    make_plan,
    method_settings,
    protocol_of,
    rules_of,
    split_settings,
    stacked,
)
from .resume import earlier_plan, stacks_of
from .store import RunStore, write_atomically
from .tables import write_tables
from .tuned import Tuned

__all__ = ["Prepared", "Result", "execute", "prepare", "run", "settled", "train"]


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


@dataclass(frozen=True, eq=False)
class Prepared:
    """A cohort, audited, with everything that is the same for all methods of a job."""

    used: Cohort
    whole: Cohort
    audit: Audit | None
    rules: AuditRules
    protocol: str
    protocol_settings: ProtocolSettings
    harmonise: Harmonise
    of_methods: dict[str, Any]
    seeds: range
    folds: Sequence[str] | None
    device: torch.device
    runs_per_stack: int | None
    records_only: bool
    progress: Progress
    say: Callable[[str], None]

    @cached_property
    def graphs(self) -> Connectomes:
        """The connectomes of the cohort, estimated when they are first asked for."""
        return Connectomes(self.used, self.device)

    @property
    def protocol_facts(self) -> dict[str, Any]:
        """What names the folds: the protocol and, for k-fold, the scans it deals out."""
        facts = {"name": self.protocol, "settings": dataclasses.asdict(self.protocol_settings)}
        return facts | ({"fingerprint": self.used.fingerprint} if self.protocol == "kfold" else {})

    def plan(self, methods: dict[str, dict[str, Any]], candidates: dict[str, Candidates], seeds: Sequence[int]) -> Plan:
        """The runs of some methods on this cohort."""
        return make_plan(
            self.used,
            self.whole,
            self.audit,
            self.rules,
            methods,
            candidates,
            self.protocol,
            self.protocol_settings,
            self.harmonise,
            seeds,
            self.folds,
            self.device,
            __version__,
        )


def prepare(
    cohort: Cohort | str | Path,
    *,
    protocol: str = "loso",
    seeds: int = 1,
    settings: dict[str, Any] | None = None,
    folds: Sequence[str] | None = None,
    companions: Sequence[Cohort] = (),
    exclude: bool = True,
    device: str = "auto",
    runs_per_stack: int | None = None,
    records_only: bool = False,
    progress: Progress = silent,
    say: Callable[[str], None] = lambda line: None,
) -> Prepared:
    """Check the words of a job, then the cohort; see :func:`run` for what they mean."""
    require(seeds >= 1, "seeds", seeds, "at least 1")
    require(runs_per_stack is None or runs_per_stack >= 1, "runs_per_stack", runs_per_stack, "at least 1")
    require(protocol in PROTOCOLS, "protocol", protocol, " or ".join(PROTOCOLS))
    whole = cohort if isinstance(cohort, Cohort) else Cohort.load(cohort)
    parts = split_settings(dict(settings or {}))
    rules, of_folds, harmonise = (
        rules_of(parts["audit"]),
        protocol_of(parts["protocol"]),
        harmonise_of(parts["harmonise"]),
    )
    target = resolve_device(device)
    whole.verify()
    found = audit(whole, rules, companions) if exclude else None
    used = whole if found is None else whole.select(found.keep)
    if len(used) == 0:
        raise BrioError(f"{whole.name}: the audit excludes every scan; see 'brio audit', or change its rules")
    return Prepared(
        used,
        whole,
        found,
        rules,
        protocol,
        of_folds,
        harmonise,
        parts[""],
        range(seeds),
        folds,
        target,
        runs_per_stack,
        records_only,
        progress,
        say,
    )


def run(
    cohort: Cohort | str | Path,
    methods: Sequence[str] | str = ("brio",),
    *,
    protocol: str = "loso",
    seeds: int = 1,
    out: str | Path | None = None,
    tuned: str | Path | Tuned | None = None,
    settings: dict[str, Any] | None = None,
    folds: Sequence[str] | None = None,
    companions: Sequence[Cohort] = (),
    exclude: bool = True,
    device: str = "auto",
    runs_per_stack: int | None = None,
    records_only: bool = False,
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
    tuned : path or Tuned, optional
        Folder of ``brio tune`` whose choices are carried over, fold by fold, to the methods that were tuned there.
    settings : dict, optional
        Settings of the methods, the protocol (``protocol.validation_sites``), the audit (``audit.min_frames``) and
        the harmonisation of sites (``harmonise.kind``).
    folds : names, optional
        Only these folds (test sites); the result is then marked as a smoke run.
    companions : cohorts
        The same participants in other atlases; all are audited and exclusions hold for all alike.
    exclude : bool
        Apply the exclusions that the audit proposes.
    device : {"auto", "cpu", "cuda"}
    runs_per_stack : int, optional
        Runs that train together; by default as many as memory allows.
    records_only : bool
        Keep scores and predictions of each run, not its weights.

    Examples
    --------
    >>> from brio.cohort.simulate import Simulation, simulate
    >>> result = run(simulate(Simulation(n_sites=5, per_class=6)), ["ridge"], device="cpu")
    >>> sorted(result.rows["fold"])
    ['site01', 'site02', 'site03', 'site04', 'site05']
    """
    names = [methods] if isinstance(methods, str) else list(dict.fromkeys(methods))
    method_settings(names, split_settings(dict(settings or {}))[""])  # words first, then the cohort
    found = None if tuned is None else Tuned.of(tuned)
    folder = Path(tempfile.mkdtemp(prefix="brio-")) if out is None else Path(out)
    earlier_plan(folder)
    prepared = prepare(
        cohort,
        protocol=protocol,
        seeds=seeds,
        settings=settings,
        folds=folds,
        companions=companions,
        exclude=exclude,
        device=device,
        runs_per_stack=runs_per_stack,
        records_only=records_only,
        progress=progress,
        say=say,
    )
    return execute(prepared, names, folder, found)


def execute(prepared: Prepared, names: Sequence[str], folder: Path, tuned: Tuned | None = None) -> Result:
    """Run methods, with their settings or with those chosen for each fold, and write the tables."""
    chosen = method_settings(names, prepared.of_methods)
    if tuned is not None:
        tuned.check(prepared.protocol_facts, len(prepared.seeds))
        untuned = [name for name in names if name not in tuned.choices]
        if len(untuned) == len(names):
            raise BrioError(f"none of {', '.join(names)} was tuned there; known: {', '.join(tuned.choices)}")
        if untuned:
            prepared.say(f"not tuned there, run with their own settings: {', '.join(untuned)}")
    described_, candidates = {}, {}
    for name, method in chosen.items():
        described_[name] = described(method)
        candidates[name] = _always(method)
        if tuned is not None and name in tuned.choices:
            described_[name]["tuned"] = tuned.described(name)
            candidates[name] = tuned.candidates(name, prepared.of_methods)
    plan = prepared.plan(described_, candidates, prepared.seeds)
    with settled(prepared, plan, folder, announce=tuned is None or tuned.searched is None) as (plan, store):
        if tuned is not None:
            tuned.lend(plan, store)
        train(prepared, plan, store)
        rows, predictions, summary = write_tables(plan, store, folder)
    return Result(folder, rows, predictions, summary, prepared.audit)


def _always(method: Method) -> Candidates:
    return lambda fold: [method]


@contextmanager
def settled(prepared: Prepared, plan: Plan, folder: Path, announce: bool = True) -> Iterator[tuple[Plan, RunStore]]:
    """The plan with its stacks, new or as begun earlier in the folder, and the store of its runs."""
    earlier = earlier_plan(folder)
    written = None if earlier is None else stacks_of(earlier, plan, folder)
    if announce:
        _announce(prepared)
    if written is None:
        plan = stacked(plan, prepared.graphs, prepared.runs_per_stack)
        _write_plan(plan, prepared.audit, folder)
    else:
        plan.stacks.extend(written)
    with RunStore(folder / "runs", prepared.records_only) as store:
        if written is not None:
            finished = sum(key in store for key in plan.jobs)
            prepared.say(f"going on: {finished} of {len(plan.jobs)} runs are finished")
        yield plan, store


def _write_plan(plan: Plan, found: Audit | None, folder: Path) -> None:
    """Write down what was decided; the plan comes last, and with it the folder belongs to this job."""
    folder.mkdir(parents=True, exist_ok=True)
    if found is not None:
        write_atomically(folder / "audit.json", json.dumps(found.to_dict(), indent=1) + "\n")
        write_atomically(folder / "exclusions.tsv", _exclusions(found))
    write_atomically(folder / "plan.json", json.dumps(plan.document, indent=1) + "\n")


def _announce(prepared: Prepared) -> None:
    """Say which scans are used and why the others are not."""
    used, whole, found, say = prepared.used, prepared.whole, prepared.audit, prepared.say
    if found is None:
        say(f"{len(whole)} scans, no exclusions applied")
        return
    say(f"{len(used)} of {len(whole)} scans are used" + (", excluded by the audit:" if found.exclusions else ""))
    for who, reasons in found.exclusions.items():
        say(f"  {who}: {'; '.join(reasons)}")


def _exclusions(found: Audit) -> str:
    lines = ["participant_id\treasons", *(f"{who}\t{'; '.join(why)}" for who, why in found.exclusions.items())]
    return "\n".join(lines) + "\n"


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
        seen = harmonised(graphs, jobs[0].run.fold.source, plan.harmonise)
        outcomes = _fit(method, seen, [job.run for job in jobs], tell)
        seconds = (time.perf_counter() - start) / len(jobs)
        for job, outcome in zip(jobs, outcomes, strict=True):
            if not searching:
                outcome.require_finite(method.name)
            store.write(job.key, _record(plan, job, outcome, graphs, seconds), outcome.weights)
        before += effort
        prepared.progress(f"{title}: done", before / total)


def _fit(method: Method, graphs: Connectomes, runs: list[Run], progress: Progress) -> list[Outcome]:
    """Fit runs; what goes wrong inside a user's own method is told as such."""
    file = entry(method.name).file
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


def _folds(jobs: list[Job]) -> str:
    names = list(dict.fromkeys(job.run.fold.name for job in jobs))
    return f"fold {names[0]}" if len(names) == 1 else f"folds {names[0]} to {names[-1]}"


def _record(plan: Plan, job: Job, outcome: Outcome, graphs: Connectomes, seconds: float) -> dict[str, Any]:
    """The row, the predictions and the notes of a finished run."""
    cohort, fold = graphs.cohort, job.run.fold
    label, logit = cohort.labels[fold.test], np.asarray(outcome.test_logit, dtype=float)
    finite = bool(np.isfinite(logit).all())
    scored = scores(label, logit if finite else np.zeros(len(logit)))
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
            "n_source": len(fold.source),
            "n_validation": len(fold.validation),
            "n_test": len(fold.test),
            **found,
            "validation_auc": outcome.validation_auc if math.isfinite(outcome.validation_auc) else None,
            "selected_epoch": outcome.selected_epoch,
            "block_length": outcome.block_length,
            "seconds": round(seconds, 3),
            "device": describe_device(graphs.device),
            "note": "; ".join(notes),
        },
        "notes": {"trained_epochs": outcome.trained_epochs, **outcome.notes},
        "settings": dataclasses.asdict(job.method.settings),
        "source_sites": sorted(set(cohort.sites[fold.source].tolist())),
        "predictions": {
            "participant_id": cohort.ids[fold.test].tolist(),
            "site": cohort.sites[fold.test].tolist(),
            "label": label.tolist(),
            "logit": logit.tolist() if finite else None,
        },
        "versions": {"brio": plan.facts["brio"], "torch": torch.__version__, "numpy": np.__version__},
    }

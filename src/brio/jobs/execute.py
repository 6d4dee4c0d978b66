"""Running a job: audit, plan, train what is missing, write the tables."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ..cohort import Audit, Cohort
from ..errors import BrioError
from ..progress import Progress, silent
from ..training import Method
from .facts import FACTS, cohort_facts
from .plan import Candidates, Plan, all_asked, described, method_settings, named, split_settings, stacked
from .prepare import Prepared, prepare
from .resume import earlier_plan, going_on
from .store import RunStore, write_atomically
from .tables import write_tables
from .train import train
from .tuned import Tuned

__all__ = ["Result", "announce", "execute", "planned", "run", "settled", "write_plan"]


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
    methods : names, see ``brio methods``, or "all"
        All are those whose needs the cohort meets, without variants of another one.
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
    device : {"auto", "cpu", "cuda", "cuda-tf32"}
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
    names = named(methods)
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
    return execute(prepared, prepared.fed(names) if all_asked(methods) else names, folder, found)


def execute(prepared: Prepared, names: Sequence[str], folder: Path, tuned: Tuned | None = None) -> Result:
    """Run methods, with their settings or with those chosen for each fold, and write the tables."""
    plan = planned(prepared, names, tuned)
    with settled(prepared, plan, folder, told=tuned is None or tuned.searched is None) as (plan, store):
        if tuned is not None:
            tuned.lend(plan, store)
        train(prepared, plan, store)
        rows, predictions, summary = write_tables(plan, store, folder)
    return Result(folder, rows, predictions, summary, prepared.audit)


def planned(prepared: Prepared, names: Sequence[str], tuned: Tuned | None = None) -> Plan:
    """The runs of some methods, with their settings or with those chosen for each fold."""
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
    return prepared.plan(described_, candidates, prepared.seeds)


def _always(method: Method) -> Candidates:
    return lambda fold: [method]


@contextmanager
def settled(
    prepared: Prepared, plan: Plan, folder: Path, told: bool = True, anywhere: bool = True
) -> Iterator[tuple[Plan, RunStore]]:
    """The plan with its stacks, new or as begun earlier in the folder, and the store of its runs.

    ``anywhere``: whether a finished job may have been computed on another device.
    """
    earlier = earlier_plan(folder)
    if earlier is not None:
        plan = going_on(earlier, plan, folder, anywhere)
    if told:
        announce(prepared)
    if earlier is None:
        plan = stacked(plan, prepared.graphs, prepared.runs_per_stack)
        write_plan(plan, prepared, folder)
    with RunStore(folder / "runs", prepared.records_only) as store:
        if earlier is not None:
            finished = sum(key in store for key in plan.jobs)
            prepared.say(f"going on: {finished} of {len(plan.jobs)} runs are finished")
        yield plan, store


def write_plan(plan: Plan, prepared: Prepared, folder: Path) -> None:
    """Write down what was decided; the plan comes last, and with it the folder belongs to this job."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / FACTS, json.dumps(cohort_facts(prepared.used), indent=1) + "\n")
    found = prepared.audit
    if found is not None:
        write_atomically(folder / "audit.json", json.dumps(found.to_dict(), indent=1) + "\n")
        write_atomically(folder / "exclusions.tsv", _exclusions(found))
    write_atomically(folder / "plan.json", json.dumps(plan.document, indent=1) + "\n")


def announce(prepared: Prepared) -> None:
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

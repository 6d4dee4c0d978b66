"""``results.csv`` and ``predictions.csv``: one row per run, one row per prediction."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..errors import file_error
from ..formatting import format_count
from ..methods.registry import restore_method
from ..protocol import calibrate_margins, score_predictions
from ..protocol.metrics import ONE_CLASS
from ..schemas import MAX_PARTICIPANT_TABLE_BYTES, Name, StoredCount, StoredLabel, StoredShare, show_value
from ..storage import write_recorded
from .cohort import read_audit, read_cohort_facts, read_groups
from .files import (
    AUDIT,
    COHORT_FACTS,
    EXCLUSIONS,
    GROUPS,
    PLAN,
    PLAN_AGAIN,
    PREDICTIONS,
    RESULTS,
    RUNS,
    SUMMARY,
    TUNING,
    format_csv,
    format_json,
    is_kept,
    read_csv,
)
from .records import METRICS, Plan, RunRecord, RunRow, Summary, TuningRecord
from .store import RunStore
from .summarise import covariance_rows, format_site_tables, read_covariances, read_sites, site_rows, summarise

COLUMNS = [f.name for f in dataclasses.fields(RunRow)]
DIVERGED = "training diverged"
WHOLE = ("selected_epoch", "trained_epochs", "steps")


@dataclass(frozen=True)
class PredictionRow:
    """A row of ``predictions.csv``: a test participant of a run; numbers are empty where it diverged."""

    method: Name
    fold: Name
    seed: StoredCount
    participant_id: Name
    site: str
    label: StoredLabel
    margin: float | None
    logit: float | None
    probability: StoredShare | None


def score_run(label: np.ndarray, margin: np.ndarray, logit: np.ndarray) -> tuple[dict[str, float | None], list[str]]:
    """Score the predictions [n] of a run: its scores, None where one is undefined, and notes that say why."""
    scores: dict[str, float | None] = dict.fromkeys(METRICS)
    if not np.isfinite(margin).all():
        return scores, [DIVERGED]
    if not len(label):  # a final model has no test participants
        return scores, []
    for name, value in score_predictions(label, margin, logit).items():
        scores[name] = None if np.isnan(value) else value
    return scores, [ONE_CLASS] if scores["auc"] is None else []


def result_rows(rows: Iterable[RunRow]) -> pd.DataFrame:
    """Make the table ``results.csv`` of the rows of runs, in their order."""
    numbers = dict.fromkeys((*METRICS, "validation_auc", "block_length"), float)  # also where none is known
    return pd.DataFrame(map(dataclasses.asdict, rows), columns=COLUMNS).astype(numbers | dict.fromkeys(WHOLE, "Int64"))


def prediction_rows(records: Sequence[RunRecord]) -> pd.DataFrame:
    """Make the rows of ``predictions.csv`` from records: one per test participant of each run."""
    parts = []
    for record in records:
        part = pd.DataFrame(dataclasses.asdict(record.predictions))
        part.insert(0, "seed", record.row.seed)
        part.insert(0, "fold", record.row.fold)
        part.insert(0, "method", record.row.method)
        part["margin"] = part["margin"].astype(float)
        part["logit"] = calibrate_margins(part["margin"].to_numpy(), record.details)
        part["probability"] = 0.5 * (1.0 + np.tanh(0.5 * part["logit"]))
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def read_results(folder: Path) -> pd.DataFrame:
    """Read ``results.csv`` of a job folder, one row per run."""
    return read_csv(folder / RESULTS, RunRow)


def read_predictions(folder: Path) -> pd.DataFrame | None:
    """Read ``predictions.csv`` of a job folder, one row per test participant and run; None where it was not kept."""
    path = folder / PREDICTIONS
    if not is_kept(path):
        return None
    predictions = read_csv(path, PredictionRow, max_bytes=MAX_PARTICIPANT_TABLE_BYTES)
    missing = predictions[["margin", "logit", "probability"]].isna()
    some_alone = missing.any(axis=1) & ~missing.all(axis=1)
    if some_alone.any():
        k = int(some_alone.argmax()) + 1
        raise file_error(path, f"row {k} has only some of margin, logit and probability; expected all or none")
    if predictions.duplicated(["method", "fold", "seed", "participant_id"]).any():
        raise file_error(path, "lists a participant more than once for the same method, fold and seed")
    return predictions


def format_tables(rows: pd.DataFrame, predictions: pd.DataFrame | None, summary: Summary) -> dict[str, str]:
    """Return the texts of the tables of a finished job by file name, the summary last.

    With predictions come ``sites.csv`` and ``covariances.csv``, see :mod:`brio.results.summarise`.
    """
    files = {RESULTS: format_csv(rows)}
    if predictions is not None:
        files[PREDICTIONS] = format_csv(predictions)
        files |= format_site_tables(
            site_rows(predictions, summary.protocol), covariance_rows(predictions, summary.protocol)
        )
    return files | {SUMMARY: format_json(summary, indent=2)}


def write_tables(folder: Path, rows: pd.DataFrame, predictions: pd.DataFrame | None, summary: Summary) -> None:
    """Write the tables of a finished job; the summary comes last, and with it the job is finished."""
    write_recorded(folder, format_tables(rows, predictions, summary))


@dataclass(frozen=True, eq=False)
class StoredRun:
    """A finished run of a job folder: its key in the store, and its record."""

    key: str
    record: RunRecord


@dataclass(frozen=True, eq=False)
class StoredJob:
    """What a finished job stored in its folder."""

    folder: Path
    summary: Summary
    rows: pd.DataFrame  # one row per run, results.csv
    plan: Plan | None = None  # None where only tables were kept
    predictions: pd.DataFrame | None = None  # one row per test scan of each run; None where they were not kept
    audit: dict[str, Any] | None = None  # what the audit found; counts and ranges of the cohort
    cohort_facts: dict[str, Any] | None = None
    groups: pd.DataFrame | None = None
    tuning: TuningRecord | None = None  # where settings were tuned here
    unfinished: str = ""  # what is missing of a job that is not finished

    @classmethod
    def read(cls, folder: Path, allow_unfinished: bool = False) -> StoredJob:
        """Read a folder of ``brio run`` or ``brio tune``; only the summary and the rows are required.

        With ``allow_unfinished``, a job without a summary has the methods all of whose runs are finished.
        """
        if allow_unfinished and (folder / PLAN).is_file() and not is_kept(folder / SUMMARY):
            return cls._read_unfinished(folder)
        summary, rows, predictions = Summary.read(folder), read_results(folder), read_predictions(folder)
        _check_agreement(summary, rows, folder / RESULTS)
        if predictions is not None:
            _check_agreement(summary, predictions, folder / PREDICTIONS)
        return cls(
            folder=folder,
            summary=summary,
            rows=rows,
            plan=Plan.read(folder, PLAN_AGAIN) if is_kept(folder / PLAN, PLAN_AGAIN) else None,
            predictions=predictions,
            audit=read_audit(folder),
            cohort_facts=read_cohort_facts(folder),
            groups=read_groups(folder),
            tuning=TuningRecord.read(folder) if is_kept(folder / TUNING) else None,
        )

    @classmethod
    def _read_unfinished(cls, folder: Path) -> StoredJob:
        """Read the finished methods of a job, and summarise them as if it had no others; nothing is written."""
        plan, store = Plan.read(folder, PLAN_AGAIN), RunStore(folder / RUNS)
        methods = plan.find_methods()
        left = Counter(name for key, name in methods.items() if key not in store)
        records = [store.read_record(key) for key, name in methods.items() if name not in left]
        if not records:
            raise file_error(folder, "no method has all of its runs yet", f"see 'brio status {folder}'")
        plan = dataclasses.replace(
            plan,
            methods={name: planned for name, planned in plan.methods.items() if name not in left},
            stacks=tuple(stack for stack in plan.stacks if stack and methods.get(stack[0]) not in left),
        )
        rows, predictions = result_rows(record.row for record in records), prediction_rows(records)
        facts = {record.row.method: restore_method(record.row.method, record.settings).facts for record in records}
        cohort_facts = read_cohort_facts(folder)
        missing = ", ".join(f"{name} ({format_count(n, 'run')})" for name, n in left.items()) or "its tables"
        return cls(
            folder=folder,
            summary=summarise(plan, rows, predictions, facts, cohort_facts),
            rows=rows,
            plan=plan,
            predictions=predictions,
            audit=read_audit(folder),
            cohort_facts=cohort_facts,
            groups=read_groups(folder),
            unfinished=f"Preliminary: job '{folder.resolve().name}' is not finished. Missing: {missing}.",
        )

    def require_plan(self) -> Plan:
        """Return the plan, or raise an error where only tables were kept."""
        if self.plan is None:
            raise file_error(self.folder, f"has no {PLAN}", "give a folder that 'brio run' or 'brio tune' wrote")
        return self.plan

    @cached_property
    def sites(self) -> pd.DataFrame | None:
        """``sites.csv``, or what it would hold, from the predictions; None where neither was kept."""
        if self.predictions is not None:
            return site_rows(self.predictions, self.summary.protocol)
        return read_sites(self.folder)

    @cached_property
    def covariances(self) -> pd.DataFrame | None:
        """``covariances.csv``, or what it would hold, from the predictions; None where neither was kept."""
        if self.predictions is not None:
            return covariance_rows(self.predictions, self.summary.protocol)
        return read_covariances(self.folder)

    @property
    def store(self) -> RunStore:
        """The store of its runs."""
        return RunStore(self.folder / RUNS)

    @cached_property
    def runs(self) -> list[StoredRun]:
        """The finished runs that are still in the folder, in the order of the plan."""
        stacks = self.plan.stacks if self.plan is not None else ()
        planned = [key for stack in stacks for key in stack]
        keys = [key for key in planned if key in self.store]
        if 0 < len(keys) < len(planned):
            lost = next(key for key in planned if key not in self.store)
            remedy = "run the command of the job again to train this run"
            raise file_error(self.store.folder / lost, "is missing", remedy)
        return [StoredRun(key, self.store.read_record(key)) for key in keys]


def _check_agreement(summary: Summary, table: pd.DataFrame, path: Path) -> None:
    """Refuse a table whose methods, folds or seeds differ from those in the summary of its job."""
    for column, known in (("method", summary.methods), ("fold", summary.folds), ("seed", summary.seeds)):
        unknown = [value for value in table[column].unique() if value not in known]
        if unknown:
            raise file_error(path, f"has the {column} {show_value(str(unknown[0]))}, which is not in {SUMMARY}")
    absent = [method for method in summary.methods if method not in set(table["method"])]
    if absent:
        raise file_error(path, f"has no row for the method {show_value(absent[0])}, which is in {SUMMARY}")


def write_plan(
    folder: Path,
    plan: Plan,
    cohort_facts: dict[str, Any],
    audit: dict[str, Any] | None,
    groups: pd.DataFrame | None = None,
) -> None:
    """Write the facts, the audit and the plan; the plan comes last, and from then on the folder belongs to this job."""
    files = {COHORT_FACTS: format_json(cohort_facts)}
    if groups is not None:
        files[GROUPS] = format_csv(groups)
    if audit is not None:
        files[AUDIT] = format_json(audit)
        reasons = {scan: "; ".join(map(str, reasons)) for scan, reasons in plan.excluded.items()}
        lines = ["participant_id\treasons", *(f"{scan}\t{text}" for scan, text in reasons.items())]
        files[EXCLUSIONS] = "\n".join(lines) + "\n"
    write_recorded(folder, files | {PLAN: format_json(plan)})

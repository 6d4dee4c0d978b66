"""``results.csv`` and ``predictions.csv``: one row per run, one row per prediction."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd

from ..errors import file_error
from ..protocol import calibrate_margins
from ..schemas import MAX_PARTICIPANT_TABLE_BYTES, Name, StoredCount, StoredShare
from ..schemas.stored_values import Range
from ..storage import write_recorded
from .files import PREDICTIONS, RESULTS, SUMMARY, format_csv, format_json, is_kept, read_csv
from .run_record import RunRecord, RunRow
from .sites import covariance_rows, format_site_tables, site_rows
from .summary import METRICS, Summary

COLUMNS = [f.name for f in dataclasses.fields(RunRow)]
REQUIRED = [f.name for f in dataclasses.fields(RunRow) if f.default is dataclasses.MISSING]
"""Columns that every version has written."""
WHOLE = ("selected_epoch", "trained_epochs", "steps")


@dataclass(frozen=True)
class PredictionRow:
    """A row of ``predictions.csv``: a test participant of a run; logit and probability are empty where it diverged."""

    method: Name
    fold: Name
    seed: StoredCount
    participant_id: Name
    site: str
    label: Annotated[int, Range("0 or 1", 0, 1)]
    logit: float | None
    probability: StoredShare | None


def result_rows(records: Sequence[RunRecord]) -> pd.DataFrame:
    """Make the rows of ``results.csv`` from records, in their order."""
    rows = [dataclasses.asdict(record.row) for record in records]
    numbers = dict.fromkeys((*METRICS, "validation_auc", "block_length"), float)  # also where none is known
    return pd.DataFrame(rows, columns=COLUMNS).astype(numbers | dict.fromkeys(WHOLE, "Int64"))


def prediction_rows(records: Sequence[RunRecord]) -> pd.DataFrame:
    """Make the rows of ``predictions.csv`` from records: one per test participant of each run."""
    parts = []
    for record in records:
        part = pd.DataFrame(dataclasses.asdict(record.predictions))
        part.insert(0, "seed", record.row.seed)
        part.insert(0, "fold", record.row.fold)
        part.insert(0, "method", record.row.method)
        logit = calibrate_margins(part["logit"].to_numpy(dtype=float), record.details)
        part["probability"] = 0.5 * (1.0 + np.tanh(0.5 * logit))
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def read_results(folder: Path) -> pd.DataFrame:
    """Read ``results.csv`` of a job folder, one row per run."""
    return read_csv(folder / RESULTS, RunRow, REQUIRED)


def read_predictions(folder: Path) -> pd.DataFrame | None:
    """Read ``predictions.csv`` of a job folder, one row per test participant and run; None where it was not kept."""
    path = folder / PREDICTIONS
    if not is_kept(path):
        return None
    columns = [f.name for f in dataclasses.fields(PredictionRow)]
    predictions = read_csv(path, PredictionRow, columns, max_bytes=MAX_PARTICIPANT_TABLE_BYTES)
    one_alone = predictions["logit"].isna() != predictions["probability"].isna()
    if one_alone.any():
        k = int(one_alone.argmax()) + 1
        raise file_error(path, f"has one of logit and probability in row {k}; both or none are expected")
    if predictions.duplicated(["method", "fold", "seed", "participant_id"]).any():
        raise file_error(path, "has a participant more than once under one method, fold and seed")
    return predictions


def write_tables(folder: Path, rows: pd.DataFrame, predictions: pd.DataFrame | None, summary: Summary) -> None:
    """Write the tables of a finished job; the summary comes last, and with it the job is finished.

    With predictions come ``sites.csv`` and ``covariances.csv``, see :mod:`brio.results.sites`.
    """
    files = {RESULTS: format_csv(rows)}
    if predictions is not None:
        files[PREDICTIONS] = format_csv(predictions)
        files |= format_site_tables(
            site_rows(predictions, summary.protocol), covariance_rows(predictions, summary.protocol)
        )
    write_recorded(folder, files | {SUMMARY: format_json(summary.to_json(), indent=2)})

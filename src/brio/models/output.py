"""The files of ``brio predict``, and what it says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from ..cohort import Cohort
from ..results.files import write_atomically, write_csv, write_json
from ..schemas import to_json
from ..storage import create_whole_folder, write_sums
from .external import score_labelled_scans, tabulate_scores
from .model import Model
from .predict import ScanPredictions, find_called, find_flagged
from .reasons import describe_codes
from .remarks import warn_of_other_classes, warn_of_unnamed_rois

PREDICTIONS, CONTRIBUTIONS, VALIDATION = "predictions.csv", "contributions.csv", "validation.json"
PAGE = "predictions.html"


def write_predictions(
    model: Model, cohort: Cohort, predictions: ScanPredictions, out: str | Path, page: str | None = None
) -> list[str]:
    """Write predictions, with their hashes, to a new folder, and say in a few lines what they show."""
    folder = Path(out)
    scores, lines = score_labelled_scans(cohort, predictions), []
    with create_whole_folder(folder) as partial:
        write_csv(partial / PREDICTIONS, predictions.table)
        if predictions.contributions is not None:
            write_csv(partial / CONTRIBUTIONS, predictions.contributions)
        if scores is not None:
            rows = tabulate_scores(scores, model.evidence, predictions.rule)
            lines += scores.describe(cohort.classes, rows)
            expected = {row.field: row.expected for row in rows if row.expected.value is not None}
            write_json(partial / VALIDATION, {**scores.to_json(), "expected": to_json(expected)})
        if page is not None:
            write_atomically(partial / PAGE, page)
        write_sums(partial)
    lines += summarise_predictions(model, cohort, predictions)
    lines.append("low and high are about other minutes of the same scan, not about another day")
    return [*lines, f"wrote {folder / PREDICTIONS}", *([] if page is None else [f"wrote {folder / PAGE}"])]


def summarise_predictions(model: Model, cohort: Cohort, predictions: ScanPredictions) -> list[str]:
    """Say in a few lines what predictions show."""
    table = predictions.table
    lines = [*warn_of_unnamed_rois(model, cohort), *_warn_of_known_scans(model, cohort)]
    lines += warn_of_other_classes(model, cohort)
    scans = "1 scan" if len(table) == 1 else f"{len(table)} scans"
    lines.append(f"{scans} predicted, {_count_reasons(table, 'flag', 'flagged')}")
    if (table["notes"] != "").any():
        lines.append(f"notes, which change no prediction: {_count_reasons(table, 'notes', 'with one')}")
    lines += _describe_calls(model, predictions)
    if model.evidence is not None and model.evidence.smoke_note:
        lines.append(f"warning: {_start_small(model.evidence.smoke_note)}")
    if model.adaptation is not None:
        lines.append(
            f"probabilities are adapted to {model.adaptation.n_participants} participants of one hospital; margins are "
            "not; the adapted model was not evaluated"
        )
    return lines


def _count_reasons(table: pd.DataFrame, column: str, words: str) -> str:
    """Count the scans with a code in a column, and these codes."""
    n = int((table[column] != "").sum())
    return f"{n} {words}" + (f": {describe_codes(table[column])} (columns {column}, reasons)" if n else "")


def _describe_calls(model: Model, predictions: ScanPredictions) -> list[str]:
    """Say how many scans are called, how many were to be expected, and how many calls other minutes might turn."""
    table, rule = predictions.table, predictions.rule
    if model.evidence is None:
        return ["the model was not evaluated, so no class is called (column predicted): fit it with --evaluate"]
    if model.evidence.rules is None:
        return ["no class is called: the evidence is of an earlier version, without a rule; fit the model again"]
    if rule is None:
        return ["no class is called: no rule reaches the wanted accuracy for a tenth of participants; lower --accuracy"]
    called = find_called(table)
    crossing = int((called & (table["interval_crosses_half"] == "yes")).sum())
    n_unflagged = int((~find_flagged(table)).sum())
    whose = "expected at a new site" if model.adaptation is None else "expected of the original model at a new site"
    lines = [
        f"{int(called.sum())} of {len(table)} called (column predicted): absolute logit at least {rule.threshold:.2f}, "
        f"no flag; {whose}: {rule.coverage * n_unflagged:.0f}, {rule.describe()}"
    ]
    if crossing:
        lines.append(
            f"{crossing} of the calls have an interval across one half (column interval_crosses_half): other minutes "
            "of the same scan may give the other class"
        )
    return lines


def _start_small(sentence: str) -> str:
    """Write a sentence as the rest of a line."""
    return sentence[:1].lower() + sentence[1:].removesuffix(".")


def _warn_of_known_scans(model: Model, cohort: Cohort) -> list[str]:
    """Say which scans are not new, so that nobody takes their scores for an external validation."""
    learned = model.find_learned_scans(cohort)
    known = model.adaptation.known_scans if model.adaptation is not None else None
    adapted = np.zeros(len(cohort), dtype=bool) if known is None else known.recognise(cohort)
    return [
        f"warning: the model was {words} {'these very' if seen.all() else f'{seen.sum()} of these'} scans, which says "
        "nothing about new ones"
        for words, seen in (("fitted to", learned), ("adapted to", adapted))
        if seen.any()
    ]

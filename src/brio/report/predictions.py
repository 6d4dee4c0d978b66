"""The page of ``brio predict``: one line per scan, with its interval and main contributions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..cohort import Cohort
from ..formatting import typeset
from ..models import Model, ScanPredictions
from ..models.external import (
    count_called_participants,
    expect_scores,
    score_labelled_scans,
    summarise_predictions,
    tabulate_scores,
)
from ..models.predict import NO_CALL, find_called, find_flagged
from .html import fill_template

SPEAKERS = 3
"""Largest number of regions or factors that are named for a scan."""


def name_classes(classes: Sequence[str]) -> Sequence[str]:
    """Return the names of both classes on a page."""
    return classes if tuple(classes) != ("0", "1") else ("control", "patient")


def render_prediction_page(model: Model, cohort: Cohort, predictions: ScanPredictions) -> str:
    """Render predictions as one HTML page that needs no network and no other file."""
    scores, labels = score_labelled_scans(cohort, predictions), np.full(len(cohort), "", dtype=object)
    known, is_wrong = np.flatnonzero(cohort.labelled), np.zeros(len(cohort), dtype=bool)
    if len(known):
        numbers = cohort.select(known).labels
        labels[known] = np.array(cohort.classes)[numbers]
        is_wrong[known] = numbers != (predictions.logit[known] > 0)
    called = find_called(predictions.table)
    scans = predictions.table.assign(
        label=labels, is_wrong=called & is_wrong, speakers=_name_speakers(model, predictions)
    )
    lines, is_flagged = summarise_predictions(model, cohort, predictions), find_flagged(scans)
    n_people, n_called, _ = count_called_participants(cohort, predictions.table)
    observed = None if scores is None or scores.caution else scores
    unflagged = observed.n_unflagged / observed.n_people if observed else float((~is_flagged).mean())
    n_sites = observed.n_sites if observed else len(set(cohort.participants.get("site", ["one"])))
    expected = expect_scores(model.evidence, predictions.rule, unflagged, n_sites)
    context = {
        "model": model,
        "cohort": cohort.name,
        "predictions": predictions,
        "classes": name_classes(model.classes),
        "cohort_classes": name_classes(cohort.classes),
        "n_people": n_people,
        "n_called": n_called,
        "n_flagged": int(is_flagged.sum()),
        "no_call": NO_CALL,
        "warnings": [line for line in lines if line.startswith("warning")],
        "lines": [line for line in lines if not line.startswith("warning")],
        "scans": scans.to_dict("records"),
        "labelled": bool(len(known)),
        "scores": scores,
        "n_sites": n_sites,
        "score_rows": tabulate_scores(observed, expected),
    }
    styles = ("report.css", "report_media.css", "predictions.css")
    scripts = ("tables.js", "predictions.js")
    return fill_template("predictions.html.j2", context, styles, scripts)


def _name_speakers(model: Model, predictions: ScanPredictions) -> list[list[str]]:
    """Name the regions or factors that contribute most in the direction of each prediction, and by how much."""
    sign = np.where(predictions.logit > 0, 1.0, -1.0)
    if predictions.regions is not None:
        names, added = model.atlas.rois["name"].astype(str).tolist(), predictions.regions  # [n, P]
    elif predictions.contributions is not None:
        table = predictions.contributions[predictions.contributions["factor"] != "intercept"]
        n_seeds = table["seed"].nunique()
        names = [
            f"factor {factor} of seed {seed}" if n_seeds > 1 else f"factor {factor}"
            for factor, seed in table[["factor", "seed"]].drop_duplicates().itertuples(index=False)
        ]
        by_seed = table["contribution"].to_numpy().reshape(n_seeds, len(sign), -1)  # [S, n, J]
        added = by_seed.transpose(1, 0, 2).reshape(len(sign), -1)
    else:
        return [[] for _ in sign]
    speakers = []
    for row, side in zip(added, sign, strict=True):
        largest = sorted(range(len(row)), key=lambda k: -side * row[k])[:SPEAKERS]
        speakers.append([typeset(f"{names[k]} {row[k]:+.2f}") for k in largest if side * row[k] > 0])
    return speakers

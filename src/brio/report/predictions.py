"""The page of ``brio predict`` for people: one line per scan, with its interval and what speaks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..cohort import Cohort
from ..formatting import typeset
from .html import fill_template

if TYPE_CHECKING:
    from ..models import Model, ScanPredictions
    from ..models.evidence import Evidence
    from ..models.external import ExternalScores

SPEAKERS = 3
"""Regions or factors that are named for a scan, at most."""


def render_prediction_page(model: Model, cohort: Cohort, predictions: ScanPredictions) -> str:
    """Render predictions as one HTML page that needs no network and no other file."""
    from ..models.external import score_labelled_scans, summarise_predictions
    from ..models.predict import find_called, find_flagged

    table, scores = predictions.table, score_labelled_scans(cohort, predictions)
    classes = model.classes if model.classes != ("0", "1") else ("control", "patient")
    context = {
        "model": model,
        "cohort": cohort.name,
        "classes": classes,
        "cohort_classes": cohort.classes if cohort.classes != ("0", "1") else ("control", "patient"),
        "n_called": int(find_called(table).sum()),
        "n_flagged": int(find_flagged(table).sum()),
        "lines": summarise_predictions(model, cohort, predictions),
        "rows": _list_rows(cohort, predictions, _name_speakers(model, predictions)),
        "speakers": _describe_speakers(predictions),
        "labelled": bool(cohort.labelled.any()),
        "scores": scores,
        "score_rows": [] if scores is None else _list_scores(scores, model, predictions),
        "facts": _list_facts(model),
    }
    styles = ("report.css", "report_media.css", "predictions.css")
    scripts = ("tables.js", "predictions.js")
    return fill_template("predictions.html.j2", context, styles, scripts)


def _list_rows(cohort: Cohort, predictions: ScanPredictions, speakers: list[list[str]]) -> list[dict[str, Any]]:
    """What the page shows of each scan; positions and shares in percent."""
    from ..models.predict import NO_CALL

    labels = np.full(len(cohort), "", dtype=object)
    known = np.flatnonzero(cohort.labelled)
    labels[known] = [cohort.classes[label] for label in cohort.select(known).labels] if len(known) else []
    rows = []
    for k, scan in enumerate(predictions.table.to_dict("records")):
        low, high, dot = (round(100 * scan[name], 1) for name in ("low", "high", "probability"))
        rows.append(
            {
                "name": scan["participant_id"],
                "probability": f"{scan['probability']:.4f}",
                "low": low,
                "width": round(high - low, 1),
                "dot": dot,
                "value": _write_percent(scan["probability"]),
                "interval": f"{_write_percent(scan['low'])} to {_write_percent(scan['high'])}",
                "agreement": f"{100 * scan['agreement']:.0f}",
                "predicted": scan["predicted"],
                "call": "none" if scan["predicted"] == NO_CALL else "called" if scan["predicted"] else "",
                "crosses": scan["interval_crosses_half"] == "yes",
                "flagged": scan["flag"] != "",
                "reasons": scan["reasons"],
                "speakers": speakers[k],
                "label": labels[k],
            }
        )
    return rows


def _write_percent(share: float) -> str:
    """Write a probability in whole percent, but never as certain."""
    return "< 1" if share < 0.005 else "> 99" if share > 0.995 else f"{100 * share:.0f}"


def _name_speakers(model: Model, predictions: ScanPredictions) -> list[list[str]]:
    """Name the regions or factors that add most to the side of each prediction, with what they add."""
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


def _describe_speakers(predictions: ScanPredictions) -> str:
    """Say what the last column holds; empty where it is left out."""
    if predictions.regions is not None:
        return (
            "The regions whose edges add most to the margin on the side of the prediction, and how much, compared with "
            "the mean source scan. They say what the model reads, not what causes anything."
        )
    if predictions.contributions is not None:
        return (
            "The factors that add most to the margin on the side of the prediction, and how much. Factors of different "
            "seeds do not correspond to each other."
        )
    return ""


def _list_scores(
    scores: ExternalScores, model: Model, predictions: ScanPredictions
) -> list[tuple[str, tuple[str, str], tuple[str, str]]]:
    """Name of each score of external validation; value and 95 % interval here, and as the evidence promised."""
    from ..models.evidence import Estimate
    from ..models.external import ScoreRow, tabulate_scores

    rows = tabulate_scores(scores, model.evidence, predictions.rule)
    if scores.caution:
        rows = [
            ScoreRow("accuracy", "accuracy of all participants, %", scores.pooled.accuracy, Estimate(None, None, None))
        ]

    def write(row: ScoreRow, estimate: Estimate) -> tuple[str, str]:
        value, interval = row.write(estimate)
        return typeset(value), typeset(interval)

    return [(row.name[:1].upper() + row.name[1:], write(row, row.here), write(row, row.expected)) for row in rows]


def _list_facts(model: Model) -> list[tuple[str, str]]:
    """The model card in a few lines."""
    training, n_seeds = model.training, len(model.members)
    facts = [
        ("Method", f"{model.method.name}, {n_seeds} {'seed' if n_seeds == 1 else 'seeds'}"),
        ("Fitted to", f"{training.n_scans} scans of {len(training.sites)} sites ({training.cohort})"),
        ("Atlas", f"{model.atlas.name}, {len(model.atlas)} ROIs"),
        ("At new sites" if model.adaptation is None else "Original at new sites", _describe_evidence(model.evidence)),
    ]
    if model.adaptation is not None:
        facts.append(("Adapted", " ".join(model.adaptation.describe(model.classes))))
    facts.append(("Holds", f"No identifiers; {model.method.facts.holds}."))
    facts.append(("Written by", f"brio {training.versions['brio']}"))
    return facts


def _describe_evidence(evidence: Evidence | None) -> str:
    if evidence is None:
        return "Not evaluated: nothing is known of how good it is."
    auc, known = evidence.auc, ""
    if auc.low is not None and auc.high is not None:
        known = typeset(f"; 95 % interval {100 * auc.low:.1f} to {100 * auc.high:.1f}")
    value = "unknown" if auc.value is None else typeset(f"{100 * auc.value:.1f}")
    differences = "".join(f" The evidence differs from the model: {words}." for words in evidence.differences)
    smoke = f" {evidence.smoke_note}" if evidence.smoke_note else ""
    return (
        f"AUC {value} % (mean over {evidence.averaged_sites}, each left out in turn{known}), "
        f"accuracy {evidence.accuracy_in_words}, Brier score {evidence.brier:.3f}.{smoke}{differences}"
    )

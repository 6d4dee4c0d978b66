"""Predictions of scans whose diagnosis is known, and what is written of predictions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import betaincinv, expit
from scipy.special import logit as to_logit

from ..cohort import Cohort
from ..cohort.covariates import ClassNames
from ..formatting import format_count
from ..protocol import PeopleEstimate, auc, average_margins
from ..protocol.calibration import fit_recalibration
from ..protocol.metrics import SiteAreas, assess_over_people, delong_covariance, placement_values
from ..protocol.statistics import t_interval
from ..results.files import write_atomically, write_csv, write_json
from ..results.summarise import MEAN_OVER_SITES, PAIR_WEIGHTED, assess_auc, covariance_rows, site_rows
from ..schemas import to_json
from ..storage import create_whole_folder, write_sums
from .evidence import CallRule, Estimate, Evidence, calibrate_sites, describe_codes
from .model import Model
from .predict import ScanPredictions, find_called, find_flagged, warn_of_other_classes, warn_of_unnamed_rois

FEW_PER_CLASS = 5
"""With fewer of a class, each of them makes up a quarter of the AUC or more, and DeLong's variance says nothing."""

_Z = 1.959963984540054
_UNKNOWN = Estimate(None, None, None)


@dataclass(frozen=True)
class PooledScores:
    """Scores of all participants together, as if they were of one site; intervals over participants."""

    auc: Estimate  # interval by DeLong's variance, at an area of 0 or 1 by Newcombe's score method
    accuracy: Estimate  # interval by Clopper and Pearson
    slope: Estimate  # calibration: 1 and 0 are perfect
    intercept: Estimate


@dataclass(frozen=True)
class ExternalScores:
    """Scores of predictions for scans with labels. A participant counts once, with the mean logit of the scans."""

    n_patients: int
    n_controls: int
    n_sites: int  # sites with labelled scans, and those of them that have an AUC
    n_two_class_sites: int
    n_known: int  # participants with labels who are left out of all scores, since the model has seen a scan of theirs
    n_called: int  # participants all of whose scans were called, and those none of whose scans has a flag, who could be
    n_unflagged: int
    auc: Estimate  # mean over sites with both classes; t interval over sites, of one site DeLong's
    pair_weighted_auc: Estimate
    accuracy: Estimate  # mean over sites; t interval over sites, of one site that of Clopper and Pearson
    accuracy_called: Estimate  # of the called participants together; interval by Clopper and Pearson
    brier: float  # of all participants
    slope: Estimate
    intercept: Estimate
    pooled: PooledScores

    def to_json(self) -> dict[str, Any]:
        """Return the scores as plain dictionaries."""
        document: dict[str, Any] = to_json(self)
        return document

    @property
    def caution(self) -> str:
        """Why these scans are too few to tell; empty where they are not."""
        if min(self.n_patients, self.n_controls) >= FEW_PER_CLASS:
            return ""
        return (
            f"fewer than {FEW_PER_CLASS} participants of a class are too few to tell how good predictions are: each of "
            "them makes up a quarter of the AUC or more"
        )

    def name_participants(self, classes: tuple[str, str]) -> str:
        """Say how many participants of each class there are, at how many sites."""
        names = ClassNames(*classes)
        where = "" if self.n_sites == 1 else f" of {self.n_sites} sites"
        return f"{self.n_patients} {names.positives} and {self.n_controls} {names.negatives}{where}"

    def name_left_out(self) -> str:
        """Say how many participants were left out, because the model has seen them; empty where nobody was."""
        return f"; {format_count(self.n_known, 'participant')} known to the model left out" if self.n_known else ""

    def describe(self, classes: tuple[str, str], rows: list[ScoreRow]) -> list[str]:
        """Say the scores in a few lines: the names of the labels 0 and 1, and :func:`tabulate_scores`."""
        lines = [f"external validation: {self.name_participants(classes)}{self.name_left_out()}"]
        if self.caution:
            n_people = self.n_patients + self.n_controls
            n_right = round((self.pooled.accuracy.value or 0.0) * n_people)
            return [*lines, f"{n_right} of {n_people} right; {self.caution}"]
        cells = [("", "here", "expected")]
        cells += [(row.name, row.show(row.here), row.show(row.expected)) for row in rows]
        widths = [max(len(cell[k]) for cell in cells) for k in (0, 1)]
        return lines + [f"  {a:<{widths[0]}}  {b:<{widths[1]}}  {c}".rstrip() for a, b, c in cells]


class ScoreRow(NamedTuple):
    """A score of external validation beside what the evidence promised: its field, its name, and how it is written."""

    field: str
    name: str
    here: Estimate
    expected: Estimate
    factor: int = 100
    digits: int = 1

    def show(self, estimate: Estimate) -> str:
        """Write one of the two with its interval; empty where it is unknown."""
        value, interval = self.write(estimate)
        return f"{value} ({interval})" if interval else value

    def write(self, estimate: Estimate) -> tuple[str, str]:
        """Write one of the two, and its interval; empty where they are unknown."""
        value, *ends = ("" if v is None else f"{self.factor * v:.{self.digits}f}" for v in vars(estimate).values())
        return value, " to ".join(ends) if all(ends) else ""


def tabulate_scores(scores: ExternalScores, evidence: Evidence | None, rule: CallRule | None) -> list[ScoreRow]:
    """List the scores that are known, each beside what the evidence promised."""
    n_people = scores.n_patients + scores.n_controls
    one = scores.n_sites == 1
    promised = dict.fromkeys(("auc", "pair_weighted_auc", "slope", "intercept"), _UNKNOWN)
    accuracy = brier = None
    if evidence is not None:
        promised = {name: getattr(evidence, name) for name in promised}
        accuracy, brier = evidence.accuracy_over_sites, evidence.brier
    over = "" if one else ", mean over sites"
    rows = [
        ScoreRow("auc", f"AUC{over}, %", scores.auc, promised["auc"]),
        ScoreRow("pair_weighted_auc", "AUC, pair-weighted, %", scores.pair_weighted_auc, promised["pair_weighted_auc"]),
        ScoreRow("accuracy", f"accuracy{over}, %", scores.accuracy, _make_bare(accuracy)),
    ]
    if rule is not None:
        here, expected = scores.n_called / n_people, rule.coverage * scores.n_unflagged / n_people
        called = f"accuracy of the {scores.n_called} called, %"
        rows += [
            ScoreRow("called", "called, % (never those with a flag)", _make_bare(here), _make_bare(expected)),
            ScoreRow("accuracy_called", called, scores.accuracy_called, rule.accuracy),
        ]
    rows += [
        ScoreRow("brier", "Brier score (always 50%: 0.25)", _make_bare(scores.brier), _make_bare(brier), 1, 3),
        ScoreRow("slope", "calibration slope (perfect: 1)", scores.slope, promised["slope"], 1, 2),
        ScoreRow("intercept", "calibration intercept (perfect: 0)", scores.intercept, promised["intercept"], 1, 2),
    ]
    if one:
        del rows[1]  # the same number
    return [row for row in rows if row.here.value is not None]


def score_labelled_scans(cohort: Cohort, predictions: ScanPredictions) -> ExternalScores | None:
    """Score predictions where new scans have labels of both classes; None where they have not.

    Logits are averaged over a participant's scans. Scans without a site count as those of one site. Participants with a
    scan that the model has seen are left out: their labels are no news to it.
    """
    seen = predictions.table["flag"].str.split().map(lambda codes: "known" in codes).to_numpy(dtype=bool)
    is_known = np.isin(cohort.participant_ids, cohort.participant_ids[seen])
    known = cohort.labelled & ~is_known
    if not known.any():
        return None
    labelled = cohort.select(known)
    if len(np.unique(labelled.labels)) < 2:
        return None
    everyone = np.arange(len(labelled))
    people, logits = average_margins(labelled, everyone, predictions.logit[known])
    label, probability = labelled.labels[people], expit(logits)
    right = (logits > 0) == label
    scans = np.column_stack([find_called(predictions.table), ~find_flagged(predictions.table)])[known]
    called, unflagged = (
        average_margins(labelled, everyone, scans.astype(float))[1] == 1
    ).T  # all scans of a participant
    named = labelled.participants.get("site", pd.Series("", labelled.participants.index))
    site = named.where(named.notna(), "").to_numpy(dtype=str)
    table = pd.DataFrame(
        {
            "method": "model",
            "seed": 0,
            "fold": site[people],
            "participant_id": labelled.participant_ids[people],
            "label": label,
            "logit": logits,
            "probability": probability,
        }
    )
    # one model for all sites: nothing is shared that another cohort would change
    tests = assess_auc(site_rows(table, "loso"), covariance_rows(table, "loso"), "model", correction=0.0)
    scores = table.assign(right=right).groupby("fold").apply(_score_site, include_groups=False)  # [sites, 2]
    pooled = _score_together(label, logits)
    (slope, _), (intercept, _) = calibrate_sites(table)
    if slope.low is None:
        slope, intercept = pooled.slope, pooled.intercept
    return ExternalScores(
        n_patients=int(label.sum()),
        n_controls=int((1 - label).sum()),
        n_sites=len(scores),
        n_two_class_sites=int(scores["auc"].count()),
        n_known=len(np.unique(cohort.participant_ids[cohort.labelled & is_known])),
        n_called=int(called.sum()),
        n_unflagged=int(unflagged.sum()),
        auc=_average_sites(scores["auc"], tests[MEAN_OVER_SITES]) if tests else _UNKNOWN,
        pair_weighted_auc=_limit(tests[PAIR_WEIGHTED]) if tests else _UNKNOWN,
        accuracy=_average_sites(scores["accuracy"], None) if len(scores) > 1 else pooled.accuracy,
        accuracy_called=_estimate_share(right[called]),
        brier=float(((probability - label) ** 2).mean()),
        slope=slope,
        intercept=intercept,
        pooled=pooled,
    )


def _score_site(people: pd.DataFrame) -> pd.Series:
    return pd.Series(
        {"auc": auc(people["label"].to_numpy(), people["logit"].to_numpy()), "accuracy": people["right"].mean()}
    )


def _average_sites(scores: pd.Series, over_people: PeopleEstimate | None) -> Estimate:
    """Mean over sites with its t interval; the AUC of one site has an interval over its participants instead."""
    known = scores.dropna().to_numpy(dtype=float)
    if len(known) == 1 and over_people is not None:
        return _limit(over_people)
    low, high = t_interval(known, 0.0, limits=(0.0, 1.0))
    return _make_bare(float(known.mean())) if np.isnan(low) else Estimate(float(known.mean()), low, high)


def _limit(test: PeopleEstimate) -> Estimate:
    return _make_estimate(test.mean, test.error, 0.0, 1.0)


def _score_together(label: np.ndarray, logits: np.ndarray) -> PooledScores:
    """Scores of all participants as if they were of one site."""
    area, covariance = delong_covariance(label, placement_values(label, logits)[:, None])
    n_patients, one = int((label == 1).sum()), np.ones(1)
    areas = SiteAreas(np.array([n_patients]), np.array([len(label) - n_patients]), area[None], covariance[None])
    fitted = fit_recalibration(label, to_logit(expit(logits).clip(1e-12, 1 - 1e-12)))
    return PooledScores(
        auc=_limit(assess_over_people(areas, one, one, correction=0.0)),
        accuracy=_estimate_share((logits > 0) == label),
        slope=_make_estimate(fitted.slope, fitted.slope_se),
        intercept=_make_estimate(fitted.in_the_large, fitted.in_the_large_se),
    )


def _make_estimate(value: float, se: float, least: float = -np.inf, largest: float = np.inf) -> Estimate:
    if not np.isfinite(value):
        return _UNKNOWN
    if not np.isfinite(se):
        return _make_bare(value)
    return Estimate(float(value), float(max(least, value - _Z * se)), float(min(largest, value + _Z * se)))


def _make_bare(value: float | None) -> Estimate:
    """A number without an interval."""
    return Estimate(None if value is None else float(value), None, None)


def _estimate_share(right: np.ndarray) -> Estimate:
    n, k = len(right), int(right.sum())
    if n == 0:
        return _UNKNOWN
    low = float(betaincinv(k, n - k + 1, 0.025)) if k else 0.0
    high = float(betaincinv(k + 1, n - k, 0.975)) if k < n else 1.0
    return Estimate(k / n, low, high)


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

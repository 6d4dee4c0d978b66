"""Predictions of scans whose diagnosis is known, and what is written of predictions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import betaincinv, expit
from scipy.special import logit as to_logit

from ..cohort import Cohort
from ..cohort.covariates import ClassNames
from ..formatting import format_count
from ..protocol import auc, average_margins
from ..protocol.calibration import fit_recalibration
from ..protocol.metrics import SiteAreas, assess_over_people, delong_covariance, placement_values
from ..protocol.statistics import t_interval
from ..results.files import format_json, write_csv
from ..results.summarise import MEAN_OVER_SITES, PAIR_WEIGHTED, assess_auc, covariance_rows, site_rows
from ..schemas import to_json
from ..storage import create_whole_folder, write_new, write_sums
from .evidence import CallRule, Estimate, Evidence, calibrate_sites, describe_codes
from .model import Model
from .predict import ScanPredictions, find_called, find_flagged, warn_of_other_classes, warn_of_unnamed_rois

FEW_PER_CLASS = 5
"""With fewer of a class, each of them makes up a quarter of the AUC or more, and DeLong's variance says nothing."""

_Z = 1.959963984540054
_SHARE = (0.0, 1.0)


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
    over = "" if scores.n_sites == 1 else ", mean over sites"

    def compare(name: str, words: str, promised: str = "", factor: int = 100, digits: int = 1) -> ScoreRow:
        expected = _estimate(getattr(evidence, promised or name, None))
        return ScoreRow(name, words, _estimate(getattr(scores, name)), expected, factor, digits)

    rows = [compare("auc", f"AUC{over}, %")]
    if scores.n_sites > 1:  # else it is the same number
        rows.append(compare("pair_weighted_auc", "AUC, pair-weighted, %"))
    rows.append(compare("accuracy", f"accuracy{over}, %", "accuracy_over_sites"))
    if rule is not None:
        here, expected = scores.n_called / n_people, rule.coverage * scores.n_unflagged / n_people
        called = f"accuracy of the {scores.n_called} called, %"
        rows += [
            ScoreRow("called", "called, % (never those with a flag)", _estimate(here), _estimate(expected)),
            ScoreRow("accuracy_called", called, scores.accuracy_called, rule.accuracy),
        ]
    rows += [
        compare("brier", "Brier score (always 50%: 0.25)", factor=1, digits=3),
        compare("slope", "calibration slope (perfect: 1)", factor=1, digits=2),
        compare("intercept", "calibration intercept (perfect: 0)", factor=1, digits=2),
    ]
    return [row for row in rows if row.here.value is not None]


def _estimate(
    value: Estimate | float | None, error: float = np.nan, limits: tuple[float, float] = (-np.inf, np.inf)
) -> Estimate:
    """Make an estimate of a number and its standard error, without an interval where that is not known."""
    if isinstance(value, Estimate):
        return value
    if value is None or not np.isfinite(value):
        return Estimate(None, None, None)
    if not np.isfinite(error):
        return Estimate(float(value), None, None)
    return Estimate(float(value), float(max(limits[0], value - _Z * error)), float(min(limits[1], value + _Z * error)))


def _estimate_share(right: np.ndarray) -> Estimate:
    """Share with the interval of Clopper and Pearson."""
    n, k = len(right), int(right.sum())
    if n == 0:
        return _estimate(None)
    low = float(betaincinv(k, n - k + 1, 0.025)) if k else 0.0
    high = float(betaincinv(k + 1, n - k, 0.975)) if k < n else 1.0
    return Estimate(k / n, low, high)


def _average_sites(scores: pd.Series) -> Estimate:
    """Mean over sites with its t interval."""
    known = scores.dropna().to_numpy(dtype=float)
    low, high = t_interval(known, 0.0, limits=_SHARE)
    mean = float(known.mean())
    return _estimate(mean) if np.isnan(low) else Estimate(mean, low, high)


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
    called, unflagged = (average_margins(labelled, everyone, scans.astype(float))[1] == 1).T  # all their scans
    named = labelled.participants.get("site", pd.Series("", labelled.participants.index))
    table = pd.DataFrame(
        {
            "method": "model",
            "seed": 0,
            "fold": named.where(named.notna(), "").to_numpy(dtype=str)[people],
            "participant_id": labelled.participant_ids[people],
            "label": label,
            "logit": logits,
            "probability": probability,
        }
    )
    # one model for all sites: nothing is shared that another cohort would change
    tests = assess_auc(site_rows(table, "loso"), covariance_rows(table, "loso"), "model", correction=0.0)
    by_site = table.assign(right=right).groupby("fold")
    aucs = by_site.apply(lambda own: auc(own["label"].to_numpy(), own["logit"].to_numpy()), include_groups=False)
    over_sites, weighted = (
        _estimate(tests[name].mean, tests[name].error, _SHARE) if tests else _estimate(None)
        for name in (MEAN_OVER_SITES, PAIR_WEIGHTED)
    )
    area, covariance = delong_covariance(label, placement_values(label, logits)[:, None])
    n_patients, n_controls, one = int(label.sum()), int((1 - label).sum()), np.ones(1)
    areas = SiteAreas(np.array([n_patients]), np.array([n_controls]), area[None], covariance[None])
    together = assess_over_people(areas, one, one, correction=0.0)
    fitted = fit_recalibration(label, to_logit(probability.clip(1e-12, 1 - 1e-12)))
    pooled = PooledScores(
        auc=_estimate(together.mean, together.error, _SHARE),
        accuracy=_estimate_share(right),
        slope=_estimate(fitted.slope, fitted.slope_se),
        intercept=_estimate(fitted.in_the_large, fitted.in_the_large_se),
    )
    (slope, _), (intercept, _) = calibrate_sites(table)
    if slope.low is None:
        slope, intercept = pooled.slope, pooled.intercept
    return ExternalScores(
        n_patients=n_patients,
        n_controls=n_controls,
        n_sites=len(aucs),
        n_two_class_sites=int(aucs.count()),
        n_known=len(np.unique(cohort.participant_ids[cohort.labelled & is_known])),
        n_called=int(called.sum()),
        n_unflagged=int(unflagged.sum()),
        auc=_average_sites(aucs) if tests and aucs.count() > 1 else over_sites,
        pair_weighted_auc=weighted,
        accuracy=_average_sites(by_site["right"].mean()) if len(aucs) > 1 else pooled.accuracy,
        accuracy_called=_estimate_share(right[called]),
        brier=float(((probability - label) ** 2).mean()),
        slope=slope,
        intercept=intercept,
        pooled=pooled,
    )


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
            write_new(partial / VALIDATION, format_json({**to_json(scores), "expected": expected}))
        if page is not None:
            write_new(partial / PAGE, page)
        write_sums(partial)
    lines += summarise_predictions(model, cohort, predictions)
    lines.append("low and high are about other minutes of the same scan, not about another day")
    return [*lines, f"wrote {folder / PREDICTIONS}", *([] if page is None else [f"wrote {folder / PAGE}"])]


def summarise_predictions(model: Model, cohort: Cohort, predictions: ScanPredictions) -> list[str]:
    """Say in a few lines what predictions show."""
    table, rule, evidence = predictions.table, predictions.rule, model.evidence
    lines = warn_of_unnamed_rois(model, cohort)
    adapted = model.adaptation.known_scans if model.adaptation is not None else None
    for words, known in (("fitted to", model.known_scans), ("adapted to", adapted)):
        seen = np.zeros(1, dtype=bool) if known is None else known.recognise(cohort)
        if seen.any():  # nobody shall take their scores for an external validation
            which = "these very" if seen.all() else f"{seen.sum()} of these"
            lines.append(f"warning: the model was {words} {which} scans, which says nothing about new ones")
    lines += warn_of_other_classes(model, cohort)

    def count(column: str, words: str) -> str:
        n = int((table[column] != "").sum())
        return f"{n} {words}" + (f": {describe_codes(table[column])} (columns {column}, reasons)" if n else "")

    lines.append(f"{'1 scan' if len(table) == 1 else f'{len(table)} scans'} predicted, {count('flag', 'flagged')}")
    if (table["notes"] != "").any():
        lines.append(f"notes, which change no prediction: {count('notes', 'with one')}")
    if evidence is None:
        lines.append("the model was not evaluated, so no class is called (column predicted): fit it with --evaluate")
    elif rule is None:
        why = "no rule reaches the wanted accuracy for a tenth of participants"
        lines.append(f"no class is called: {why}; lower --accuracy")
    else:
        called = find_called(table)
        crossing = int((called & (table["interval_crosses_half"] == "yes")).sum())
        n_expected = rule.coverage * int((~find_flagged(table)).sum())
        whose = "expected" if model.adaptation is None else "expected of the original model"
        lines.append(
            f"{int(called.sum())} of {len(table)} called (column predicted): absolute logit at least "
            f"{rule.threshold:.2f}, no flag; {whose} at a new site: {n_expected:.0f}, {rule.describe()}"
        )
        if crossing:
            lines.append(
                f"{crossing} of the calls have an interval across one half (column interval_crosses_half): other "
                "minutes of the same scan may give the other class"
            )
    if evidence is not None and (note := evidence.smoke_note):
        lines.append(f"warning: {note[:1].lower()}{note[1:].removesuffix('.')}")
    if model.adaptation is not None:
        lines.append(
            f"probabilities are adapted to {model.adaptation.n_participants} participants of one hospital; margins are "
            "not; the adapted model was not evaluated"
        )
    return lines

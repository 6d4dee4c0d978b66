"""Predictions of scans whose diagnosis is known, and what is written of predictions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import betaincinv, expit

from ..cohort import Cohort
from ..cohort.covariates import ClassNames
from ..formatting import format_count, format_interval
from ..protocol import auc, average_margins
from ..protocol.calibration import WHOLE_COEFFICIENT, fit_recalibration, read_logits
from ..protocol.metrics import SiteAreas, assess_over_people, delong_covariance, placement_values
from ..protocol.statistics import t_interval
from ..results.files import format_json, write_csv
from ..results.summarise import MEAN_OVER_SITES, PAIR_WEIGHTED, assess_auc, covariance_rows, site_rows
from ..schemas import to_json
from ..storage import create_whole_folder, write_new, write_sums
from .evidence import UNKNOWN, CallRule, Estimate, Evidence, calibrate_sites, make_estimate
from .model import Model
from .predict import ScanPredictions, find_called, find_flagged, warn_of_differences
from .ranges import describe_codes
from .text import fill_text

FEW_PER_CLASS = 5
"""With fewer of a class, each of them makes up a quarter of the AUC or more, and DeLong's variance says nothing."""

_Z = 1.959963984540054


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

        def show(value: float) -> str:
            return f"{self.factor * value:.{self.digits}f}"

        whole = WHOLE_COEFFICIENT if self.field in ("slope", "intercept") else 1.0
        interval = "" if estimate.ends is None else format_interval(estimate.ends, show, whole)
        return "" if estimate.value is None else show(estimate.value), interval


def tabulate_scores(scores: ExternalScores, evidence: Evidence | None, rule: CallRule | None) -> list[ScoreRow]:
    """List the scores that are known, each beside what the evidence promised."""
    n_people = scores.n_patients + scores.n_controls
    over = "" if scores.n_sites == 1 else ", mean over sites"

    def compare(name: str, words: str, promised: str = "", factor: int = 100, digits: int = 1) -> ScoreRow:
        pair = (getattr(scores, name), getattr(evidence, promised or name, None))
        here, expected = (one if isinstance(one, Estimate) else make_estimate(one) for one in pair)
        return ScoreRow(name, words, here, expected, factor, digits)

    rows = [compare("auc", f"AUC{over}, %")]
    if scores.n_sites > 1:  # else it is the same number
        rows.append(compare("pair_weighted_auc", "AUC, pair-weighted, %"))
    rows.append(compare("accuracy", f"accuracy{over}, %", "accuracy_over_sites"))
    if rule is not None:
        here, expected = scores.n_called / n_people, rule.coverage * scores.n_unflagged / n_people
        called = f"accuracy of the {scores.n_called} called, %"
        rows += [
            ScoreRow("called", "called, % (never those with a flag)", make_estimate(here), make_estimate(expected)),
            ScoreRow("accuracy_called", called, scores.accuracy_called, rule.accuracy),
        ]
    rows += [
        compare("brier", "Brier score (always 50%: 0.25)", factor=1, digits=3),
        compare("slope", "calibration slope (perfect: 1)", factor=1, digits=2),
        compare("intercept", "calibration intercept (perfect: 0)", factor=1, digits=2),
    ]
    return [row for row in rows if row.here.value is not None]


def _estimate_normal(value: float, error: float, low: float = -np.inf, high: float = np.inf) -> Estimate:
    """Estimate a number by its standard error, within limits."""
    return make_estimate(value, *np.clip(value + np.array([-_Z, _Z]) * error, low, high))


def _estimate_share(right: np.ndarray) -> Estimate:
    """Share with the interval of Clopper and Pearson."""
    n, k = len(right), int(right.sum())
    if n == 0:
        return UNKNOWN
    return make_estimate(
        k / n, betaincinv(k, n - k + 1, 0.025) if k else 0, betaincinv(k + 1, n - k, 0.975) if k < n else 1
    )


def _average_sites(scores: pd.Series) -> Estimate:
    """Mean over sites with its t interval."""
    known = scores.dropna().to_numpy(dtype=float)
    return make_estimate(known.mean(), *t_interval(known, 0.0, limits=(0, 1)))


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
            "margin": logits,  # of which the areas are
            "probability": probability,
        }
    )
    # one model for all sites: nothing is shared that another cohort would change
    tests = assess_auc(site_rows(table, "loso"), covariance_rows(table, "loso"), "model", correction=0.0)
    by_site = table.assign(right=right).groupby("fold")
    aucs = by_site.apply(lambda own: auc(own["label"].to_numpy(), own["margin"].to_numpy()), include_groups=False)
    over_sites, weighted = (
        _estimate_normal(tests[name].mean, tests[name].error, 0, 1) if tests else UNKNOWN
        for name in (MEAN_OVER_SITES, PAIR_WEIGHTED)
    )
    area, covariance = delong_covariance(label, placement_values(label, logits)[:, None])
    n_patients, n_controls, one = int(label.sum()), int((1 - label).sum()), np.ones(1)
    areas = SiteAreas(np.array([n_patients]), np.array([n_controls]), area[None], covariance[None])
    together = assess_over_people(areas, one, one, correction=0.0)
    fitted = fit_recalibration(label, read_logits(probability))
    pooled = PooledScores(
        auc=_estimate_normal(together.mean, together.error, 0, 1),
        accuracy=_estimate_share(right),
        slope=_estimate_normal(fitted.slope, fitted.slope_se),
        intercept=_estimate_normal(fitted.in_the_large, fitted.in_the_large_se),
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
    model: Model, cohort: Cohort, predictions: ScanPredictions, out: str | Path, page: str
) -> list[str]:
    """Write predictions, their page and their hashes to a new folder, and say in a few lines what they show."""
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
        write_new(partial / PAGE, page)
        write_sums(partial)
    lines += summarise_predictions(model, cohort, predictions)
    lines.append("low and high are about other minutes of the same scan, not about another day")
    return [*lines, f"wrote {folder / PREDICTIONS}", f"wrote {folder / PAGE}"]


def summarise_predictions(model: Model, cohort: Cohort, predictions: ScanPredictions) -> list[str]:
    """Say in a few lines what predictions show."""
    table, rule, called = predictions.table, predictions.rule, find_called(predictions.table)
    seen = {"fitted to": model.find_learned_scans(cohort)}  # nobody shall take their scores for external validation
    if model.adaptation is not None and model.adaptation.known_scans is not None:
        seen["adapted to"] = model.adaptation.known_scans.recognise(cohort)
    text = fill_text(
        "predictions.txt.j2",
        table=table,
        describe_codes=describe_codes,
        seen=seen,
        federated=model.training.federated,
        differences=warn_of_differences(model, cohort),
        evidence=model.evidence,
        adaptation=model.adaptation,
        rule=rule,
        called=called,
        n_crossing=int((called & (table["interval_crosses_half"] == "yes")).sum()),
        n_expected=None if rule is None else rule.coverage * int((~find_flagged(table)).sum()),
    )
    return text.rstrip("\n").split("\n")

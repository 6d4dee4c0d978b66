"""External validation: scores of predictions for scans with labels, and the files and summary of predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import betaincinv, expit

from ..cohort import Cohort
from ..cohort.covariates import ClassNames
from ..errors import BrioError
from ..formatting import format_count, format_interval, join_names
from ..methods.registry import DISPLAY_NAMES
from ..protocol import average_margins
from ..protocol.calibration import WHOLE_COEFFICIENT, fit_recalibration, read_logits
from ..protocol.statistics import t_interval
from ..results.files import format_json, read_json, write_csv
from ..results.summarise import PAIR_WEIGHTED, add_intervals, assess_auc, covariance_rows, site_rows
from ..schemas import Name, StoredCount, StoredShare, from_json
from ..storage import create_whole_folder, write_new, write_sums
from .evidence import UNKNOWN, CallRule, Estimate, Evidence, calibrate_sites, make_estimate
from .model import Model
from .predict import ScanPredictions, find_called, find_flagged, warn_of_differences
from .ranges import describe_codes, find_code
from .text import fill_text

FEW_PER_CLASS = 5
"""With fewer in either class, each one determines a quarter of the AUC or more, and DeLong's variance is invalid."""

_Z = 1.959963984540054


@dataclass(frozen=True)
class PooledScores:
    """Scores of all participants together, as if they were of one site; intervals over participants."""

    auc: Estimate  # interval by DeLong's variance, of an AUC of 0 or 1 by Newcombe's score method
    accuracy: Estimate  # interval by Clopper and Pearson
    slope: Estimate  # calibration: 1 and 0 are perfect
    intercept: Estimate


@dataclass(frozen=True)
class ExternalScores:
    """Scores of predictions for scans with labels. A participant counts once, with the mean logit of the scans."""

    n_patients: StoredCount
    n_controls: StoredCount
    sites: tuple[str, ...]  # that have labelled scans; empty text stands for scans without a site
    n_two_class_sites: StoredCount  # those of them that have an AUC
    n_small_sites: StoredCount  # of these, sites with fewer than FEW_PER_CLASS participants in either class
    n_known: StoredCount  # participants with labels who are left out of all scores: the model has seen a scan of theirs
    n_called: StoredCount  # participants all of whose scans were called
    n_unflagged: StoredCount  # participants none of whose scans has a flag, who could be called
    auc: Estimate  # mean over sites with both classes; t interval over sites, of one site DeLong's
    pair_weighted_auc: Estimate
    accuracy: Estimate  # mean over sites; t interval over sites, of one site that of Clopper and Pearson
    accuracy_called: Estimate  # of the called participants together; interval by Clopper and Pearson
    brier: StoredShare  # of all participants
    slope: Estimate
    intercept: Estimate
    pooled: PooledScores

    @property
    def n_people(self) -> int:
        """Number of participants that are scored."""
        return self.n_patients + self.n_controls

    @property
    def n_sites(self) -> int:
        """Number of sites."""
        return len(self.sites)

    @property
    def n_right(self) -> int:
        """Number of participants that are classified correctly."""
        return round((self.pooled.accuracy.value or 0.0) * self.n_people)

    @property
    def caution(self) -> str:
        """Why there are too few participants to judge the predictions; empty if there are enough."""
        if min(self.n_patients, self.n_controls) >= FEW_PER_CLASS:
            return ""
        return f"fewer than {FEW_PER_CLASS} participants in a class are too few to judge the predictions"

    @property
    def warning(self) -> str:
        """Why the mean over sites may mislead; empty if no site is small."""
        if self.n_small_sites == 0 or self.n_two_class_sites < 2:
            return ""
        own = f"{self.n_small_sites} of {self.n_two_class_sites} sites with both classes"
        verb = "has" if self.n_small_sites == 1 else "have"
        return (
            f"{own} {verb} fewer than {FEW_PER_CLASS} participants in a class; a small site counts less in the "
            "pair-weighted AUC than in the mean AUC over sites"
        )

    def name_participants(self, classes: tuple[str, str]) -> str:
        """State the number of participants of each class, and the number of sites."""
        names = ClassNames(*classes)
        where = "" if self.n_sites == 1 else f" at {self.n_sites} sites"
        return f"{self.n_patients} {names.positives} and {self.n_controls} {names.negatives}{where}"

    def name_left_out(self) -> str:
        """State how many participants were left out because the model has seen them; empty if none were."""
        return (
            f"; left out: {format_count(self.n_known, 'participant')} with a scan that is known to the model"
            if self.n_known
            else ""
        )

    def describe(self, classes: tuple[str, str], rows: list[ScoreRow]) -> list[str]:
        """Write the scores in a few lines, from the names of the labels 0 and 1 and :func:`tabulate_scores`."""
        lines = [f"external validation: {self.name_participants(classes)}{self.name_left_out()}"]
        if self.caution:
            return [*lines, f"{self.n_right} of {self.n_people} correct; {self.caution}"]
        cells = [("", "observed", "expected")]
        cells += [(row.name, row.show(row.here), row.show(row.expected)) for row in rows]
        widths = [max(len(cell[k]) for cell in cells) for k in (0, 1)]
        lines += [f"  {a:<{widths[0]}}  {b:<{widths[1]}}  {c}".rstrip() for a, b, c in cells]
        return [*lines, *filter(None, [self.warning])]


class ScoreRow(NamedTuple):
    """An observed score, the score expected from the evidence, and how both are written."""

    field: str
    name: str
    here: Estimate
    expected: Estimate
    factor: int = 100
    digits: int = 1

    def show(self, estimate: Estimate) -> str:
        """Write one of the two scores with its interval; empty if it is unknown."""
        value, interval = self.write(estimate)
        return f"{value} ({interval})" if interval else value

    def write(self, estimate: Estimate) -> tuple[str, str]:
        """Write one of the two scores, and its interval; empty if they are unknown."""

        def show(value: float) -> str:
            return f"{self.factor * value:.{self.digits}f}"

        whole = WHOLE_COEFFICIENT if self.field in ("slope", "intercept") else 1.0
        interval = "" if estimate.ends is None else format_interval(estimate.ends, show, whole)
        return "" if estimate.value is None else show(estimate.value), interval


def expect_scores(
    evidence: Evidence | None, rule: CallRule | None, unflagged: float, n_sites: int
) -> dict[str, Estimate]:
    """List the scores that the evidence predicts for scans from some sites, given the share of unflagged scans.

    Keys are fields of :class:`ExternalScores`. If the evidence has an interval for one new site, the AUC of one site
    has that interval, which is wider than that of the mean.
    """
    if evidence is None:
        return {}
    ends = evidence.new_site_interval if n_sites == 1 else None
    expected = {
        "auc": evidence.auc if ends is None else Estimate(evidence.auc.value, *ends),
        "pair_weighted_auc": evidence.pair_weighted_auc,
        "accuracy": make_estimate(evidence.accuracy_over_sites),
        "brier": make_estimate(evidence.brier),
        "slope": evidence.slope,
        "intercept": evidence.intercept,
    }
    if rule is not None:
        expected |= {"called": make_estimate(rule.coverage * unflagged), "accuracy_called": rule.accuracy}
    return expected


def tabulate_scores(scores: ExternalScores | None, expected: Mapping[str, Estimate]) -> list[ScoreRow]:
    """List observed and expected scores; only the expected ones if there are no scores."""
    over = "" if scores is not None and scores.n_sites == 1 else ", mean over sites"
    called = f"the {format_count(scores.n_called, 'labelled participant')}" if scores else "participants"
    words: dict[str, tuple[Any, ...]] = {
        "auc": (f"AUC{over}, %",),
        "pair_weighted_auc": ("AUC, pair-weighted, %",),
        "accuracy": (f"accuracy{over}, %",),
        "called": ("participants called, %",),
        "accuracy_called": (f"accuracy of {called} called, %",),
        "brier": ("Brier score (always predicting 50%: 0.25)", 1, 3),
        "slope": ("calibration slope (perfect: 1)", 1, 2),
        "intercept": ("calibration intercept (perfect: 0)", 1, 2),
    }
    if scores is None or scores.n_sites == 1:  # of one site it is the same number
        del words["pair_weighted_auc"]
    here: dict[str, Any] = {}
    if scores is not None:
        shares = {"brier": scores.brier, "called": scores.n_called / scores.n_people}
        here = vars(scores) | {name: make_estimate(value) for name, value in shares.items()}
    if "called" not in expected:  # no rule calls anybody
        here = {name: value for name, value in here.items() if name not in ("called", "accuracy_called")}
    rows = [
        ScoreRow(name, title, here.get(name, UNKNOWN), expected.get(name, UNKNOWN), *form)
        for name, (title, *form) in words.items()
    ]
    return [row for row in rows if (row.expected if scores is None else row.here).value is not None]


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


def _estimate_area(row: pd.DataFrame) -> Estimate:
    """AUC of the only row of ``sites.csv`` with its interval over participants; unknown where there is no row."""
    return make_estimate(*add_intervals(row)[["auc", "low", "high"]].iloc[0]) if len(row) else UNKNOWN


def _average_sites(scores: pd.Series) -> Estimate:
    """Mean over sites with its t interval."""
    known = scores.dropna().to_numpy(dtype=float)
    return make_estimate(known.mean(), *t_interval(known, 0.0, limits=(0, 1)))


def find_known_participants(cohort: Cohort, table: pd.DataFrame) -> np.ndarray:
    """Find the scans of participants of whom the model has seen a scan. Shape [n], bool."""
    return np.isin(cohort.participant_ids, cohort.participant_ids[find_code(table["flag"], "known")])


def explain_left_out(cohort: Cohort, table: pd.DataFrame) -> str:
    """Explain why labelled scans are no external validation: whom the model has seen, and which class is missing."""
    is_known = find_known_participants(cohort, table)
    left = cohort.select(cohort.labelled & ~is_known)
    names = ClassNames(*cohort.classes)
    lacking = [name for k, name in ((0, names.negatives), (1, names.positives)) if not (left.labels == k).any()]
    why = f"no {' and no '.join(lacking)} among {format_count(len(left), 'labelled scan')} that the model has not seen"
    if (seen := cohort.ids[cohort.labelled & is_known]).size:
        why += f"; {format_count(len(seen), 'labelled scan')} of participants known to the model: {join_names(seen)}"
    return why


def score_labelled_scans(cohort: Cohort, predictions: ScanPredictions) -> ExternalScores | None:
    """Score predictions if the new scans have labels of both classes; otherwise return None.

    Logits are averaged over a participant's scans. Scans without a site count as one site. Participants with a
    scan that the model has seen are left out, because it has learned from their labels.
    """
    is_known = find_known_participants(cohort, predictions.table)
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
    scored = site_rows(table, "loso")
    # one model for all sites: nothing is shared that another cohort would change
    tests = assess_auc(scored, covariance_rows(table, "loso"), "model", correction=0.0)
    by_site = table.assign(right=right).groupby("fold")
    known_aucs = scored["auc"].dropna()
    weighted = _estimate_normal(tests[PAIR_WEIGHTED].mean, tests[PAIR_WEIGHTED].error, 0, 1) if tests else UNKNOWN
    n_patients, n_controls = int(label.sum()), int((1 - label).sum())
    fitted = fit_recalibration(label, read_logits(probability))
    pooled = PooledScores(
        auc=_estimate_area(site_rows(table.assign(fold=""), "loso")),
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
        sites=tuple(scored["fold"].astype(str)),
        n_two_class_sites=len(known_aucs),
        n_small_sites=int(scored[["n_patients", "n_controls"]].min(axis=1).between(1, FEW_PER_CLASS - 1).sum()),
        n_known=len(np.unique(cohort.participant_ids[cohort.labelled & is_known])),
        n_called=int(called.sum()),
        n_unflagged=int(unflagged.sum()),
        auc=_average_sites(known_aucs) if len(known_aucs) > 1 else _estimate_area(scored.loc[known_aucs.index]),
        pair_weighted_auc=weighted,
        accuracy=_average_sites(by_site["right"].mean()) if len(scored) > 1 else pooled.accuracy,
        accuracy_called=_estimate_share(right[called]),
        brier=float(((probability - label) ** 2).mean()),
        slope=slope,
        intercept=intercept,
        pooled=pooled,
    )


PREDICTIONS, CONTRIBUTIONS, VALIDATION = "predictions.csv", "contributions.csv", "validation.json"
PAGE = "predictions.html"


@dataclass(frozen=True, kw_only=True)
class Validation(ExternalScores):
    """External validation of a model, as stored in ``validation.json``: observed scores, and those expected."""

    method: Name
    is_adapted: bool
    cohort: str  # the new scans
    classes: tuple[str, str]
    fingerprint: str  # of the cohort on which the model was evaluated; empty where it was not
    expected: dict[str, Estimate]

    @property
    def title(self) -> str:
        """Name the model for readers."""
        return DISPLAY_NAMES.get(self.method, self.method) + (", adapted" if self.is_adapted else "")

    @property
    def where(self) -> str:
        """Name the sites of the scans; the cohort where they have none."""
        return join_names(filter(None, self.sites), most=3) or self.cohort

    @property
    def participants(self) -> str:
        """State the number of participants of each class, and the number of sites."""
        return self.name_participants(self.classes)


def validate(model: Model, cohort: Cohort, predictions: ScanPredictions) -> Validation | None:
    """Compare predictions with labels; None if the new scans do not have labels of both classes."""
    if (scores := score_labelled_scans(cohort, predictions)) is None:
        return None
    expected = expect_scores(model.evidence, predictions.rule, scores.n_unflagged / scores.n_people, scores.n_sites)
    return Validation(
        **{field.name: getattr(scores, field.name) for field in fields(scores)},
        method=model.method.name,
        is_adapted=model.adaptation is not None,
        cohort=cohort.name,
        classes=cohort.classes,
        fingerprint="" if model.evidence is None else model.evidence.fingerprint,
        expected={name: one for name, one in expected.items() if one.value is not None},
    )


def read_validation(folder: str | Path) -> Validation:
    """Read the external validation in a folder of ``brio predict``."""
    path = Path(folder) / VALIDATION
    if not path.with_name(PREDICTIONS).is_file():
        raise BrioError(f"{folder}: has no {PREDICTIONS}; give the folder that 'brio predict --out' wrote")
    if not path.exists():
        raise BrioError(
            f"{folder}: has no {VALIDATION}, which requires new scans with labels of both classes; leave the folder out"
        )
    remedy = "repeat 'brio predict' with another --out"
    return from_json(Validation, read_json(path, remedy), path, remedy)


def write_predictions(
    model: Model, cohort: Cohort, predictions: ScanPredictions, out: str | Path, page: str
) -> list[str]:
    """Write predictions, their page and their hashes to a new folder, and return a summary in a few lines."""
    folder = Path(out)
    validation, lines = validate(model, cohort, predictions), []
    with create_whole_folder(folder) as partial:
        write_csv(partial / PREDICTIONS, predictions.table)
        if predictions.contributions is not None:
            write_csv(partial / CONTRIBUTIONS, predictions.contributions)
        if validation is not None:
            lines += validation.describe(cohort.classes, tabulate_scores(validation, validation.expected))
            write_new(partial / VALIDATION, format_json(validation))
        elif cohort.labelled.any():
            lines.append(f"no external validation: {explain_left_out(cohort, predictions.table)}")
        write_new(partial / PAGE, page)
        write_sums(partial)
    said = summarise_predictions(model, cohort, predictions)
    warned = [line for line in said if line.startswith("warning")]  # first: they may concern the labels or the evidence
    lines = [*warned, *lines, *(line for line in said if line not in warned)]
    lines.append("low and high are the ends of an interval for other minutes of the same scan, not for another day")
    return [*lines, f"wrote {folder / PREDICTIONS}", f"wrote {folder / PAGE}"]


def count_called_participants(cohort: Cohort, table: pd.DataFrame) -> tuple[int, int, int]:
    """Count all participants, those all of whose scans are called, and those none of whose scans has a flag."""
    scans = pd.DataFrame({"called": find_called(table), "unflagged": ~find_flagged(table)})
    people = scans.groupby(cohort.participant_ids).all()
    return len(people), int(people["called"].sum()), int(people["unflagged"].sum())


def summarise_predictions(model: Model, cohort: Cohort, predictions: ScanPredictions) -> list[str]:
    """Summarise predictions in a few lines."""
    table, rule, called = predictions.table, predictions.rule, find_called(predictions.table)
    n_people, n_called, n_unflagged = count_called_participants(cohort, table)
    seen = {"fitted to": model.find_learned_scans(cohort)}  # their scores are no external validation
    if model.adaptation is not None and model.adaptation.known_scans is not None:
        seen["adapted to"] = model.adaptation.known_scans.recognise(cohort)
    text = fill_text(
        "predictions.txt.j2",
        table=table,
        foreign=cohort.ids[find_code(table["flag"], "foreign")],
        describe_codes=describe_codes,
        join_names=join_names,
        seen=seen,
        federated=model.training.federated,
        differences=warn_of_differences(model, cohort),
        evidence=model.evidence,
        adaptation=model.adaptation,
        rule=rule,
        n_people=n_people,
        n_called=n_called,
        n_crossing=int((called & (table["interval_crosses_half"] == "yes")).sum()),
        n_expected=None if rule is None else rule.coverage * n_unflagged,
    )
    return text.rstrip("\n").split("\n")

"""External validation: how good predictions are where the scans have labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betaincinv, expit
from scipy.special import logit as to_logit

from ..cohort import Cohort
from ..protocol import auc, average_margins
from ..protocol.placements import delong_covariance, placement_values
from ..protocol.recalibration import fit_recalibration
from ..schemas import to_json
from .evidence import Estimate
from .predict import ScanPredictions

__all__ = ["ExternalScores", "score_labelled_scans"]

FEW_PER_CLASS = 5
"""With fewer of a class, each of them makes up a quarter of the AUC or more, and DeLong's variance says nothing."""

_Z = 1.959963984540054


@dataclass(frozen=True)
class ExternalScores:
    """Scores of predictions for scans with labels.

    Attributes
    ----------
    n_patients, n_controls, n_decided : int
    auc : Estimate
        Interval by DeLong's variance.
    accuracy, accuracy_decided : Estimate
        Of all participants, and of those all of whose scans were decided; intervals by Clopper and Pearson.
    brier : float
    slope, intercept : Estimate
        Calibration: 1 and 0 are perfect.
    """

    n_patients: int
    n_controls: int
    n_decided: int
    auc: Estimate
    accuracy: Estimate
    accuracy_decided: Estimate
    brier: float
    slope: Estimate
    intercept: Estimate

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

    def describe(self, classes: tuple[str, str]) -> list[str]:
        """Say the scores in a few lines; ``classes`` are the names of the labels 0 and 1."""
        lines = [f"labels: {self.n_patients} {classes[1]}, {self.n_controls} {classes[0]}"]
        if self.caution:
            n_people = self.n_patients + self.n_controls
            n_right = round((self.accuracy.value or 0.0) * n_people)
            return [*lines, f"{n_right} of {n_people} right; {self.caution}"]
        decided = f", of the {self.n_decided} decided {_show(self.accuracy_decided, 100)} %" if self.n_decided else ""
        lines.append(f"AUC {_show(self.auc, 100)} %, accuracy {_show(self.accuracy, 100)} %{decided}")
        calibration = (("calibration slope", self.slope), ("intercept", self.intercept))
        known = [f"{name} {_show(estimate)}" for name, estimate in calibration if estimate.value is not None]
        return [*lines, ", ".join([f"Brier score {self.brier:.3f}", *known])]


def score_labelled_scans(cohort: Cohort, predictions: ScanPredictions) -> ExternalScores | None:
    """Score predictions where the scans have labels of both classes. Logits are averaged over a participant's scans.

    Parameters
    ----------
    cohort : Cohort
    predictions : ScanPredictions

    Returns
    -------
    ExternalScores or None
        None where there are no labels, or those of one class only.
    """
    known = cohort.labelled
    if not known.any():
        return None
    labelled = cohort.select(known)
    if len(np.unique(labelled.labels)) < 2:
        return None
    people, logits = average_margins(labelled, np.arange(len(labelled)), predictions.logit[known])
    label, probability = labelled.labels[people], expit(logits)
    right = (logits > 0) == label
    decided_scans = (predictions.table["decided"][known] == "yes").to_numpy(dtype=float)
    decided = average_margins(labelled, np.arange(len(labelled)), decided_scans)[1] == 1  # all scans
    _, covariance = delong_covariance(label, placement_values(label, logits)[:, None])
    area, error = auc(label, logits), float(np.sqrt(covariance[0, 0]))
    fitted = fit_recalibration(label, to_logit(probability.clip(1e-12, 1 - 1e-12)))
    return ExternalScores(
        n_patients=int(label.sum()),
        n_controls=int((1 - label).sum()),
        n_decided=int(decided.sum()),
        auc=_make_estimate(area, error, 0.0, 1.0),
        accuracy=_estimate_share(right),
        accuracy_decided=_estimate_share(right[decided]),
        brier=float(((probability - label) ** 2).mean()),
        slope=_make_estimate(fitted.slope, fitted.slope_se),
        intercept=_make_estimate(fitted.in_the_large, fitted.in_the_large_se),
    )


def _make_estimate(value: float, se: float, least: float = -np.inf, largest: float = np.inf) -> Estimate:
    if not np.isfinite(value):
        return Estimate(None, None, None)
    if not np.isfinite(se):
        return Estimate(float(value), None, None)
    return Estimate(float(value), float(max(least, value - _Z * se)), float(min(largest, value + _Z * se)))


def _estimate_share(right: np.ndarray) -> Estimate:
    n, k = len(right), int(right.sum())
    if n == 0:
        return Estimate(None, None, None)
    low = float(betaincinv(k, n - k + 1, 0.025)) if k else 0.0
    high = float(betaincinv(k + 1, n - k, 0.975)) if k < n else 1.0
    return Estimate(k / n, low, high)


def _show(estimate: Estimate, factor: float = 1.0) -> str:
    assert estimate.value is not None  # what is unknown is left out
    digits = 1 if factor == 100 else 2
    text = f"{factor * estimate.value:.{digits}f}"
    if estimate.low is None or estimate.high is None:
        return text
    return f"{text} ({factor * estimate.low:.{digits}f} to {factor * estimate.high:.{digits}f})"

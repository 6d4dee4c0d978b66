"""Recalibrate the logits of a model on a few labelled scans of one hospital, shrunk towards no change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from scipy.special import expit, logit

from ..cohort.covariates import ClassNames
from ..errors import BrioError
from ..formatting import format_count
from ..schemas import StoredCount, StoredNonNegative, StoredPositive, StoredShare, one_of
from .evidence import Evidence
from .known_scans import KnownScans
from .text import fill_text

LEAST_WIDTH = 0.1
"""Smallest width taken from evidence: agreement among a few sites may be due to chance."""

FEW_PARTICIPANTS = 10
"""Smallest number of local participants for which the gain was measured, see docs/results/adaptation.md."""

_ITERATIONS = 100


@dataclass(frozen=True)
class PriorWidths:
    """How much hospitals differ: standard deviations of a normal prior around no change."""

    slope: StoredNonNegative = 0.25  # of the logarithm of the slope
    intercept: StoredNonNegative = 0.5  # of the intercept, in logits
    source: Annotated[str, one_of("default", "evidence", "given")] = "default"


@dataclass(frozen=True)
class Adaptation:
    """Slope and intercept that turn the logits of a model into those of one hospital."""

    n_patients: StoredCount  # local participants it was fitted to; scans of one participant are averaged
    n_controls: StoredCount
    slope: StoredPositive  # the adapted logit is slope * logit + intercept
    intercept: float
    slope_se: StoredNonNegative  # their standard errors, prior included
    intercept_se: StoredNonNegative
    widths: PriorWidths
    prevalence: StoredShare | None = None  # share of patients that was given; None where it is that of the local scans
    brier_before: StoredShare | None = None
    brier_change: float | None = None
    brier_change_se: StoredNonNegative | None = None
    n_foreign: StoredCount = 0
    known_scans: KnownScans | None = None  # by which the local scans are recognised

    @property
    def n_participants(self) -> int:
        """Number of local participants."""
        return self.n_patients + self.n_controls

    def apply(self, logits: np.ndarray) -> np.ndarray:
        """Return adapted logits, in the shape of the input."""
        return self.slope * logits + self.intercept

    def describe(self, classes: tuple[str, str]) -> list[str]:
        """Describe in a few sentences what was learned, from how many scans, and how much it improves predictions."""
        at_half = expit(-self.intercept / self.slope)  # what the original model says where the probability is one half
        text = fill_text(
            "adaptation.txt.j2", own=self, names=ClassNames(*classes), few=FEW_PARTICIPANTS, at_half=at_half
        )
        return text.rstrip("\n").split("\n")


def choose_widths(evidence: Evidence | None, slope: float | None = None, intercept: float | None = None) -> PriorWidths:
    """Choose the widths of the prior: those given, or else those between sites in the evidence, or else the default."""
    for name, width in (("slope", slope), ("intercept", intercept)):
        if width is not None and not (np.isfinite(width) and width > 0):
            raise BrioError(f"the width of the prior of the {name} is {width}; give a number above 0")
    widths = PriorWidths()
    if evidence is not None and evidence.slope_sd is not None and evidence.intercept_sd is not None:
        mean = max(evidence.slope.value or 1.0, 0.5)  # of the logarithm, to first order
        spread = (max(LEAST_WIDTH, evidence.slope_sd / mean), max(LEAST_WIDTH, evidence.intercept_sd))
        widths = PriorWidths(*spread, "evidence")
    if slope is None and intercept is None:
        return widths
    return PriorWidths(slope or widths.slope, intercept or widths.intercept, "given")


def fit_adaptation(
    label: np.ndarray,
    logits: np.ndarray,
    widths: PriorWidths,
    prevalence: float | None = None,
    source_share: float = 0.5,
) -> Adaptation:
    """Fit slope and intercept to local scans by the mode of their posterior.

    Labels follow a logistic regression on the logits. The logarithm of the slope has a normal prior around 0. The
    intercept has one around 0 or, if a prevalence is given, around the change that this prevalence alone implies. With
    a prevalence, the share of patients among the local scans is treated as a choice of who was scanned, as in a
    case-control study, and does not affect the intercept.

    Shapes: label [n], logits [n].
    """
    label, logits = np.asarray(label, dtype=float), np.asarray(logits, dtype=float)
    n_patients, n_controls = int(label.sum()), int((1 - label).sum())
    if prevalence is not None and not 0 < prevalence < 1:
        raise BrioError(f"prevalence {prevalence} is not valid; give a number above 0 and below 1")
    if prevalence is None and (n_patients == 0 or n_controls == 0):
        lacking = "patients" if n_patients == 0 else "controls"
        found = format_count(len(label), "labelled local participant")
        raise BrioError(f"no {lacking} among {found}; add {lacking}, or give --prevalence")
    (log_slope, intercept), covariance = _find_mode(label, logits, widths, prevalence, source_share)
    slope = float(np.exp(log_slope))
    slope_se, intercept_se = (np.sqrt(np.diag(covariance)) * [slope, 1.0]).tolist()
    return Adaptation(n_patients, n_controls, slope, float(intercept), slope_se, intercept_se, widths, prevalence)


def expect_gain(adaptation: Adaptation, label: np.ndarray, logits: np.ndarray, source_share: float = 0.5) -> Adaptation:
    """Estimate the gain from an adaptation: the change in the Brier score, with each local scan left out in turn.

    If a prevalence is given, the score weights the classes by this prevalence.

    Shapes: label [n], logits [n].
    """
    label, logits = np.asarray(label, dtype=float), np.asarray(logits, dtype=float)
    prevalence, widths = adaptation.prevalence, adaptation.widths
    groups = [(1.0, np.ones(len(label), dtype=bool))]
    if prevalence is not None:
        groups = [(prevalence, label == 1), (1 - prevalence, label == 0)]
    if not all(group.any() for _, group in groups):
        return replace(adaptation, brier_before=None, brier_change=None, brier_change_se=None)
    adapted, error = np.empty(len(label)), None
    for i in range(len(label)):
        others = np.arange(len(label)) != i
        (log_slope, intercept), _ = _find_mode(label[others], logits[others], widths, prevalence, source_share)
        adapted[i] = np.exp(log_slope) * logits[i] + intercept
    before, after = ((expit(values) - label) ** 2 for values in (logits, adapted))
    change = after - before
    if all(group.sum() > 1 for _, group in groups):
        variance = sum(share**2 * change[group].var(ddof=1) / group.sum() for share, group in groups)
        error = float(np.sqrt(variance))
    total, gained = (float(sum(share * one[group].mean() for share, group in groups)) for one in (before, change))
    return replace(adaptation, brier_before=total, brier_change=gained, brier_change_se=error)


def _find_mode(
    label: np.ndarray, logits: np.ndarray, widths: PriorWidths, prevalence: float | None, source_share: float
) -> tuple[np.ndarray, np.ndarray]:
    """Logarithm of the slope and intercept at the mode, and their covariance, by Fisher scoring."""
    precision = np.array([widths.slope**-2.0, widths.intercept**-2.0])
    start = np.array([0.0, 0.0 if prevalence is None else float(logit(prevalence) - logit(source_share))])
    share = label.mean() if len(label) else 0.0
    if not 0 < share < 1 and prevalence is not None:
        return start, np.diag(1 / precision)  # scans of one class say nothing once the prevalence is given
    offset = 0.0 if prevalence is None else float(logit(share) - logit(prevalence))

    def penalised_loss(theta: np.ndarray) -> float:
        eta = np.exp(theta[0]) * logits + theta[1] + offset
        return float((np.logaddexp(0, eta) - label * eta).sum() + (precision * (theta - start) ** 2).sum() / 2)

    theta, loss = start, penalised_loss(start)
    for _ in range(_ITERATIONS):
        scaled = np.exp(theta[0]) * logits
        p = expit(scaled + theta[1] + offset)
        X = np.column_stack([scaled, np.ones(len(scaled))])
        information = (X * (p * (1 - p))[:, None]).T @ X + np.diag(precision)
        step = np.linalg.solve(information, X.T @ (label - p) - precision * (theta - start))
        size = 1.0
        while (new_loss := penalised_loss(theta + size * step)) > loss and size > 1e-8:
            size /= 2
        if new_loss > loss or np.abs(step).max() < 1e-9:
            break
        theta, loss = theta + size * step, new_loss
    return theta, np.linalg.inv(information)

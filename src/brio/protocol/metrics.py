"""Scores of predictions: AUC with DeLong's placements, accuracy, Brier score; participants with several scans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from ..cohort import Cohort
from ..cohort.scans import average_over_scans, index_participants
from .statistics import ALPHA, site_correction

ONE_CLASS = "the test scans hold one class only"
"""The reason in results why a run has no AUC."""
ROUNDING = 1e-11
"""Relative difference up to which margins count as equal. Sums of thousands of products in double precision, and the
eigenvectors that margins come from, are accurate to 1e-14 to 1e-12; different scans hardly ever agree so closely.
"""


def merge_ties(margin: np.ndarray, scale: float = 0.0) -> np.ndarray:
    """Make margins of a column equal if they agree up to rounding; all others are returned unchanged.

    Every AUC, placement value and ROC curve is of such margins, since the last bits of a margin follow the order of the
    scans. Neighbours agree if they differ by no more than 1e-11 of the larger of them, of the median absolute margin,
    or of ``scale``.

    Shapes: margin [n, ...]; returns [n, ...].
    """
    margin = np.asarray(margin, dtype=float)
    ascending = np.sort(margin, axis=0)
    largest = max(scale, -ascending[0].min(), ascending[-1].max())
    if largest == np.inf:  # such as of a run that diverged
        return margin
    gap = ascending[1:] - ascending[:-1]
    if gap.min(initial=np.inf) > ROUNDING * largest:
        return margin
    size = np.abs(ascending)
    middle = np.partition(size, len(size) // 2, axis=0)[len(size) // 2]
    larger = np.maximum(np.maximum(size[1:], size[:-1]), np.maximum(middle, scale))
    merged = ascending.copy()
    merged[1:][gap <= ROUNDING * larger] = -np.inf
    merged = np.maximum.accumulate(merged, axis=0)  # the lowest of those that are tied
    out = np.empty_like(merged)
    np.put_along_axis(out, np.argsort(margin, axis=0), merged, axis=0)
    return out


def auc(label: np.ndarray, logit: np.ndarray, scale: float = 0.0) -> float:
    """Compute the area under the ROC curve: the share of pairs of patient and control in order, ties counted as half.

    Logits that agree up to rounding are ties, see :func:`merge_ties`.

    scikit-learn's function is not used: its input checks take a hundred times longer than the counting, and choosing a
    penalty by inner folds computes thousands of areas.

    Shapes: label [n], logit [n]. Returns NaN if there is one class only.
    """
    control, patient = label != 1, label == 1
    n_pairs = int(control.sum()) * int(patient.sum())
    if not n_pairs:
        return float("nan")
    if np.isnan(logit).any():
        raise ValueError("some logits are NaN, so scans cannot be ranked; leave these scans out")
    merged = merge_ties(logit, scale)
    controls, patients = np.sort(merged[control]), merged[patient]
    below = np.searchsorted(controls, patients, "left") + np.searchsorted(controls, patients, "right")
    return float(below.sum() / (2 * n_pairs))


def _share(flags: np.ndarray) -> float:
    return float(flags.mean()) if len(flags) else float("nan")


def calibrate_margins(margin: np.ndarray, details: Mapping[str, Any]) -> np.ndarray:
    """Turn margins into logits of probabilities.

    Classes are predicted from margins, probabilities from these logits.

    Shapes: margin [n]; returns [n].
    """
    slope, intercept = details.get("calibration", (1.0, 0.0))
    return slope * margin + intercept


def score_predictions(label: np.ndarray, logit: np.ndarray, calibrated: np.ndarray | None = None) -> dict[str, float]:
    """Score predictions; the predicted class is that with probability above one half (logit above 0).

    The Brier score is computed from the calibrated logits, if these differ.

    Shapes: label [n], logit [n], calibrated [n]. Returns ``auc``, ``acc``, ``balanced_acc``, ``sensitivity``,
    ``specificity``, ``brier``; NaN where a score is undefined.
    """
    correct = (logit > 0) == (label == 1)
    sensitivity, specificity = _share(correct[label == 1]), _share(correct[label == 0])
    probability = 0.5 * (1.0 + np.tanh(0.5 * (logit if calibrated is None else calibrated)))
    error = ((1 - label) - (1 - probability)) ** 2 + (label - probability) ** 2  # of both classes, as scikit-learn
    return {
        "auc": auc(label, logit),
        "acc": _share(correct),
        "balanced_acc": 0.5 * (sensitivity + specificity),
        "sensitivity": sensitivity,
        "specificity": specificity,
        "brier": 0.5 * float(error.mean()),
    }


def average_margins(cohort: Cohort, scans: np.ndarray, margins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Average margins over the scans of each participant, so that each counts once however often they were scanned.

    Two scans of a participant are not independent, so an interval or test over scans would be too narrow. Margins are
    averaged rather than probabilities, as members of an ensemble are.

    Shapes: scans [n], margins [n, ...]; returns first [m], margins [m, ...].
    """
    first, member = index_participants(cohort.participant_ids[scans])
    return scans[first], average_over_scans(margins, member)


def count_participants(cohort: Cohort, scans: np.ndarray) -> int:
    """Count the participants of some scans, by position in the cohort (int64, shape [n])."""
    return len(np.unique(cohort.participant_ids[scans]))


def placement_values(label: np.ndarray, logit: np.ndarray) -> np.ndarray:
    """Compute the placement value of each scan among those of the other class, ties counted as half.

    Shapes: label [n], logit [n]; returns [n]. Returns for a patient the share of controls with a lower logit, for a
    control the share of patients with a higher one. The mean over either class is the AUC. NaN if there is one class
    only.
    """
    label, logit = np.asarray(label), np.asarray(logit, dtype=float)
    placements = np.full(len(logit), np.nan)
    patient = label == 1
    if patient.all() or not patient.any():
        return placements
    if np.isnan(logit).any():
        raise ValueError("some logits are NaN, so scans cannot be ranked; leave these scans out")
    logit = merge_ties(logit)
    for own, sign in ((patient, 1.0), (~patient, -1.0)):
        others = np.sort(sign * logit[~own])
        values = sign * logit[own]
        below = np.searchsorted(others, values, "left") + np.searchsorted(others, values, "right")
        placements[own] = below / (2 * len(others))
    return placements


def delong_covariance(label: np.ndarray, placements: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute the areas of several methods at one site and their covariances over participants.

    Shapes: label [n], placements [n, methods]; returns auc [methods], covariance [methods, methods]. The areas are
    NaN if there is one class only, the covariances where a class has fewer than two scans.
    """
    patient = np.asarray(label) == 1
    n_methods = placements.shape[1]
    covariance = np.zeros((n_methods, n_methods))
    if patient.all() or not patient.any():
        return np.full(n_methods, np.nan), np.full_like(covariance, np.nan)
    for own in (placements[patient], placements[~patient]):
        if len(own) < 2:
            return placements[patient].mean(axis=0), np.full_like(covariance, np.nan)
        centred = own - own.mean(axis=0)
        covariance += centred.T @ centred / (len(own) * (len(own) - 1))
    return placements[patient].mean(axis=0), covariance


def find_score_distance(n_patients: int, n_controls: int) -> float:
    """Find how far the 95% interval of an area of 0 or 1, where DeLong's variance is 0, extends from it.

    The interval contains every area under whose own variance (Hanley and McNeil 1982, as used by Newcombe 2006,
    method 5) the observed area is likely enough.
    """
    from scipy.optimize import brentq

    n, m = n_patients, n_controls

    def exceed(distance: float) -> float:
        area = 1 - distance
        spread = 1 + ((n + m) / 2 - 1) * (distance / (2 - area) + area / (1 + area))
        return distance**2 - ndtri(1 - ALPHA / 2) ** 2 * area * distance * spread / (n * m)

    return float(brentq(exceed, 1e-12, 1 - 1e-12))


@dataclass(frozen=True, eq=False)
class SiteAreas:
    """Areas of one or more methods at the same sites, with the inputs of their statistics over participants.

    Shapes: n_patients, n_controls [sites], auc [sites, methods], covariance [sites, methods, methods].
    """

    n_patients: np.ndarray
    n_controls: np.ndarray
    auc: np.ndarray  # averaged over seeds
    covariance: np.ndarray  # over participants, see delong_covariance


def equal_weights(areas: SiteAreas) -> np.ndarray:
    """Return the weights of the mean over sites: every site counts alike. Shape [sites]."""
    return np.full(len(areas.n_patients), 1 / len(areas.n_patients))


def pair_weights(areas: SiteAreas) -> np.ndarray:
    """Return the weights of the pair-weighted AUC: every pair within a site counts alike. Shape [sites]."""
    pairs = areas.n_patients * areas.n_controls
    return pairs / pairs.sum()


@dataclass(frozen=True)
class PeopleEstimate:
    """A weighted mean over sites, of areas or of their differences, over participants at fixed sites."""

    mean: float
    error: float  # its standard error over participants; NaN where it is not known, or zero
    low: float  # its 95% interval
    high: float


def assess_over_people(
    areas: SiteAreas, contrast: np.ndarray, weights: np.ndarray, *, correction: float | None = None
) -> PeopleEstimate:
    """Estimate a weighted mean of areas, or of differences between methods, over participants at fixed sites.

    Shapes: contrast [methods], weights [sites]. Returns all but the mean are NaN where a site has fewer than two scans
    of a class, or no area varies.
    """
    values = areas.auc @ contrast
    if correction is None:
        correction = site_correction(len(values))
    mean = float((weights @ areas.auc @ contrast).clip(values.min(), values.max()))  # weights may sum to 1 + 2e-16
    variance = float(np.einsum("s,i,sij,j->", weights**2, contrast, areas.covariance, contrast))
    error = float(np.sqrt(variance * (1 + len(values) * correction))) if variance > 0 else float("nan")
    half = float(ndtri(1 - ALPHA / 2)) * error
    return PeopleEstimate(mean=mean, error=error, low=mean - half, high=mean + half)


def score_columns(label: np.ndarray, margin: np.ndarray, scale: float = 0.0) -> np.ndarray:
    """Compute the AUC of each column, as :func:`brio.protocol.auc` does for one: ties count as half.

    Shapes: label [n, ...], margin [n, ...]; returns [...]. Returns NaN for a column with one class only.
    """
    if np.isnan(margin).any():
        raise ValueError("some margins are NaN, so scans cannot be ranked; leave these scans out")
    patient = label == 1
    n_patients = patient.sum(axis=0)
    n_pairs = n_patients * (len(label) - n_patients)
    from scipy.stats import rankdata

    rank_sum = (rankdata(merge_ties(margin, scale), axis=0) * patient).sum(axis=0)  # Mann and Whitney's statistic
    in_order = rank_sum - n_patients * (n_patients + 1) / 2
    return np.divide(in_order, n_pairs, out=np.full(np.shape(in_order), np.nan), where=n_pairs > 0)


def count_pairs(label: np.ndarray) -> int:
    """Count the pairs of a patient and a control among the scans of a site. ``label`` has shape [n]."""
    patients = int((label == 1).sum())
    return patients * (len(label) - patients)


def weigh_by_pairs(auc: np.ndarray, n_pairs: np.ndarray) -> np.ndarray:
    """Average the AUC of sites, weighted by their pairs of patient and control: the pair-weighted within-site AUC.

    Shapes: auc [sites, ...], n_pairs [sites]; returns [...]. Returns NaN where no site has an AUC.
    """
    weight = np.asarray(n_pairs, dtype=float).reshape(-1, *[1] * (np.ndim(auc) - 1)) * ~np.isnan(auc)
    total = weight.sum(axis=0)
    return np.divide(
        (weight * np.nan_to_num(auc)).sum(axis=0), total, out=np.full(total.shape, np.nan), where=total > 0
    )

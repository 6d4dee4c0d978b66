"""Statistics over participants at fixed sites: placement values, and DeLong's covariances of areas under the ROC curve.

The area at a site is the share of its pairs of patient and control that are in order. Its variance over participants
follows from the placement value of each: for a patient the share of controls with a lower margin, for a control the
share of patients with a higher one. Margins of several seeds belong to the same participants, so placement values are
averaged over seeds and seeds do not divide the variance.

With the sites fixed, intervals of means over sites are about new participants at these sites, and not about new sites.
Areas of left-out sites share training scans: the variance of their mean is that of independent areas times
1 + n c, Nadeau and Bengio's ratio for n sites (:mod:`.intervals`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from .intervals import site_correction
from .metrics import merge_ties


def placement_values(label: np.ndarray, logit: np.ndarray) -> np.ndarray:
    """Compute the placement value of each scan among those of the other class, ties counted as half.

    Shapes: label [n], logit [n]; returns [n].

    Returns for a patient the share of controls with a lower logit, for a control the share of patients with a higher
    one. The mean over either class is the AUC. NaN if there is one class only.
    """
    label, logit = np.asarray(label), np.asarray(logit, dtype=float)
    placements = np.full(len(logit), np.nan)
    patient = label == 1
    if patient.all() or not patient.any():
        return placements
    if np.isnan(logit).any():
        raise ValueError("some logits are NaN, so scans cannot be ordered")
    logit = merge_ties(logit)
    for own, sign in ((patient, 1.0), (~patient, -1.0)):
        others = np.sort(sign * logit[~own])
        values = sign * logit[own]
        below = np.searchsorted(others, values, "left") + np.searchsorted(others, values, "right")
        placements[own] = below / (2 * len(others))
    return placements


def delong_covariance(label: np.ndarray, placements: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute the areas of several methods at one site and their covariances over participants.

    Shapes: label [n], placements [n, methods]; returns auc [methods], covariance [methods, methods].

    Returns auc: NaN if there is one class only.

    Returns covariance: NaN where a class has fewer than two scans.
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


@dataclass(frozen=True, eq=False)
class SiteAreas:
    """Areas of one or more methods at the same sites, and what their statistics over participants need.

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
    low: float  # its interval of level 1 - alpha
    high: float


def assess_over_people(
    areas: SiteAreas,
    contrast: np.ndarray,
    weights: np.ndarray,
    *,
    correction: float | None = None,
    alpha: float = 0.05,
) -> PeopleEstimate:
    """Estimate a weighted mean of areas, or of differences between methods, over participants at fixed sites.

    Shapes: contrast [methods], weights [sites].

    Returns all but the mean are NaN where a site has fewer than two scans of a class, or no area varies.
    """
    values = areas.auc @ contrast
    if correction is None:
        correction = site_correction(len(values))
    mean = float((weights @ areas.auc @ contrast).clip(values.min(), values.max()))  # weights may sum to 1 + 2e-16
    variance = float(np.einsum("s,i,sij,j->", weights**2, contrast, areas.covariance, contrast))
    error = float(np.sqrt(variance * (1 + len(values) * correction))) if variance > 0 else float("nan")
    half = float(ndtri(1 - alpha / 2)) * error
    return PeopleEstimate(mean=mean, error=error, low=mean - half, high=mean + half)

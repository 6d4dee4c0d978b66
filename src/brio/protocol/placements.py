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

__all__ = [
    "PeopleEstimate",
    "SiteAreas",
    "assess_over_people",
    "delong_covariance",
    "equal_weights",
    "pair_weights",
    "placement_values",
]


def placement_values(label: np.ndarray, logit: np.ndarray) -> np.ndarray:
    """Compute the placement value of each scan among those of the other class, ties counted as half.

    Parameters
    ----------
    label : ndarray, shape [n]
        1 for patients, 0 for controls.
    logit : ndarray, shape [n]

    Returns
    -------
    ndarray, shape [n]
        For a patient the share of controls with a lower logit, for a control the share of patients with a higher one.
        The mean over either class is the AUC. NaN if there is one class only.

    References
    ----------
    Hanley & Hajian-Tilaki, Academic Radiology 4, 49 (1997).

    Examples
    --------
    >>> placement_values(np.array([0, 0, 1, 1]), np.array([-2.0, 0.5, 0.5, 3.0])).tolist()
    [1.0, 0.75, 0.75, 1.0]
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

    Parameters
    ----------
    label : ndarray, shape [n]
        1 for patients, 0 for controls.
    placements : ndarray, shape [n, methods]
        Placement values of each method, averaged over seeds.

    Returns
    -------
    auc : ndarray, shape [methods]
        NaN if there is one class only.
    covariance : ndarray, shape [methods, methods]
        NaN where a class has fewer than two scans.

    References
    ----------
    DeLong, DeLong & Clarke-Pearson, Biometrics 44, 837 (1988).

    Examples
    --------
    >>> label = np.array([0, 0, 1, 1])
    >>> auc, covariance = delong_covariance(label, placement_values(label, np.array([0.0, 2.0, 1.0, 3.0]))[:, None])
    >>> auc.tolist(), covariance.tolist()
    ([0.75], [[0.125]])
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

    Attributes
    ----------
    n_patients, n_controls : ndarray of int, shape [sites]
    auc : ndarray, shape [sites, methods]
        Averaged over seeds.
    covariance : ndarray, shape [sites, methods, methods]
        Over participants, see :func:`delong_covariance`.
    """

    n_patients: np.ndarray
    n_controls: np.ndarray
    auc: np.ndarray
    covariance: np.ndarray


def equal_weights(areas: SiteAreas) -> np.ndarray:
    """Return the weights of the mean over sites: every site counts alike. Shape [sites]."""
    return np.full(len(areas.n_patients), 1 / len(areas.n_patients))


def pair_weights(areas: SiteAreas) -> np.ndarray:
    """Return the weights of the pair-weighted AUC: every pair within a site counts alike. Shape [sites].

    Examples
    --------
    >>> areas = SiteAreas(np.array([10, 20]), np.array([10, 15]), np.empty((2, 1)), np.empty((2, 1, 1)))
    >>> pair_weights(areas).tolist()
    [0.25, 0.75]
    """
    pairs = areas.n_patients * areas.n_controls
    return pairs / pairs.sum()


@dataclass(frozen=True)
class PeopleEstimate:
    """A weighted mean over sites, of areas or of their differences, over participants at fixed sites.

    Attributes
    ----------
    mean : float
    error : float
        Its standard error over participants; NaN where it is not known, or zero.
    low, high : float
        Its interval of level 1 - alpha.
    """

    mean: float
    error: float
    low: float
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

    Parameters
    ----------
    areas : SiteAreas
    contrast : ndarray, shape [methods]
        Weight of each method: ``[1]`` for the area of one, ``[1, -1]`` for a difference.
    weights : ndarray, shape [sites]
        Of the sites, which sum to one: :func:`equal_weights` or :func:`pair_weights`.
    correction : float, optional
        By default :func:`brio.protocol.site_correction`; 0 for one model at all sites.
    alpha : float
        The interval has level 1 - alpha.

    Returns
    -------
    PeopleEstimate
        All but the mean are NaN where a site has fewer than two scans of a class, or no area varies.

    Examples
    --------
    >>> areas = SiteAreas(np.array([20]), np.array([20]), np.array([[0.8]]), np.array([[[0.005]]]))
    >>> result = assess_over_people(areas, np.array([1.0]), equal_weights(areas), correction=0)
    >>> round(result.low, 2), round(result.high, 2)
    (0.66, 0.94)
    """
    values = areas.auc @ contrast
    if correction is None:
        correction = site_correction(len(values))
    mean = float((weights @ areas.auc @ contrast).clip(values.min(), values.max()))  # weights may sum to 1 + 2e-16
    variance = float(np.einsum("s,i,sij,j->", weights**2, contrast, areas.covariance, contrast))
    error = float(np.sqrt(variance * (1 + len(values) * correction))) if variance > 0 else float("nan")
    half = float(ndtri(1 - alpha / 2)) * error
    return PeopleEstimate(mean=mean, error=error, low=mean - half, high=mean + half)

"""Calibration: from the score f to a logit, by a slope and an intercept fitted on inner folds."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from .sites import centre_within

LEAST_SLOPE = 0.1
"""Lower bound of the slope: where inner folds show no order, logits are small, but never of the opposite sign."""


def fit_calibration(f: np.ndarray, label: np.ndarray, site: np.ndarray) -> np.ndarray:
    """Fit slope and intercept of the logit.

    The slope is that of a logistic regression on scores centred within each site, because offsets between a few sites
    would decide it otherwise. Where these separate the classes, no slope is too steep for the likelihood: labels are
    then softened as Platt (1999) does. The intercept makes the mean probability the share of patients among the source
    scans.

    Shapes: f [n], label [n], site [n]; returns [2].
    """
    from scipy.optimize import brentq

    slope = max(LEAST_SLOPE, _fit_slope(centre_within(f, site), label == 1))

    def excess_probability(intercept: float) -> float:
        return float(expit(slope * f + intercept).mean() - label.mean())

    bound = slope * np.abs(f).max() + 50.0
    return np.array([slope, brentq(excess_probability, -bound, bound)])


def _fit_slope(f: np.ndarray, patient: np.ndarray) -> float:
    """Fit the slope of a logistic regression of the class on scores [n]."""
    from sklearn.linear_model import LogisticRegression

    if f[patient].min() < f[~patient].max():
        return float(LogisticRegression(C=1e6).fit(f[:, None], patient).coef_[0, 0])
    soft = np.where(patient, (patient.sum() + 1) / (patient.sum() + 2), 1 / ((~patient).sum() + 2))
    both, weights = np.repeat([1, 0], len(f)), np.concatenate([soft, 1 - soft])
    return float(LogisticRegression(C=1e6, tol=1e-9).fit(np.tile(f, 2)[:, None], both, weights).coef_[0, 0])

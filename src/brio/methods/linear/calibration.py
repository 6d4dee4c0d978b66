"""Calibration: from the score f to a logit, by a slope and an intercept fitted on inner folds."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from .sites import centre_within

__all__ = ["LEAST_SLOPE", "fit_calibration"]

LEAST_SLOPE = 0.1
"""Lower bound of the slope: where inner folds show no order, logits are small, but never of the opposite sign."""


def fit_calibration(f: np.ndarray, label: np.ndarray, site: np.ndarray) -> np.ndarray:
    """Fit slope and intercept of the logit.

    The slope is that of a logistic regression on scores centred within each site, because offsets between a few sites
    would decide it otherwise. The intercept makes the mean probability the share of patients among the source scans.

    Parameters
    ----------
    f : ndarray, shape [n]
        Scores of the source scans, each from the inner fold that withholds its site.
    label : ndarray, shape [n]
        0 or 1.
    site : ndarray, shape [n]

    Returns
    -------
    ndarray, shape [2]
        Slope and intercept.

    Examples
    --------
    >>> f = np.array([-1.0, 0.0, 1.0, 9.0, 10.0, 11.0])
    >>> slope, _ = fit_calibration(f, np.array([0, 1, 1, 0, 0, 1]), np.array(list("aaabbb")))
    >>> bool(slope > 1)
    True
    """
    from scipy.optimize import brentq
    from sklearn.linear_model import LogisticRegression

    within = centre_within(f, site)[:, None]
    slope = max(LEAST_SLOPE, float(LogisticRegression(C=1e6).fit(within, label).coef_[0, 0]))

    def excess_probability(intercept: float) -> float:
        return float(expit(slope * f + intercept).mean() - label.mean())

    bound = slope * np.abs(f).max() + 50.0
    return np.array([slope, brentq(excess_probability, -bound, bound)])

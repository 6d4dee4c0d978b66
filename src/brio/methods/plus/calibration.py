"""From f to a logit: slope and intercept on source scans, each scored without its site."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

__all__ = ["LEAST_SLOPE", "calibration"]

LEAST_SLOPE = 0.1
"""A slope is never smaller: where left-out sites show no order, logits are small, but never turned round."""


def calibration(f: np.ndarray, label: np.ndarray, site: np.ndarray) -> np.ndarray:
    """Slope and intercept of the logit.

    The slope is that of a logistic regression on what differs within sites (offsets between few sites would decide it
    otherwise); the intercept makes the mean probability the share of patients among the source scans.

    Examples
    --------
    >>> f = np.array([-1.0, 0.0, 1.0, 9.0, 10.0, 11.0])
    >>> slope, _ = calibration(f, np.array([0, 1, 1, 0, 0, 1]), np.array(list("aaabbb")))
    >>> bool(slope > 1)
    True
    """
    within = f.astype(float)
    for e in np.unique(site):
        within[site == e] -= within[site == e].mean()
    slope = max(LEAST_SLOPE, float(LogisticRegression(C=1e6).fit(within[:, None], label).coef_[0, 0]))

    def excess(intercept: float) -> float:
        return float(expit(slope * f + intercept).mean() - label.mean())

    far = slope * np.abs(f).max() + 50.0
    return np.array([slope, brentq(excess, -far, far)])

"""Removal of covariates from features: slopes within sites and classes, subtracted from scans of any site.

Slopes are learned from source scans alone: those of all scans would carry information about test scans into training
(Snoek et al. 2019). Labels of source scans only separate the groups in which slopes are learned; a scan needs none when
the slopes are applied.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

CONSTANT = 1e-5
"""A covariate that varies less than this within all groups, in standard deviations, gets no slope."""


@dataclass(frozen=True, eq=False)
class Residualiser:
    """Fitted slopes of d features on C covariates.

    Shapes: slope [C, d].
    """

    slope: np.ndarray  # for covariates in units of the source scans: mean 0 and standard deviation 1

    def apply(self, X: np.ndarray, covariates: np.ndarray) -> np.ndarray:
        """Subtract what the covariates of a scan let expect; features at the mean covariates stay.

        Shapes: X [n, d], covariates [n, C]; returns [n, d].
        """
        return X - fill_gaps(covariates) @ self.slope


def fit_residualiser(X: np.ndarray, group: np.ndarray, covariates: np.ndarray) -> Residualiser:
    """Fit slopes of features on covariates by least squares with an intercept for each group.

    Groups are sites and their classes. A difference between sites, or between patients and controls, is therefore not
    taken for an effect of age, however much their ages differ.

    Shapes: X [n, d], group [n], covariates [n, C].
    """
    within, known = X.astype(np.float64), fill_gaps(covariates)
    for name in np.unique(group):
        here = group == name
        within[here] -= within[here].mean(0)
        known[here] -= known[here].mean(0)
    varies = np.abs(known).max(0) > CONSTANT  # else the slope would be one on rounding errors
    slope = np.zeros((known.shape[1], X.shape[1]))
    slope[varies] = np.linalg.lstsq(known[:, varies], within, rcond=None)[0]
    return Residualiser(slope)


def fill_gaps(covariates: np.ndarray) -> np.ndarray:
    """Return a copy of covariates in units of the source scans in which gaps are 0, their mean. Shape [n, C]."""
    return np.where(np.isnan(covariates), 0.0, covariates)

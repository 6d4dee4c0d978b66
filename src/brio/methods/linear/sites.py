"""What linear models need of sites: centring within them, and predictions for each from a fit to the others."""

from __future__ import annotations

import numpy as np

from ...protocol import auc

__all__ = ["average_site_auc", "centre_gram", "centre_within", "predict_withheld_sites"]


def centre_within(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Subtract from each row the mean row of its group.

    Parameters
    ----------
    values : ndarray, shape [n, ...]
    group : ndarray, shape [n]
        Such as the site of each scan.

    Returns
    -------
    ndarray of float64, shape [n, ...]

    Examples
    --------
    >>> centre_within(np.array([1.0, 3.0, 10.0]), np.array(list("aab")))
    array([-1.,  1.,  0.])
    """
    centred = values.astype(np.float64)
    for name in np.unique(group):
        centred[group == name] -= centred[group == name].mean(0)
    return centred


def centre_gram(gram: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Compute the products of features that are centred within groups of scans.

    Parameters
    ----------
    gram : ndarray, shape [n, n]
        Products of the features.
    group : ndarray, shape [n]

    Returns
    -------
    ndarray, shape [n, n]
    """
    return centre_within(centre_within(gram, group).T, group)


def average_site_auc(margins: np.ndarray, label: np.ndarray, site: np.ndarray) -> np.ndarray:
    """Compute the mean over sites of the AUC within the site.

    Parameters
    ----------
    margins : ndarray, shape [k, n]
        One row for each of k models.
    label : ndarray, shape [n]
        0 or 1.
    site : ndarray, shape [n]

    Returns
    -------
    ndarray, shape [k]
        NaN where a site has one class only.
    """
    members = [site == e for e in np.unique(site)]
    return np.mean([[auc(label[m], margin[m]) for margin in margins] for m in members], axis=0)


def predict_withheld_sites(gram: np.ndarray, y: np.ndarray, site: np.ndarray, penalties: np.ndarray) -> np.ndarray:
    """Predict the scans of each site by a ridge regression, with an intercept for each site, on all other sites.

    No fit is repeated. With H = (K + penalty I)^-1 for products K centred within sites, and y centred likewise, the
    weights of the scans are w = H y. Without site e they are w - H_e v, where H_e are the columns of that site and v
    solves H_ee v = w_e. One eigendecomposition serves all penalties.

    Parameters
    ----------
    gram : ndarray, shape [n, n]
        Products of the features.
    y : ndarray, shape [n] or [n, c]
        Labels, -1 or 1; c columns are c regressions.
    site : ndarray, shape [n]
    penalties : ndarray, shape [k]

    Returns
    -------
    ndarray, shape [k, n] or [k, n, c]
        Without an intercept, because a site that gave no labels has none.
    """
    size, axes = np.linalg.eigh(centre_gram(gram, site))
    rotated = axes.T @ centre_within(y, site)
    sites = [np.flatnonzero(site == e) for e in np.unique(site)]
    margins = np.empty((len(penalties), *y.shape))
    for k, penalty in enumerate(penalties):
        inverse = 1.0 / (size.clip(0.0) + penalty)
        weights = axes @ (rotated.T * inverse).T
        for scans in sites:
            v = np.linalg.solve((axes[scans] * inverse) @ axes[scans].T, weights[scans])
            without = weights - axes @ ((axes[scans].T @ v).T * inverse).T
            without[scans] = 0.0
            margins[k, scans] = gram[scans] @ without
    return margins

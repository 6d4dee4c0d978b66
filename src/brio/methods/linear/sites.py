"""What linear models need of sites: centring within them, and predictions for each from a fit to the others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...protocol import auc


def centre_within(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Subtract from each row the mean row of its group.

    Shapes: values [n, ...], group [n]; returns [n, ...].
    """
    centred = values.astype(np.float64)
    for name in np.unique(group):
        centred[group == name] -= centred[group == name].mean(0)
    return centred


def centre_gram(gram: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Compute the products of features that are centred within groups of scans.

    Shapes: gram [n, n], group [n]; returns [n, n].
    """
    return centre_within(centre_within(gram, group).T, group)


def average_site_auc(margins: np.ndarray, label: np.ndarray, site: np.ndarray) -> np.ndarray:
    """Compute the mean over sites of the AUC within the site.

    Shapes: margins [k, n], label [n], site [n]; returns [k].

    Returns NaN where a site has one class only.
    """
    members = [site == e for e in np.unique(site)]
    # margins of inner folds are labels (-1 or 1) less their residuals, so they are right to the last bits of a label
    return np.mean([[auc(label[m], margin[m], scale=1.0) for margin in margins] for m in members], axis=0)


class KernelEigen(NamedTuple):
    """A kernel ridge regression with unpenalised intercepts: one eigendecomposition for all penalties and labels.

    Kernel and labels are centred within groups of scans that share an intercept. With the centred kernel K and
    H = (K + penalty I)^-1, the weights of the scans are w = H y.

    Shapes: size [n], axes [n, n], group [n].
    """

    size: np.ndarray  # eigenvalues of K
    axes: np.ndarray  # eigenvectors, one per column
    group: np.ndarray  # which intercept a scan has: that of its site, or the same for all scans

    @staticmethod
    def of_kernel(kernel: np.ndarray, group: np.ndarray) -> KernelEigen:
        """Decompose the kernel [n, n] of scans with the intercepts of groups [n]."""
        size, axes = np.linalg.eigh(centre_gram(kernel, group))
        return KernelEigen(size.clip(0.0), axes, group)

    def rotate(self, y: np.ndarray) -> np.ndarray:
        """Centre labels within groups and rotate them to the axes. Shape [n] or [n, c], as the result."""
        return self.axes.T @ centre_within(y, self.group)

    def rotate_part(self, values: np.ndarray, scans: np.ndarray) -> np.ndarray:
        """Rotate values of some scans, 0 for all others, to the axes. Shapes [m] or [m, c] and [m] -> [n] or [n, c]."""
        if np.isin(self.group, self.group[scans]).sum() == len(scans):
            return self.axes[scans].T @ values  # residuals of whole groups are centred already
        padded = np.zeros((len(self.group), *values.shape[1:]))
        padded[scans] = values
        return self.rotate(padded)

    def solve(self, rotated: np.ndarray, penalty: float) -> np.ndarray:
        """Compute H y from rotated labels. Shape [n] or [n, c], as the result."""
        return self.axes @ (rotated.T * (1.0 / (self.size + penalty))).T

    def find_residuals(self, weights: np.ndarray, withheld: np.ndarray, penalty: float) -> np.ndarray:
        """Find by how much the labels of withheld scans differ from what a fit to all other scans predicts for them.

        No fit is repeated. Without the scans e the weights are w - G_e v, where G maps labels to weights, G_e are its
        columns, and the residuals v solve G_ee v = w_e (An, Liu & Venkatesh, Pattern Recognition 2007).

        Shapes: weights [n] or [n, c], withheld [m]; returns [m] or [m, c].
        """
        axes, group = self.axes[withheld], self.group[withheld]
        block = (axes * (1.0 / (self.size + penalty))) @ axes.T
        for name in np.unique(group):
            here, members = group == name, (self.group == name).sum()
            if here.sum() < members:
                # G is H without the directions of intercepts. Those of whole groups stay, or no v would be the only one
                block[np.ix_(here, here)] -= 1.0 / (penalty * members)
        return np.linalg.solve(block, weights[withheld])


def predict_withheld_sites(
    gram: np.ndarray, y: np.ndarray, site: np.ndarray, penalties: np.ndarray, inner_fold: np.ndarray
) -> np.ndarray:
    """Predict the scans of each inner fold by a ridge regression, with an intercept for each site, on all other scans.

    One eigendecomposition serves all penalties and inner folds, see :class:`KernelEigen`.

    Shapes: gram [n, n], y [n] or [n, c], site [n], penalties [k], inner_fold [n]; returns [k, n] or [k, n, c].
    """
    eigen = KernelEigen.of_kernel(gram, site)
    rotated = eigen.rotate(y)
    withheld = [np.flatnonzero(inner_fold == k) for k in np.unique(inner_fold)]
    margins = np.empty((len(penalties), *y.shape))
    for k, penalty in enumerate(penalties):
        weights = eigen.solve(rotated, penalty)
        for scans in withheld:
            v = eigen.find_residuals(weights, scans, penalty)
            without = weights - eigen.solve(eigen.rotate_part(v, scans), penalty)
            without[scans] = 0.0
            margins[k, scans] = gram[scans] @ without
    return margins

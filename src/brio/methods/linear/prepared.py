"""What fits of linear models share: scans of the cohort with products of their edges, and the source scans of a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ...connectome import read_edges
from ...training import Inputs, Scans, SourceScans, Tensors
from .sites import KernelEigen

__all__ = ["PreparedRun", "ScanReader"]


class ScanReader:
    """Scans of a cohort by position, and products of their edges, which all runs share.

    Nothing here is learned: an entry depends on its own scans alone.

    Parameters
    ----------
    inputs : Inputs
        Of the N scans of the cohort.
    matrices : Tensor, shape [N, P, P], optional
        Read in place of the connectomes.
    share_products : bool
        Whether the products of all scans are computed once, at the first use.
    """

    def __init__(self, inputs: Inputs, matrices: Tensor | None = None, share_products: bool = False) -> None:
        self._inputs, self._matrices = inputs, matrices
        self._products = self._multiply_edges() if share_products else None

    def __call__(self, scans: np.ndarray) -> Scans:
        """Take scans by position [n]."""
        index = torch.from_numpy(scans).to(self._inputs.connectomes.device)
        return self._inputs.take(index, None if self._matrices is None else self._matrices[index])

    def multiply(self, scans: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Compute the products of the features of scans with each other.

        Parameters
        ----------
        scans : ndarray of int64, shape [n]
            Positions in the cohort.
        x : ndarray, shape [n, d]
            Their features. Where products are shared, these are their edges, but for ROIs without signal, whose
            edges a run fills.

        Returns
        -------
        ndarray, shape [n, n]
        """
        if self._products is None:
            return x @ x.T
        gram = self._products[np.ix_(scans, scans)]
        filled = np.flatnonzero(~self._inputs.connectomes.alive.cpu().numpy()[scans].all(1))
        across = x @ x[filled].T
        gram[:, filled], gram[filled] = across, across.T
        return gram

    def _multiply_edges(self) -> np.ndarray:
        connectomes = self._inputs.connectomes
        x = read_edges(connectomes.full if self._matrices is None else self._matrices).double().cpu().numpy()
        return x @ x.T


@dataclass(frozen=True)
class PreparedRun:
    """What a fit needs of the source scans of a run, whatever their labels.

    Attributes
    ----------
    source : SourceScans
        n scans.
    learned : dict of Tensor
        What their features needed.
    centre : ndarray, shape [d]
        Mean of the features.
    x : ndarray, shape [n, d]
        Centred features.
    gram : ndarray, shape [n, n]
        Their products.
    penalties : ndarray, shape [penalties]
        The grid in units of the mean squared norm of the features.
    inner_fold : ndarray of int64, shape [n]
        The inner fold that withholds each scan: its site, or one of five where there is one source site.
    """

    source: SourceScans
    learned: Tensors
    centre: np.ndarray
    x: np.ndarray
    gram: np.ndarray
    penalties: np.ndarray
    inner_fold: np.ndarray

    @cached_property
    def eigen(self) -> KernelEigen:
        """Eigenvectors of the Gram matrix, for models whose source scans share one intercept."""
        return KernelEigen.of_kernel(self.gram, np.zeros(len(self.gram)))

    def split_inner_folds(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Positions of the scans that each inner fold learns from, and of those that it withholds."""
        for k in np.unique(self.inner_fold):
            yield np.flatnonzero(self.inner_fold != k), np.flatnonzero(self.inner_fold == k)

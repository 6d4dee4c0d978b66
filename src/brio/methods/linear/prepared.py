"""What fits of linear models share: scans of the cohort with products of their edges, and the source scans of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from ...connectome import read_edges
from ...training import Inputs, Scans, SourceScans, Tensors
from .features import project_rows
from .sites import KernelEigen
from .stored_edges import StoredEdges, StoredRows


class ScanReader:
    """Scans of a cohort by position, and products of their edges, which all runs share.

    Nothing here is learned: an entry depends on its own scans alone. Scans are held in the memory of the machine, also
    in a job on a GPU, because runs are fitted on the cores of the machine.

    Shapes: matrices [N, P, P].
    """

    def __init__(self, inputs: Inputs, matrices: Tensor | None = None, share_products: bool = False) -> None:
        connectomes = inputs.connectomes
        everyone = torch.arange(len(connectomes), device=connectomes.device)
        scans = inputs.take(everyone, connectomes.full if matrices is None else matrices)
        self._scans = Scans(*(t.cpu() for t in scans))
        self._products = self._multiply_edges() if share_products else None

    def __call__(self, scans: np.ndarray) -> Scans:
        """Take scans by position [n]."""
        index = torch.from_numpy(scans)
        return Scans(*(t[index] for t in self._scans))

    def multiply(self, scans: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Compute the products of the features of scans with each other.

        Shapes: scans [n], x [n, d]; returns [n, n].
        """
        if self._products is None:
            return x @ x.T
        gram = self._products[np.ix_(scans, scans)]
        filled = np.flatnonzero(~self._scans.alive.numpy()[scans].all(1))
        across = x @ x[filled].T
        gram[:, filled], gram[filled] = across, across.T
        return gram

    def _multiply_edges(self) -> np.ndarray:
        x = read_edges(self._scans.A).double().numpy()
        return x @ x.T


OpenedScans: TypeAlias = ScanReader | StoredEdges
"""What the runs of a fit read scans from."""


@dataclass(frozen=True)
class HeldRows:
    """The centred features of the source scans of a run, held in memory.

    Shapes: x [n, d], centre [d].
    """

    x: np.ndarray  # centred features
    centre: np.ndarray  # mean of the features
    read: Callable[[np.ndarray], np.ndarray]

    def multiply(self, scans: np.ndarray) -> np.ndarray:
        """Compute the products of the centred features of scans [m] with those of the source scans. Shape [m, n]."""
        return (self.read(scans) - self.centre) @ self.x.T

    def combine(self, weights: np.ndarray) -> np.ndarray:
        """Compute the sum of the centred features, each source scan with its weight. Shape [n] -> [d]."""
        return self.x.T @ weights

    def project(self, scans: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        """Compute the products of the centred features of scans [m] with coefficients [d]. Shape [m]."""
        return project_rows(self.read(scans) - self.centre, coefficients)


@dataclass(frozen=True)
class PreparedRun:
    """What a fit needs of the source scans of a run, whatever their labels.

    Shapes: gram [n, n], penalties [penalties], inner_fold [n].
    """

    source: SourceScans  # n scans
    learned: Tensors  # what their features needed
    rows: HeldRows | StoredRows  # centred features
    gram: np.ndarray  # their products
    penalties: np.ndarray  # the grid in units of the mean squared norm of the features
    inner_fold: np.ndarray

    @cached_property
    def eigen(self) -> KernelEigen:
        """Eigenvectors of the Gram matrix, for models whose source scans share one intercept."""
        return KernelEigen.of_kernel(self.gram, np.zeros(len(self.gram)))

    def split_inner_folds(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Positions of the scans that each inner fold learns from, and of those that it withholds."""
        for k in np.unique(self.inner_fold):
            yield np.flatnonzero(self.inner_fold != k), np.flatnonzero(self.inner_fold == k)

    def centre_inner_fold(self, inside: np.ndarray, withheld: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Centre the features on the scans that an inner fold learns from.

        Shapes: inside, withheld [n_inside] and [n_withheld]; returns inner [n_inside, n_inside], across [n_withheld,
        n_inside].
        """
        inner = self.gram[np.ix_(inside, inside)]
        row, total = inner.mean(0), inner.mean()
        across = self.gram[np.ix_(withheld, inside)]
        across = across - across.mean(1, keepdims=True) - row + total
        return inner - row - row[:, None] + total, across

"""Edges of a large cohort, stored once for all runs with their products.

Features in float64 and a copy of the connectomes for every run would not fit into memory. Here all runs read the same
edges, in the precision in which they were estimated, and some rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ...connectome import find_live_edges, read_edges
from ...threads import map_on_cores
from .features import project_rows

HELD_BYTES = 1 << 30
"""Bytes of the features of a cohort in float64 up to which a run holds a copy of them, which is faster."""
PORTION_BYTES = 1 << 24
"""Bytes of the features in float64 that are read at once where they are not held: few enough for caches."""

_BLOCK_SCANS, _BLOCK_EDGES = 1024, 1024
"""Sizes of one product. Sums over more edges would lose digits, because one product is summed up in float32."""
_FILLED_PORTIONS = 16  # of rows with filled edges are multiplied at once: all other rows are read again for each
READ_BYTES = 4 * _FILLED_PORTIONS * PORTION_BYTES
"""About the memory for portions of features that are read and multiplied."""


class StoredEdges:
    """Edges of all scans of a cohort, and their products.

    Nothing here is learned: an entry depends on its own scans alone.

    Shapes: matrices [m, P, P], alive [N, P].
    """

    def __init__(self, matrices: Iterable[Tensor], alive: Tensor) -> None:
        self._alive = alive.cpu()
        self._complete = self._alive.all(1).numpy()
        n, n_rois = alive.shape
        end = 0
        for part in matrices:
            edges = read_edges(part).cpu().numpy()
            if end == 0:
                self._edges = np.empty((n, n_rois * (n_rois - 1) // 2), dtype=edges.dtype)
            self._edges[end : end + len(edges)] = edges
            end += len(edges)
        self._products = _multiply_rows(self._edges)

    @property
    def n_edges(self) -> int:
        """Number of edges of a scan, d."""
        return self._edges.shape[1]

    @staticmethod
    def are_needed(n_scans: int, n_rois: int) -> bool:
        """Whether the features of a cohort are too large for each run to hold a copy."""
        return 8 * n_scans * (n_rois * (n_rois - 1) // 2) > HELD_BYTES

    @staticmethod
    def count_bytes(n_scans: int, n_rois: int) -> float:
        """Count the bytes of stored edges in float32 and of their products."""
        return 4.0 * n_scans * (n_rois * (n_rois - 1) // 2) + 8.0 * n_scans**2

    def read(self, scans: np.ndarray, fill: np.ndarray) -> np.ndarray:
        """Read the edges of scans, with those of ROIs without signal filled in.

        Shapes: scans [m], fill [d]; returns [m, d].
        """
        x = self._edges[scans].astype(np.float64)
        for row in np.flatnonzero(~self._complete[scans]):
            x[row] = np.where(self._find_live(scans[row]), x[row], fill)
        return x

    def iterate(self, scans: np.ndarray, fill: np.ndarray, portions: int = 1) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield which of the scans, and their edges as :meth:`read` reads them, part by part.

        Shapes: scans [m], fill [d]; returns x [k, d].
        """
        size = max(1, portions * PORTION_BYTES // (8 * self.n_edges))
        for first in range(0, len(scans), size):
            part = slice(first, first + size)
            yield part, self.read(scans[part], fill)

    def multiply(self, rows: np.ndarray, columns: np.ndarray, fill: np.ndarray) -> np.ndarray:
        """Compute the products of edges of scans, with those of ROIs without signal filled in.

        Shapes: rows, columns [m] and [n], fill [d]; returns [m, n].
        """
        products = self._products[np.ix_(rows, columns)]
        self._multiply_filled(products, rows, columns, fill)
        if rows is columns:
            filled = np.flatnonzero(~self._complete[rows])
            products[:, filled] = products[filled].T
        else:
            self._multiply_filled(products.T, columns, rows, fill)
        return products

    def average_live(self, scans: np.ndarray) -> np.ndarray:
        """Compute the mean of each edge over the scans in which both ends have signal; 0 where there are none.

        Shapes: scans [m]; returns [d].
        """
        total = np.zeros(self.n_edges)
        count = np.full_like(total, self._complete[scans].sum())
        for _, x in self.iterate(scans, np.zeros_like(total)):
            total += x.sum(0)
        for scan in scans[~self._complete[scans]]:
            count += self._find_live(scan)
        return total / np.maximum(count, 1.0)

    def _find_live(self, scan: int) -> np.ndarray:
        """Which edges of a scan have signal at both ends. Shape [d]."""
        return find_live_edges(self._alive[scan]).numpy()

    def _multiply_filled(self, products: np.ndarray, rows: np.ndarray, columns: np.ndarray, fill: np.ndarray) -> None:
        """Replace the products of rows that have filled edges."""
        filled = np.flatnonzero(~self._complete[rows])
        for part, x in self.iterate(rows[filled], fill, _FILLED_PORTIONS):
            for other, y in self.iterate(columns, fill):
                products[filled[part], other] = x @ y.T


@dataclass(frozen=True)
class StoredRows:
    """The features of the source scans of a run, as rows of stored edges, less their mean.

    Shapes: scans [n], fill [d], centre [d], along_centre [n].
    """

    stored: StoredEdges
    scans: np.ndarray  # positions of the source scans
    fill: np.ndarray  # what the run fills the edges of ROIs without signal with
    centre: np.ndarray  # mean of the features
    along_centre: np.ndarray  # products of the features with their mean

    @classmethod
    def prepare(cls, stored: StoredEdges, scans: np.ndarray, fill: np.ndarray) -> tuple[StoredRows, np.ndarray]:
        """Centre the features of source scans, and compute the products of the centred features.

        Shapes: scans [n], fill [d]; returns gram [n, n].
        """
        gram = stored.multiply(scans, scans, fill)
        along_centre = gram.mean(0)
        gram -= along_centre - along_centre.mean()  # in place: a copy would be as large as all other memory of a run
        gram -= along_centre[:, None]
        centre = np.zeros(len(fill))
        for _, x in stored.iterate(scans, fill):
            centre += x.sum(0) / len(scans)
        return cls(stored, scans, fill, centre, along_centre), gram

    def multiply(self, scans: np.ndarray) -> np.ndarray:
        """Compute the products of the centred features of scans [m] with those of the source scans. Shape [m, n]."""
        across = self.stored.multiply(scans, self.scans, self.fill)
        across -= across.mean(1, keepdims=True)
        across -= self.along_centre - self.along_centre.mean()
        return across

    def combine(self, weights: np.ndarray) -> np.ndarray:
        """Compute the sum of the centred features, each source scan with its weight. Shape [n] -> [d]."""
        total = -weights.sum() * self.centre
        for part, x in self.stored.iterate(self.scans, self.fill):
            total += weights[part] @ x
        return total

    def project(self, scans: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        """Compute the products of the centred features of scans [m] with coefficients [d]. Shape [m]."""
        products = np.empty(len(scans))
        for part, x in self.stored.iterate(scans, self.fill):
            products[part] = project_rows(x, coefficients)
        return products - self.centre @ coefficients


def _multiply_rows(x: np.ndarray) -> np.ndarray:
    """Compute x x' in blocks, on all cores; sums over many edges are in float64. Shape [n, d] -> [n, n]."""
    products = np.empty((len(x), len(x)))
    firsts = range(0, len(x), _BLOCK_SCANS)

    def multiply(pair: tuple[int, int]) -> None:
        i, j = (slice(first, first + _BLOCK_SCANS) for first in pair)
        block = products[i, j]
        block[:] = 0.0
        for first in range(0, x.shape[1], _BLOCK_EDGES):
            edges = slice(first, first + _BLOCK_EDGES)
            block += x[i, edges] @ x[j, edges].T
        products[j, i] = block.T

    map_on_cores(multiply, [(i, j) for i in firsts for j in firsts if j <= i])
    return products

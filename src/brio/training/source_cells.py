"""The source scans of every run in a stack, cell by cell, padded to one shape."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .. import draws
from ..cohort import Cohort
from ..errors import BrioError
from .contract import Run

__all__ = ["SourceCells"]


class SourceCells:
    """Members of each (run, source site, class) cell.

    Attributes
    ----------
    members : ndarray of int64, shape [R, E, 2, most]
        Positions in the cohort, padded.
    size : ndarray of int64, shape [R, E, 2]
        Scans in the cell; 0 where a run has fewer source sites than the stack has room for.
    n_sites : ndarray of int64, shape [R]
    """

    def __init__(self, cohort: Cohort, runs: Sequence[Run]) -> None:
        sites, labels = cohort.sites, cohort.labels
        names = [np.unique(sites[run.fold.source]) for run in runs]
        self.n_sites = np.array([len(n) for n in names])
        cells = [
            [
                [run.fold.source[(sites[run.fold.source] == e) & (labels[run.fold.source] == c)] for c in (0, 1)]
                for e in n
            ]
            for run, n in zip(runs, names, strict=True)
        ]
        for job, sites_of_job, found in zip(runs, names, cells, strict=True):
            for e, (controls, patients) in zip(sites_of_job, found, strict=True):
                if not len(controls) or not len(patients):
                    raise BrioError(f"fold {job.fold.name}: source site {e} holds one class only; leave it out")
        most = max(len(m) for run in cells for site in run for m in site)
        shape = (len(runs), int(self.n_sites.max()), 2)
        self.size = np.zeros(shape, dtype=np.int64)
        self.members = np.zeros((*shape, most), dtype=np.int64)
        for r, run in enumerate(cells):
            self.members[r] = run[0][0][0]  # padding points at some source scan of the run; its weight is zero
            for e, site in enumerate(run):
                for c, scans in enumerate(site):
                    self.size[r, e, c] = len(scans)
                    self.members[r, e, c, : len(scans)] = scans
        self.seeds = np.array([run.seed for run in runs], dtype=np.int64)
        self._ids = draws.addresses(cohort.ids)

    @property
    def cell_weight(self) -> np.ndarray:
        """Share of each cell in a loss that weighs source sites and classes equally. Shape [R, E, 2]."""
        return (self.size > 0) / (2.0 * self.n_sites[:, None, None])

    @property
    def pair_weight(self) -> np.ndarray:
        """Share of each unordered pair of source sites. Shape [R, E (E - 1) / 2]."""
        first, second = np.triu_indices(self.size.shape[1], 1)
        real = self.size[:, :, 0] > 0
        pairs = self.n_sites * (self.n_sites - 1) / 2.0
        return (real[:, first] & real[:, second]) / np.maximum(pairs, 1.0)[:, None]

    def membership(self) -> tuple[np.ndarray, np.ndarray]:
        """Source scans of each run and the weights that average them over their cells.

        Sums over a run's source scans do not depend on how many other scans the cohort holds, not even in the last bit.

        Returns
        -------
        scans : ndarray of int64, shape [R, n]
            Positions in the cohort, padded.
        weight : ndarray of float64, shape [R, E, 2, n]
            1 / N_ec for the members of cell (e, c), else 0.
        """
        total = self.size.sum((1, 2))
        scans = np.repeat(self.members[:, 0, 0, :1], total.max(), axis=1)
        weight = np.zeros((*self.size.shape, int(total.max())))
        for r in range(len(total)):
            start = 0
            for e, c in np.argwhere(self.size[r]):
                stop = start + self.size[r, e, c]
                scans[r, start:stop] = self.members[r, e, c, : stop - start]
                weight[r, e, c, start:stop] = 1.0 / (stop - start)
                start = stop
        return scans, weight

    def select(self, keep: np.ndarray) -> SourceCells:
        """The sources of some of the runs."""
        out = object.__new__(SourceCells)
        out.n_sites, out.size, out.members = self.n_sites[keep], self.size[keep], self.members[keep]
        out.seeds, out._ids = self.seeds[keep], self._ids
        return out

    def steps(self, cell_batch: int) -> np.ndarray:
        """Optimisation steps of an epoch: as many batches as fit into the number of source scans. Shape [R]."""
        return np.maximum(1, self.size.sum((1, 2)) // (2 * self.n_sites * cell_batch))

    def batches(self, epoch: int, cell_batch: int) -> tuple[np.ndarray, np.ndarray]:
        """Scans of every step of an epoch, and which runs take the step.

        Each cell is walked in an order drawn from seed, epoch and participant; a cell with fewer scans
        than the epoch asks for is walked again, so no scan of a cell is drawn more than once oftener than another.

        Returns
        -------
        batches : ndarray of int64, shape [steps, R, E, 2, cell_batch]
        active : ndarray of bool, shape [steps, R]
        """
        steps = self.steps(cell_batch)
        key = draws.uniform(self.seeds[:, None, None, None], "batches", epoch, self._ids[self.members])
        beyond = np.arange(self.members.shape[-1]) >= self.size[..., None]
        order = np.argsort(np.where(beyond, 2.0, key), axis=-1, kind="stable")
        walked = np.take_along_axis(self.members, order, axis=-1)
        slot = np.arange(int(steps.max()) * cell_batch) % np.maximum(self.size, 1)[..., None]
        drawn = np.take_along_axis(walked, slot, axis=-1)  # [R, E, 2, steps * n]
        drawn = drawn.reshape(*self.size.shape, int(steps.max()), cell_batch)
        return np.moveaxis(drawn, 3, 0), np.arange(int(steps.max()))[:, None] < steps

"""Batches balanced across sites and classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from .. import draws
from ..cohort import Cohort
from ..errors import BrioError
from .contract import Run


def group_by_cell(site: np.ndarray, label: np.ndarray) -> tuple[np.ndarray, list[list[np.ndarray]]]:
    """List the scans of each site and class.

    Shapes: site [n], label [n]; returns names [E].
    """
    names = np.unique(site)
    members = [[np.flatnonzero((site == name) & (label == c)) for c in (0, 1)] for name in names]
    for name, (controls, patients) in zip(names, members, strict=True):
        if not len(controls) or not len(patients):
            raise BrioError(f"source site {name} holds one class only; both are needed at every site")
    return names, members


def cell_average_weights(site: np.ndarray, label: np.ndarray) -> Tensor:
    """Return the weights that average scans over cells: 1 / N_ec for scans of site e and class c, else 0.

    For one run, as :meth:`brio.training.cells.SourceCells.cell_average` for a stack.

    Shapes: site [n], label [n]; returns [E, 2, n].
    """
    names, members = group_by_cell(site, label)
    weight = torch.zeros(len(names), 2, len(site), dtype=torch.float64)
    for e, cells in enumerate(members):
        for c, scans in enumerate(cells):
            weight[e, c, torch.from_numpy(scans)] = 1.0 / len(scans)
    return weight


class SourceCells:
    """The scans of each cell (run, source site, class) of a stack.

    Shapes: sites [N], members [R, E, 2, most], size [R, E, 2], n_sites [R].
    """

    def __init__(self, cohort: Cohort, runs: Sequence[Run], sites: Sequence[np.ndarray] | None = None) -> None:
        labels = cohort.labels
        sites = [cohort.sites] * len(runs) if sites is None else sites
        names = [np.unique(own[run.fold.source]) for run, own in zip(runs, sites, strict=True)]
        self.n_sites = np.array([len(n) for n in names])
        cells = [
            [[run.fold.source[(own[run.fold.source] == e) & (labels[run.fold.source] == c)] for c in (0, 1)] for e in n]
            for run, n, own in zip(runs, names, sites, strict=True)
        ]
        for run, run_sites, run_cells in zip(runs, names, cells, strict=True):
            for site, (controls, patients) in zip(run_sites, run_cells, strict=True):
                if not len(controls) or not len(patients):
                    raise BrioError(f"fold {run.fold.name}: source site {site} holds one class only; leave it out")
        most = max(len(m) for run in cells for site in run for m in site)
        shape = (len(runs), int(self.n_sites.max()), 2)
        self.size = np.zeros(shape, dtype=np.int64)
        self.members = np.zeros((*shape, most), dtype=np.int64)
        for r, run_cells in enumerate(cells):
            self.members[r] = run_cells[0][0][0]  # padding points at some source scan of the run; its weight is zero
            for e, site_cells in enumerate(run_cells):
                for c, scans in enumerate(site_cells):
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

    def cell_average(self) -> tuple[np.ndarray, np.ndarray]:
        """Source scans of each run and the weights that average them over their cells.

        Sums over a run's source scans do not depend on how many other scans the cohort holds, not even in the last bit.

        Shapes: returns scans [R, n], weight [R, E, 2, n].
        """
        total = self.size.sum((1, 2))
        scans = np.repeat(self.members[:, 0, 0, :1], total.max(), axis=1)
        weight = np.zeros((*self.size.shape, int(total.max())))
        for r, n in enumerate(total):
            cells = np.argwhere(self.size[r])  # (site, class)
            members = [self.members[r, e, c, : self.size[r, e, c]] for e, c in cells]
            scans[r, :n] = np.concatenate(members)
            site, label = np.repeat(cells, [len(m) for m in members], axis=0).T
            weight[r, : self.n_sites[r], :, :n] = cell_average_weights(site, label).numpy()
        return scans, weight

    def select(self, keep: np.ndarray) -> SourceCells:
        """Select some of the runs (boolean mask, shape [R])."""
        out = object.__new__(SourceCells)
        out.n_sites, out.size, out.members = self.n_sites[keep], self.size[keep], self.members[keep]
        out.seeds, out._ids = self.seeds[keep], self._ids
        return out

    def steps(self, cell_batch: int) -> np.ndarray:
        """Optimisation steps of an epoch: as many batches as fit into the number of source scans. Shape [R]."""
        return np.maximum(1, self.size.sum((1, 2)) // (2 * self.n_sites * cell_batch))

    def batches(self, epoch: int, cell_batch: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw the scans of every step of an epoch.

        The scans of a cell come in an order drawn from seed, epoch and participant. A cell with fewer scans than the
        epoch needs starts over, so the counts of two scans of a cell differ by at most one.

        Shapes: returns batches [steps, R, E, 2, cell_batch], active [steps, R].
        """
        steps = self.steps(cell_batch)
        key = draws.draw_uniform(self.seeds[:, None, None, None], "batches", epoch, self._ids[self.members])
        beyond = np.arange(self.members.shape[-1]) >= self.size[..., None]
        order = np.argsort(np.where(beyond, 2.0, key), axis=-1, kind="stable")
        ordered = np.take_along_axis(self.members, order, axis=-1)
        slot = np.arange(int(steps.max()) * cell_batch) % np.maximum(self.size, 1)[..., None]
        drawn = np.take_along_axis(ordered, slot, axis=-1)  # [R, E, 2, steps * n]
        drawn = drawn.reshape(*self.size.shape, int(steps.max()), cell_batch)
        return np.moveaxis(drawn, 3, 0), np.arange(int(steps.max()))[:, None] < steps

"""Cells of source scans. A cell is the scans of one source site and one class."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..errors import BrioError


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

    For one run, as :meth:`brio.training.source_cells.SourceCells.cell_average` for a stack.

    Shapes: site [n], label [n]; returns [E, 2, n].
    """
    names, members = group_by_cell(site, label)
    weight = torch.zeros(len(names), 2, len(site), dtype=torch.float64)
    for e, cells in enumerate(members):
        for c, scans in enumerate(cells):
            weight[e, c, torch.from_numpy(scans)] = 1.0 / len(scans)
    return weight

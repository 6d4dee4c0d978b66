"""Cells of source scans. A cell is the scans of one source site and one class."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..errors import BrioError

__all__ = ["cell_average_weights", "group_by_cell"]


def group_by_cell(site: np.ndarray, label: np.ndarray) -> tuple[np.ndarray, list[list[np.ndarray]]]:
    """List the scans of each site and class.

    Parameters
    ----------
    site : ndarray of str, shape [n]
    label : ndarray of int, shape [n]

    Returns
    -------
    names : ndarray of str, shape [E]
        The sites, sorted.
    members : list of E lists of two ndarrays
        Positions of the controls and of the patients of each site.

    Raises
    ------
    BrioError
        If a site holds one class only.

    Examples
    --------
    >>> names, members = group_by_cell(np.array(["b", "a", "a", "b"]), np.array([0, 1, 0, 1]))
    >>> names.tolist(), [[scans.tolist() for scans in cells] for cells in members]
    (['a', 'b'], [[[2], [1]], [[0], [3]]])
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

    Parameters
    ----------
    site : ndarray of str, shape [n]
    label : ndarray of int, shape [n]

    Returns
    -------
    Tensor of float64, shape [E, 2, n]
        Sites in sorted order.

    Examples
    --------
    >>> cell_average_weights(np.array(["a", "a", "a"]), np.array([0, 1, 1])).tolist()
    [[[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]]]
    """
    names, members = group_by_cell(site, label)
    weight = torch.zeros(len(names), 2, len(site), dtype=torch.float64)
    for e, cells in enumerate(members):
        for c, scans in enumerate(cells):
            weight[e, c, torch.from_numpy(scans)] = 1.0 / len(scans)
    return weight

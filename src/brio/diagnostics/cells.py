"""The cells of source scans: those of one site and one class."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..errors import BrioError

__all__ = ["cell_members", "membership"]


def cell_members(site: np.ndarray, label: np.ndarray) -> tuple[np.ndarray, list[list[np.ndarray]]]:
    """Names of the sites, sorted, and the positions of the scans of each site and class.

    Examples
    --------
    >>> names, members = cell_members(np.array(["b", "a", "a", "b"]), np.array([0, 1, 0, 1]))
    >>> names.tolist(), [[m.tolist() for m in both] for both in members]
    (['a', 'b'], [[[2], [1]], [[0], [3]]])
    """
    names = np.unique(site)
    members = [[np.flatnonzero((site == e) & (label == c)) for c in (0, 1)] for e in names]
    for e, both in zip(names, members, strict=True):
        if not len(both[0]) or not len(both[1]):
            raise BrioError(f"source site {e} holds one class only; diagnostics by class need both at every site")
    return names, members


def membership(site: np.ndarray, label: np.ndarray) -> Tensor:
    """1 / N_ec for the scans of site e and class c, else 0: averages over cells are products. Shape [E, 2, n]."""
    names, members = cell_members(site, label)
    weight = torch.zeros(len(names), 2, len(site), dtype=torch.float64)
    for e, both in enumerate(members):
        for c, scans in enumerate(both):
            weight[e, c, torch.from_numpy(scans)] = 1.0 / len(scans)
    return weight

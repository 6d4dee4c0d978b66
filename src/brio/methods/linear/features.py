"""The features that most linear models read: the edges of a connectome."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from ...connectome import fill_dead, read_edges
from ...training import Scans

__all__ = ["vectorise_fc"]


def vectorise_fc(scans: Scans, mean: Tensor) -> np.ndarray:
    """Read the upper triangle of the FC matrices, with edges of ROIs without signal filled in.

    Parameters
    ----------
    scans : Scans
        n scans.
    mean : Tensor, shape [P, P]
        Fills the edges of ROIs without signal.

    Returns
    -------
    ndarray of float64, shape [n, P (P - 1) / 2]
    """
    A = fill_dead(scans.A, scans.alive, mean.to(scans.A))
    return read_edges(A).double().cpu().numpy()

"""The features that most linear models read: the edges of a connectome."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...connectome import find_live_edges, read_edges
from ...training import Scans


def vectorise_fc(scans: Scans, mean: Tensor) -> np.ndarray:
    """Read the upper triangle of the FC matrices, with edges of ROIs without signal filled in.

    Shapes: mean [P, P]; returns [n, P (P - 1) / 2].
    """
    edges, filled = read_edges(scans.A).double(), (scans.alive <= 0).any(-1)
    live = find_live_edges(scans.alive[filled])
    edges[filled] = torch.where(live, edges[filled], read_edges(mean.to(scans.A)).double())
    return edges.cpu().numpy()


def project_rows(x: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """Compute the product of the features of each scan with coefficients. Shapes [m, d] and [d] -> [m].

    Scans with equal features get equal products, so that AUC counts them as a tie. A matrix product would not do that:
    the order of its sums depends on the row.
    """
    return (x * coefficients).sum(1)

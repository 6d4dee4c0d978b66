"""Which regions speak for a prediction: what their edges add to the margin of a linear model."""

from __future__ import annotations

import numpy as np
import torch

from ..connectome import Connectomes
from .model import Ensemble

_SCANS_AT_A_TIME = 256


def compute_region_contributions(model: Ensemble, plain: Connectomes) -> np.ndarray | None:
    """Compute what the edges of each region add to the margin of each scan, averaged over members.

    The contribution of an edge is its coefficient times its difference from the mean of the source scans. Each of its
    two regions gets half of it, so that a row adds up to the margin, less its value at that mean.

    Shapes: returns [n, P].

    Returns None where the margin is not a sum over edges.
    """
    u, v = torch.triu_indices(plain.n_rois, plain.n_rois, 1)
    total = torch.zeros(len(plain), plain.n_rois, dtype=torch.float64)
    for member in model.members:
        explanation = model.method.explain(member.fitted)
        if explanation is None or explanation.coefficients is None or explanation.beyond_edges:
            return None
        coefficients = torch.from_numpy(explanation.coefficients)
        inputs = model.gather_inputs(plain, member)
        for part in torch.arange(len(plain), device=plain.device).split(_SCANS_AT_A_TIME):
            edges = model.method.read_explained(member.fitted, inputs.take(part)).edges
            added = torch.from_numpy(np.asarray(edges, dtype=float)) * coefficients / 2
            total[part.cpu()] += (
                torch.zeros(len(part), plain.n_rois, dtype=torch.float64)
                .index_add_(1, u, added)
                .index_add_(1, v, added)
            )
    return total.numpy() / len(model.members)

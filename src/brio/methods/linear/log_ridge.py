"""Ridge regression on log-connectomes, with an intercept for each source site."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ...connectome import find_live_edges, log_connectome, read_edges
from ...errors import BrioError
from ...settings import GridSize, InnerShare, Positive
from ...training import Scans, SourceScans, Tensors, TensorSpec
from ..registry import method
from .base import LinearSettings, StoredEdges
from .ridge import KernelRidgeMethod

_SCANS_AT_ONCE = 1024


@dataclass(frozen=True)
class LogRidgeSettings(LinearSettings):
    """Settings of ridge regression on log-connectomes.

    Attributes
    ----------
    shrinkage : float
        Weight s of the identity in (1 - s) R + s I, whose logarithm is taken, for a correlation matrix R. One half is a
        convention: on inner folds of ABIDE, the mean AUC hardly changes between one third and 0.8.
    choose_by : {"source-sites", "validation"}
        How the penalty is chosen: by the mean AUC over inner folds, or on the validation scans.
    """

    largest_penalty: Positive = 30.0
    penalties: GridSize = 6
    choose_by: Literal["validation", "source-sites"] = "source-sites"
    shrinkage: InnerShare = 0.5


@method(
    "log-ridge",
    family="linear",
    provenance="textbook parts, combined here",
    reference="Arsigny et al. 2006 (logarithm of a matrix); Hoerl & Kennard 1970 (ridge)",
    needs={"sites"},
)
class LogRidge(KernelRidgeMethod):
    """Ridge regression on log-connectomes with an intercept for each source site; inner folds choose the penalty."""

    settings: LogRidgeSettings
    version = 2  # of penalties that score alike the strongest is chosen
    uses_seed = False
    margins_are_log_odds = True
    site_intercepts = True
    can_store_edges = True
    edge_values = "entry of the log-connectome"

    def declare_features(self, n_rois: int) -> dict[str, TensorSpec]:
        edges = super().declare_features(n_rois)["features"]
        return {"features": edges, "mean": edges}

    def learn(self, source: SourceScans, scans: Any) -> Tensors:
        """Learn the mean of each edge over the source scans in which both of its ROIs have signal. Shape [d]."""
        if not all(0 < source.label[source.site == e].mean() < 1 for e in np.unique(source.site)):
            raise BrioError(
                f"method '{self.name}' needs both classes at every source site; leave out sites with one class"
            )
        n_rois = source.connectomes.n_rois
        if self.settings.dead_rois == "zero":
            return {"mean": torch.zeros(n_rois * (n_rois - 1) // 2, dtype=torch.float64)}
        if isinstance(scans, StoredEdges):
            return {"mean": torch.from_numpy(scans.average_live(source.scans))}
        x, live = read_edges(scans.A).double(), find_live_edges(scans.alive)
        return {"mean": torch.where(live, x, 0.0).sum(0) / live.sum(0).clamp_min(1)}

    def extract_features(self, scans: Scans, learned: Tensors) -> np.ndarray:
        x, live = read_edges(scans.A).double(), find_live_edges(scans.alive)
        return torch.where(live, x, learned["mean"].to(x)).cpu().numpy()

    def transform(self, A: Tensor) -> Tensor:
        """Take the logarithm of every connectome, part by part."""
        logarithms = torch.empty_like(A)
        for part, into in zip(A.split(_SCANS_AT_ONCE), logarithms.split(_SCANS_AT_ONCE), strict=True):
            into.copy_(log_connectome(part, self.settings.shrinkage))
        return logarithms

    def estimate_fit_bytes(self, n_scans: int, n_rois: int) -> float:
        """Estimate the memory of a fit, including the log-connectomes if edges are not stored."""
        stored = StoredEdges.are_needed(n_scans, n_rois)
        return super().estimate_fit_bytes(n_scans, n_rois) + (0.0 if stored else 4.0 * n_scans * n_rois**2)

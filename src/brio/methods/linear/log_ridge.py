"""Ridge regression on log-connectomes, with an intercept for each source site."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ...connectome import Connectomes, find_live_edges, log_connectome, read_edges
from ...device import full_precision
from ...errors import BrioError
from ...settings import GridSize, InnerShare, Positive
from ...training import FittedRun, Prediction, Scans, SourceScans, Tensors, TensorSpec
from ..registry import method
from .base import DualSolution, LinearSettings, ScanReader, StoredEdges, fit_calibration
from .ridge import KernelRidgeMethod

_SCANS_AT_ONCE = 1024


@dataclass(frozen=True)
class LogRidgeSettings(LinearSettings):
    """Settings of ridge regression on log-connectomes.

    Attributes
    ----------
    shrinkage : float
        Share s of the identity in each correlation matrix before its logarithm is taken. Half is a convention:
        on inner folds of ABIDE the mean AUC hardly changes between a third and 0.8.
    choose_by : {"source-sites", "validation"}
        How the penalty is chosen: by the mean AUC over inner folds, or on the validation scans.
    """

    largest_penalty: Positive = 30.0
    penalties: GridSize = 6
    choose_by: Literal["validation", "source-sites"] = "source-sites"
    shrinkage: InnerShare = 0.5


def log_matrices(A: Tensor, shrinkage: float) -> Tensor:
    """Compute log-connectomes of many scans, part by part.

    Shapes: A [n, P, P]; returns [n, P, P].
    """
    logarithms = torch.empty_like(A)
    for part, into in zip(A.split(_SCANS_AT_ONCE), logarithms.split(_SCANS_AT_ONCE), strict=True):
        into.copy_(log_connectome(part, shrinkage))
    return logarithms


@method(
    "log-ridge",
    family="linear",
    provenance="textbook parts, put together here",
    reference="Arsigny et al. 2006 (logarithm of a matrix); Hoerl & Kennard 1970 (ridge)",
    needs={"sites"},
)
class LogRidge(KernelRidgeMethod):
    """Ridge regression on log-connectomes, an intercept for each source site, penalty chosen on inner folds."""

    Settings = LogRidgeSettings
    settings: LogRidgeSettings
    version = 2  # of penalties that score alike the strongest is chosen
    uses_seed = False
    margins_are_log_odds = True  # calibrate makes them so
    site_intercepts = True
    can_store_edges = True
    edge_values = "entry of the log-connectome"

    def calibrate(
        self, solution: DualSolution, inner_margin: np.ndarray | None, label: np.ndarray, inner_fold: np.ndarray
    ) -> tuple[float, float]:
        """Fit slope and intercept to the inner folds: intercepts of source sites say nothing about another site."""
        assert inner_margin is not None  # always computed where sites have intercepts
        slope, intercept = fit_calibration(inner_margin, label, inner_fold).tolist()
        return slope, intercept

    def declare_features(self, n_rois: int) -> dict[str, TensorSpec]:
        edges = super().declare_features(n_rois)["features"]
        return {"features": edges, "mean": edges}

    def learn(self, source: SourceScans, scans: Scans) -> Tensors:
        self._require_both_classes(source)
        x, live = read_edges(scans.A).double(), find_live_edges(scans.alive)
        if self.settings.dead_rois == "zero":
            return {"mean": torch.zeros_like(x[0])}
        return {"mean": torch.where(live, x, 0.0).sum(0) / live.sum(0).clamp_min(1)}

    def learn_fill(self, source: SourceScans, stored: StoredEdges) -> tuple[Tensors, np.ndarray]:
        self._require_both_classes(source)
        zero = self.settings.dead_rois == "zero"
        mean = np.zeros(stored.n_edges) if zero else stored.average_live(source.scans)
        return {"mean": torch.from_numpy(mean)}, mean

    def _require_both_classes(self, source: SourceScans) -> None:
        if not all(0 < source.label[source.site == e].mean() < 1 for e in np.unique(source.site)):
            raise BrioError(f"'{self.name}' needs both classes at every source site, for inner folds")

    def extract_features(self, scans: Scans, learned: Tensors) -> np.ndarray:
        x, live = read_edges(scans.A).double(), find_live_edges(scans.alive)
        return torch.where(live, x, learned["mean"].to(x)).cpu().numpy()

    def read_scans(self, connectomes: Connectomes) -> ScanReader:
        """Take the logarithm of every scan once, since it depends on that scan alone."""
        return ScanReader(self.gather_inputs(connectomes), log_matrices(connectomes.full, self.settings.shrinkage))

    def estimate_fit_bytes(self, n_scans: int, n_rois: int) -> float:
        """Estimate the memory of a fit: where edges are not stored, the log-connectomes besides."""
        stored = StoredEdges.are_needed(n_scans, n_rois)
        return super().estimate_fit_bytes(n_scans, n_rois) + (0.0 if stored else 4.0 * n_scans * n_rois**2)

    def read_matrices(self, connectomes: Connectomes) -> Iterator[Tensor]:
        """Iterate over the log-connectomes of all scans."""
        return (log_connectome(part, self.settings.shrinkage) for part in connectomes.full.split(_SCANS_AT_ONCE))

    def predict(self, fitted: FittedRun, scans: Scans) -> Prediction:
        """Predict margins; the representation is the centred edges of the log-connectomes."""
        if "coefficients" not in fitted.parameters:  # stored under the former name of this method
            raise BrioError(f"these weights are not of this version of '{self.name}': fit it again")
        with full_precision():  # as in fit
            logs = log_matrices(scans.A, self.settings.shrinkage)
        return super().predict(fitted, scans._replace(A=logs))

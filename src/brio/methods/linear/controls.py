"""Confound baselines: models that see no connectome. An AUC above chance means that the cohort has a shortcut."""

from abc import abstractmethod
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ...training import MethodFacts, Scans, SourceScans, Tensors, TensorSpec
from ..registry import TEXTBOOK, method
from .logistic import LogisticMethod

_TINY = float(np.finfo(float).tiny)


class _Control(LogisticMethod):
    """Logistic regression on features standardised over the source scans; missing values are the source mean."""

    version = 5  # scans with equal features have equal margins; probabilities are those of the margins
    uses_seed = False
    margins_are_log_odds = True
    edge_values = ""

    n_columns: int | None = None
    """Number of features; None for one of each ROI."""

    def declare_features(self, n_rois: int) -> dict[str, TensorSpec]:
        columns = TensorSpec((self.n_columns or n_rois,))
        return {"features": columns, "mean": columns, "spread": columns._replace(low=_TINY)}

    @abstractmethod
    def read_columns(self, scans: Scans) -> Tensor:
        """Read the features of scans before they are standardised; NaN where missing. Shape [n, d]."""

    def learn(self, source: SourceScans, scans: Scans) -> Tensors:
        x = self.read_columns(scans).double()
        mean = x.nanmean(0).nan_to_num()  # 0 for a feature that no source scan has
        spread = (x - mean).square().nanmean(0).sqrt()
        return {"mean": mean, "spread": torch.where(spread > 0, spread, torch.ones_like(spread))}

    def extract_features(self, scans: Scans, learned: Tensors) -> np.ndarray:
        x = (self.read_columns(scans).double().cpu() - learned["mean"]) / learned["spread"]
        return torch.nan_to_num(x, nan=0.0).numpy()


@method(
    "covariates-only",
    family="control",
    provenance=TEXTBOOK,
    reference="Cox 1958 (logistic regression)",
    needs={"sex", "age", "motion"},
    control=True,
)
class CovariatesOnly(_Control):
    """Logistic regression on those of age, sex and head motion that are known, without the connectome."""

    n_columns = 3
    needs_all = False

    def read_columns(self, scans: Scans) -> Tensor:
        return scans.covariates


@method("length-only", family="control", provenance=TEXTBOOK, reference="Cox 1958 (logistic regression)", control=True)
class LengthOnly(_Control):
    """Logistic regression on the number of frames of a scan, without the connectome."""

    n_columns = 2

    @property
    def facts(self) -> MethodFacts:
        """Facts that a job needs for planning and printing."""
        return replace(super().facts, frames_for="the length of each scan, its only input")

    def read_columns(self, scans: Scans) -> Tensor:
        return torch.stack([scans.n_frames, scans.n_frames.log()], dim=-1)


@method(
    "dead-rois-only", family="control", provenance=TEXTBOOK, reference="Cox 1958 (logistic regression)", control=True
)
class DeadRoisOnly(_Control):
    """Logistic regression on the ROIs without signal, without the connectome."""

    def read_columns(self, scans: Scans) -> Tensor:
        return 1.0 - scans.alive.to(scans.A.dtype)

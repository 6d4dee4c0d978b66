"""CORAL: penalise differences between source sites in the covariance of what the classifier reads."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...domains import Weight
from ...settings import setting
from ...spaces import log_uniform
from ...training import Batch, Output, RunState, Stage
from ..graphs import GraphSettings
from ..losses import classification_loss
from ..provenance import PUBLISHED
from ..registry import method
from .backbone import GCNMethod


@dataclass(frozen=True)
class CORALSettings(GraphSettings):
    """Settings of CORAL."""

    penalty: Weight = setting(1.0, log_uniform(0.1, 10.0))
    means: bool = True  # whether means are compared too, as in DomainBed; the paper compares covariances alone


def coral_penalty(x: Tensor, batch: Batch, means: bool) -> Tensor:
    """Average over pairs of source sites the mean squared entry of C_e - C_e' (and of m_e - m_e').

    C is the centred covariance of the site's scans in the batch, both classes together. With 8 scans its rank is at
    most 7, and the distance of two such estimates is mostly their noise; this holds for the published code too.

    Shapes: x [B, d].
    """
    of_site = x.unflatten(0, (batch.cells[0], -1))  # [E, 2 n, d]
    mean = of_site.mean(1, keepdim=True)
    centred = of_site - mean
    covariance = centred.transpose(-1, -2) @ centred / (of_site.shape[1] - 1)
    distance = _subtract_pairs(covariance.flatten(1)).square().mean(-1)
    if means:
        distance = distance + _subtract_pairs(mean.squeeze(1)).square().mean(-1)
    return (batch.pair_weight * distance).sum()


def _subtract_pairs(x: Tensor) -> Tensor:
    """Compute x_e - x_e' for e < e', in the order of ``batch.pair_weight``. Shape [E, k] -> [E (E - 1) / 2, k].

    As a product with a constant matrix: its gradient is summed in the same order every time, unlike that of indexing.
    """
    one = torch.eye(len(x), device=x.device, dtype=x.dtype)
    first, second = torch.triu_indices(len(x), len(x), 1, device=x.device)
    return (one[first] - one[second]) @ x


@method("coral", family="OOD", needs={"sites"}, provenance=PUBLISHED, reference="Sun & Saenko 2016; DomainBed")
class CORAL(GCNMethod):
    """GCN whose pooled states have similar covariances (and means) at all source sites."""

    Settings = CORALSettings
    settings: CORALSettings

    def loss(self, out: Output, batch: Batch, state: RunState, stage: Stage) -> Tensor:
        penalty = coral_penalty(out.representation, batch, self.settings.means)
        return classification_loss(out.logit, batch) + self.settings.penalty * penalty

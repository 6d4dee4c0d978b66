"""Graph isomorphism network on the strongest edges of each scan."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ...settings import setting
from ...spaces import choice
from ...training import Batch, InputShape, NeuralMethod, Output, RunState, Scans, Stage, StepContext
from ..graphs import GraphSettings, build_profiles, select_strong_edges
from ..layers import BatchNorm, Dropout, GINLayer
from ..losses import classification_loss
from ..provenance import PUBLISHED
from ..registry import method


@dataclass(frozen=True)
class GINSettings(GraphSettings):
    """Settings of the GIN."""

    readout: Literal["every", "last"] = setting("every", choice("every", "last"))


class GINNetwork(nn.Module):
    """Layers H <- dropout(ReLU(BN(MLP((1 + eps) H + A H)))), readouts, and a linear classifier.

    A is binary, so an ROI receives the plain sum over its neighbours. A readout is the mean over ROIs. Every scan has
    the same number of ROIs, so the mean separates whatever the original's sum separates, without its large values.
    """

    def __init__(self, shape: InputShape, s: GINSettings) -> None:
        super().__init__()
        widths = [shape.n_rois, *[s.width] * s.layers]
        self.layers = nn.ModuleList(GINLayer(a, b) for a, b in itertools.pairwise(widths))
        self.norms = nn.ModuleList(BatchNorm(b) for b in widths[1:])
        self.dropout = Dropout(s.dropout)
        self.readout = s.readout
        self.classify = nn.Linear(sum(widths) if s.readout == "every" else s.width, 1)

    def forward(self, scans: Scans, state: RunState, step: StepContext | None = None) -> Output:
        """Return logits [B] and pooled states, concatenated over layers, [B, d]; ``step`` is None at inference."""
        A = select_strong_edges(scans)
        states = [build_profiles(scans, state)]
        for layer, norm in zip(self.layers, self.norms, strict=True):
            states.append(self.dropout(norm(layer(states[-1], A, step), step).relu(), step))
        read_out = states if self.readout == "every" else states[-1:]
        pooled = torch.cat([H.mean(1) for H in read_out], -1)
        return Output(self.classify(pooled).squeeze(-1), pooled)


@method("gin", family="GNN", provenance=PUBLISHED, reference="Xu et al. 2019")
class GIN(NeuralMethod):
    """Sum aggregation and an MLP update over connection profiles, sums of every layer read out."""

    Settings = GINSettings
    settings: GINSettings

    def network(self, shape: InputShape) -> nn.Module:
        return GINNetwork(shape, self.settings)

    def loss(self, out: Output, batch: Batch, state: RunState, stage: Stage) -> Tensor:
        return classification_loss(out.logit, batch)

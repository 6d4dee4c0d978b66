"""Graph convolutional network on the strongest edges of each scan."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from ...settings import setting
from ...spaces import choice
from ...training import Batch, InputShape, NeuralMethod, Output, RunState, Scans, Stage, StepContext
from ..graphs import GraphSettings, build_profiles, normalise_adjacency, select_strong_edges
from ..layers import BatchNorm, Dropout, GCNLayer
from ..losses import classification_loss
from ..provenance import PUBLISHED
from ..registry import method


@dataclass(frozen=True)
class GCNSettings(GraphSettings):
    """Settings of the GCN."""

    readout: Literal["mean", "concat"] = setting("mean", choice("mean", "concat"))


class GCNNetwork(nn.Module):
    """Layers H <- dropout(ReLU(BN(A_hat H W))), a readout, and a linear classifier."""

    def __init__(self, shape: InputShape, s: GraphSettings, readout: str = "mean") -> None:
        super().__init__()
        widths = [shape.n_rois, *[s.width] * s.layers]
        self.layers = nn.ModuleList(GCNLayer(a, b) for a, b in itertools.pairwise(widths))
        self.norms = nn.ModuleList(BatchNorm(b) for b in widths[1:])
        self.dropout = Dropout(s.dropout)
        self.readout = readout
        self.classify = nn.Linear(s.width * (shape.n_rois if readout == "concat" else 1), 1)

    def forward(self, scans: Scans, state: RunState, step: StepContext | None = None) -> Output:
        """Return logits [B] and pooled states [B, width] or [B, P * width]; ``step`` is None at inference."""
        A_hat = normalise_adjacency(select_strong_edges(scans) * scans.A.abs())
        H = build_profiles(scans, state)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            H = self.dropout(norm(layer(H, A_hat), step).relu(), step)
        pooled = H.flatten(1) if self.readout == "concat" else H.mean(1)
        return Output(self.classify(pooled).squeeze(-1), pooled)


@method("gcn", family="GNN", provenance=PUBLISHED, reference="Kipf & Welling 2017")
class GCN(NeuralMethod):
    """Graph convolution over connection profiles, mean readout."""

    Settings = GCNSettings
    settings: GCNSettings

    def network(self, shape: InputShape) -> nn.Module:
        return GCNNetwork(shape, self.settings, self.settings.readout)

    def loss(self, out: Output, batch: Batch, state: RunState, stage: Stage) -> Tensor:
        return classification_loss(out.logit, batch)

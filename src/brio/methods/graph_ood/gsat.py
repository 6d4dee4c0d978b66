"""GSAT: random attention on edges, with a penalty on its divergence from a prior that keeps edges with rate r."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

from ...domains import InnerShare, Weight
from ...settings import setting
from ...spaces import choice
from ...training import Batch, InputShape, Output, RunState, Stage, StepContext
from ..edges import (
    EdgeMethod,
    EdgeMLP,
    EdgeNetwork,
    Edges,
    EdgeSettings,
    GINEncoder,
    average_directions,
    bernoulli_kl,
    find_keep_rate,
    list_edges,
    plan_decay_stages,
    sample_concrete,
    scatter_edges,
)
from ..losses import average_losses, classification_loss
from ..provenance import follow_code
from ..registry import method


@dataclass(frozen=True)
class GSATSettings(EdgeSettings):
    """Settings of GSAT."""

    final_r: InnerShare = setting(0.7, choice(0.5, 0.7))
    information: Weight = setting(1.0, choice(0.1, 1.0))


class GSATOutput(NamedTuple):
    """Output in training."""

    logit: Tensor  # [B]
    representation: Tensor  # [B, width]
    edge_sample: Tensor  # [B, 2 M] attention sampled for each direction of each edge
    edges: Edges


class GSATNetwork(EdgeNetwork):
    """One GIN, applied to the whole graph to score its edges, and again to the graph weighted by attention.

    The readout is the mean over ROIs. The published one is their sum; the two differ by a constant, since all graphs
    have P ROIs.
    """

    def __init__(self, shape: InputShape, s: EdgeSettings) -> None:
        super().__init__()
        self.edge_share = s.edge_share
        self.encoder = GINEncoder(shape.n_rois, s.width, s.layers, s.dropout)
        self.score = EdgeMLP(s.width, (4 * s.edge_width, s.edge_width), s.edge_dropout)
        self.classify = nn.Linear(s.width, 1)

    def read_graphs(self, X: Tensor, A: Tensor, step: StepContext | None) -> GSATOutput | Output:
        edges = list_edges(A, self.edge_share)
        edge_sample = sample_concrete(self.score(self.encoder(X, A, step), edges, step), step)
        weights = scatter_edges(average_directions(edge_sample), edges, A.shape[-1])
        pooled = self.encoder(X, weights, step).mean(1)
        out = Output(self.classify(pooled).squeeze(-1), pooled)
        return GSATOutput(*out, edge_sample, edges) if step is not None else out


@method(
    "gsat",
    family="graph OOD",
    provenance=follow_code(
        "the MLP that scores edges has hidden layers of 32 and 8 units instead of 256 and 64, which would take 60 "
        "times the arithmetic; edge_width=64 has the published ones"
    ),
    reference="Miao et al. 2022",
)
class GSAT(EdgeMethod):
    """Graph stochastic attention: noisy edge weights under an information bottleneck."""

    Settings = GSATSettings
    settings: GSATSettings
    peak_matrices_per_scan = 90.0

    def network(self, shape: InputShape) -> nn.Module:
        return GSATNetwork(shape, self.settings)

    def stages(self) -> list[Stage]:
        """Choose checkpoints after r has reached its last value, as published."""
        return plan_decay_stages(self.settings.epochs, self.settings.final_r)

    def loss(self, out: GSATOutput, batch: Batch, state: RunState, stage: Stage) -> Tensor:
        """Cross-entropy + information * KL(Bernoulli(a) || Bernoulli(r)) over the edges."""
        s = self.settings
        r = find_keep_rate(batch.epoch, stage, s.epochs, s.final_r)
        information = average_losses(bernoulli_kl(out.edge_sample, out.edges, r), batch)
        return classification_loss(out.logit, batch) + s.information * information

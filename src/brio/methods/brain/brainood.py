"""BrainOOD: a feature mask shared by all scans, a reconstruction, and sampled edges aligned over the batch."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...settings import require, setting
from ...spaces import choice
from ...training import Batch, InputShape, NeuralMethod, Output, RunState, Scans, Stage, StepContext
from ..edges import (
    EdgeMLP,
    Edges,
    EdgeSettings,
    average_directions,
    bernoulli_kl,
    list_edges,
    sample_concrete,
    scatter_edges,
    schedule_keep_rate,
    straight_through,
)
from ..graphs import build_profiles, select_strong_edges
from ..layers import BatchNorm, Chain, Dropout, GINLayer, linear
from ..losses import average_losses, classification_loss
from ..registry import PUBLISHED, method, variant

__all__ = ["BrainOOD", "BrainOODNetwork", "BrainOODSettings", "HighPassLayer", "VirtualGIN", "spread"]


@dataclass(frozen=True)
class BrainOODSettings(EdgeSettings):
    """Settings of BrainOOD, as in its published configuration for ABIDE unless said otherwise.

    Attributes
    ----------
    rounds : int
        Masks of edges drawn for each scan and step; their logits are averaged.
    feature_dropout : float
        Dropout of the feature mask.
    reconstruction, alignment, entropy : float
        Weights of the reconstruction error, of the spread of edge logits over the batch, and of the feature mask's
        entropy.
    information : float
        Weight of the information bottleneck: 0 in the published configuration, though the paper builds on it.
    final_r : float
        Where the share of edges that the bottleneck's prior keeps ends.
    """

    learning_rate: float = setting(2e-3, choice(3e-4, 1e-3, 2e-3))
    dropout: float = setting(0.5, choice(0.2, 0.5))
    rounds: int = 5
    feature_dropout: float = 0.2
    reconstruction: float = setting(0.5, choice(0.5, 10.0))
    alignment: float = setting(0.1, choice(0.01, 0.1, 1.0))
    entropy: float = 0.01
    information: float = 0.0
    final_r: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.rounds >= 1, "rounds", self.rounds, "at least 1")
        require(0 <= self.feature_dropout < 1, "feature_dropout", self.feature_dropout, "0 or more and below 1")
        for name in ("reconstruction", "alignment", "entropy", "information"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "0 or more")
        require(0 < self.final_r < 1, "final_r", self.final_r, "between 0 and 1")


class BrainOODOutput(NamedTuple):
    """What training reads."""

    logit: Tensor  # [B]
    representation: Tensor  # [B, width]
    error: Tensor  # [B] of the reconstruction
    entropy: Tensor  # scalar, of the feature mask
    edge_logit: Tensor  # [B, P, P]
    kept: Tensor  # [B, 2 M] relaxed sample
    edges: Edges


class EarlyGINLayer(GINLayer):
    """GIN layer whose first linear map comes before the sum over neighbours: the same numbers for less work."""

    def forward(self, H: Tensor, A: Tensor, step: StepContext | None = None) -> Tensor:
        """H: [B, P, n_in]; A: [B, ..., P, P]."""
        first = self.update[0]
        assert isinstance(first, nn.Linear)
        return self.update[1:](self.mix(linear(H, first.weight), A) + first.bias, step)

    def mix(self, x: Tensor, A: Tensor) -> Tensor:
        return (1 + self.eps) * x + A @ x


class HighPassLayer(EarlyGINLayer):
    """GIN layer on what a ROI has over its neighbourhood: MLP(h_u - [(1 + eps) h_u + sum_v a_uv h_v])."""

    def mix(self, x: Tensor, A: Tensor) -> Tensor:
        return x - super().mix(x, A)


class VirtualGIN(nn.Module):
    """GIN with a virtual node that hears all ROIs and is added to each of them before every layer but the first."""

    def __init__(
        self, n_in: int, width: int, layers: int, dropout: float, layer: type[EarlyGINLayer] = EarlyGINLayer
    ) -> None:
        super().__init__()
        widths = [n_in, *[width] * layers]
        self.layers = nn.ModuleList(layer(a, b) for a, b in itertools.pairwise(widths))
        self.norms = nn.ModuleList(BatchNorm(b) for b in widths[1:])
        self.dropout = Dropout(dropout)
        self.virtual = nn.Parameter(torch.randn(width))
        self.hear: Chain | None = None  # with two layers the virtual node is heard once, as it starts
        if layers > 2:
            wide, narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
            self.hear = Chain(wide, BatchNorm(2 * width), nn.ReLU(), narrow, BatchNorm(width), nn.ReLU())

    def forward(self, X: Tensor, A: Tensor, step: StepContext | None = None) -> Tensor:
        """X: [B, P, n_in]; A: [B, ..., P, P]. Shape [B, ..., P, width]; no ReLU after the last layer."""
        H, virtual, last = X, self.virtual, len(self.layers) - 1
        for number, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            H = norm(layer(H + virtual if number else H, A, step), step)
            H = self.dropout(H.relu() if number < last else H, step)
            if self.hear is not None and 0 < number < last:
                virtual = self.dropout(self.hear(H.sum(-2, keepdim=True) + virtual, step), step)
        return H


class BrainOODNetwork(nn.Module):
    """Mask the features, encode, score and draw edges, encode again over the drawn graphs, average, classify.

    Features are correlations with ones on the diagonal, as published, so that tanh can give them back. After training
    the probabilities of the edges stand in for the draws (the published code draws then too).
    """

    def __init__(self, shape: InputShape, s: BrainOODSettings) -> None:
        super().__init__()
        self.edge_share, self.rounds = s.edge_share, s.rounds
        self.feature = nn.Parameter(nn.init.xavier_uniform_(torch.empty(shape.n_rois, shape.n_rois)))
        self.feature_dropout = Dropout(s.feature_dropout)
        self.encoder = VirtualGIN(shape.n_rois, s.width, s.layers, s.dropout)
        self.score = EdgeMLP(s.width, (4 * s.edge_width, s.edge_width), s.edge_dropout)
        self.classify = nn.Linear(s.width, 1)
        self.reconstruct = VirtualGIN(s.width, s.width, s.layers, s.dropout, HighPassLayer)

    def forward(self, scans: Scans, state: RunState, step: StepContext | None = None) -> BrainOODOutput | Output:
        A = select_strong_edges(scans)
        p = A.shape[-1]
        M = self.feature_dropout((self.feature @ self.feature.T).sigmoid(), step)
        X = M * (build_profiles(scans, state).tanh() + torch.eye(p, device=A.device, dtype=A.dtype))
        H = self.encoder(X, A, step)
        edges = list_edges(A, self.edge_share)
        edge_logit = self.score(H, edges, step)
        kept = sample_concrete(edge_logit, step)
        if step is None:
            pooled = self.encoder(X, scatter_edges(average_directions(kept), edges, p)).mean(-2)
            return Output(self.classify(pooled).squeeze(-1), pooled)
        masks = self._draw_masks(average_directions(kept), step)
        pooled = self.encoder(X.unsqueeze(1), scatter_edges(masks, edges, p), step).mean((1, 2))  # over rounds and ROIs
        R = self.reconstruct(H, A, step)
        error = ((R @ R.mT).tanh() * M - X).square().mean((-1, -2))
        row = F.log_softmax(M, -1)
        entropy = -(row.exp() * row).sum(-1).mean()
        logit = self.classify(pooled).squeeze(-1)
        return BrainOODOutput(logit, pooled, error, entropy, scatter_edges(edge_logit, edges, p), kept, edges)

    def _draw_masks(self, probability: Tensor, step: StepContext) -> Tensor:
        """Draw binary masks, the same in both directions. Shape [B, 2 M] -> [B, rounds, 2 M]."""
        n_graphs, both = probability.shape
        u = step.draw_uniform((n_graphs, self.rounds, both // 2), probability)
        return straight_through(probability.unsqueeze(1), torch.cat([u, u], -1))


def spread(edge_logit: Tensor, batch: Batch) -> Tensor:
    """Standard deviation of each edge's logit over the scans of the batch, mean over all pairs of ROIs.

    Parameters
    ----------
    edge_logit : Tensor, shape [B, P, P]
        Zero where a scan has no edge.
    """
    count = batch.real.sum()
    share = (batch.real / count)[:, None, None]
    mean = (share * edge_logit).sum(0)
    variance = (share * (edge_logit - mean).square()).sum(0) * count / (count - 1).clamp_min(1)
    return (variance + 1e-12).sqrt().mean()


@method("brainood", family="brain networks", provenance=PUBLISHED, reference="Xu et al. 2025")
class BrainOOD(NeuralMethod):
    """Masked features, sampled edges aligned over scans, reconstruction by a high-pass graph network."""

    Settings = BrainOODSettings
    settings: BrainOODSettings
    training_only = ("reconstruct",)
    peak_matrices_per_scan = 180.0

    def network(self, shape: InputShape) -> nn.Module:
        return BrainOODNetwork(shape, self.settings)

    def loss(self, out: BrainOODOutput, batch: Batch, state: RunState, stage: Stage) -> Tensor:
        s = self.settings
        loss = (
            classification_loss(out.logit, batch)
            + s.reconstruction * average_losses(out.error, batch)
            + s.alignment * spread(out.edge_logit, batch)
            + s.entropy * out.entropy
        )
        if s.information > 0:
            r = schedule_keep_rate(batch.epoch, s.epochs, s.final_r)
            loss = loss + s.information * average_losses(bernoulli_kl(out.kept, out.edges, r), batch)
        return loss


variant("brainood-kl", BrainOOD, "BrainOOD with the information bottleneck of its paper switched on", information=1.0)

"""DisC: a causal and a biased part of each graph, separated by how easily they are learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...domains import Layers, PositiveShare, ShareBelowOne, Weight
from ...settings import setting
from ...spaces import choice
from ...training import Batch, InputShape, Output, RunState, Stage, StepContext
from ..edges import EdgeBatchNorm, EdgeMethod, EdgeMLP, EdgeNetwork, EdgeSettings, GINEncoder, list_edges, scatter_edges
from ..layers import BatchNorm, Dropout, Linear, build_mlp
from ..losses import average_losses, bce
from ..provenance import follow_paper
from ..registry import method


@dataclass(frozen=True)
class DisCSettings(EdgeSettings):
    """Settings of DisC."""

    layers: Layers = setting(4, choice(2, 4))
    dropout: ShareBelowOne = setting(0.2, choice(0.2, 0.5))
    edge_dropout: ShareBelowOne = 0.0  # published: none
    q: PositiveShare = 0.7  # exponent of the generalised cross-entropy: how much the biased branch prefers easy scans
    swap: Weight = setting(15.0, choice(1.0, 5.0, 15.0))
    swap_share: PositiveShare = 0.5


class DisCOutput(NamedTuple):
    """Output in training: both branches for each scan, with its own biased part and with that of another scan."""

    logit: Tensor  # [B] causal classifier
    representation: Tensor  # [B, 2 width] causal, then biased part
    biased: Tensor  # [B] logit of the biased classifier
    swapped: Tensor  # [B] causal classifier, biased part of another scan
    swapped_biased: Tensor  # [B] biased classifier, biased part of another scan
    order: Tensor  # [B] index of that scan


class Masker(nn.Module):
    """Masks of edges and of ROIs in (0, 1): two graph convolutions with mean aggregation, then an MLP for each."""

    def __init__(self, n_rois: int, s: DisCSettings) -> None:
        super().__init__()
        self.embed = Linear(n_rois, s.width)
        self.layers = nn.ModuleList(Linear(s.width, s.width) for _ in range(2))
        self.norms = nn.ModuleList(BatchNorm(s.width) for _ in range(2))
        self.dropout = Dropout(s.dropout)
        w = s.edge_width
        self.edge = EdgeMLP(s.width, (4 * w, 2 * w, w), s.edge_dropout, EdgeBatchNorm)
        self.node = build_mlp(s.width, 4 * w, 2 * w, w, 1, norm=True)
        self.edge_share = s.edge_share

    def forward(self, X: Tensor, A: Tensor, step: StepContext | None = None) -> tuple[Tensor, Tensor]:
        """Mask edges and ROIs.

        Shapes: X, A [B, P, P]; returns edge [B, P, P], node [B, P, 1].
        """
        mean = A / A.sum(-1, keepdim=True).clamp_min(1)
        H = self.embed(X)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            H = self.dropout(H + norm(layer(mean @ H), step).relu(), step)
        edges = list_edges(A, self.edge_share)
        edge = scatter_edges(self.edge(H, edges, step).sigmoid(), edges, A.shape[-1])
        return edge, self.node(H, step).sigmoid()


class DisCNetwork(EdgeNetwork):
    """Masks, two GINs on the two parts of the graph, two classifiers that read both parts.

    The gradient of each classifier reaches its own part only. The biased part is read at inference too.
    """

    def __init__(self, shape: InputShape, s: DisCSettings) -> None:
        super().__init__()
        self.masker = Masker(shape.n_rois, s)
        self.causal = GINEncoder(shape.n_rois, s.width, s.layers, s.dropout, norm_and_residual=True)
        self.bias = GINEncoder(shape.n_rois, s.width, s.layers, s.dropout, norm_and_residual=True)
        self.classify = nn.Linear(2 * s.width, 1)
        self.classify_bias = nn.Linear(2 * s.width, 1)

    def read_graphs(self, X: Tensor, A: Tensor, step: StepContext | None) -> DisCOutput | Output:
        edge, node = self.masker(X, A, step)
        z_c = self.causal(X * node, A * edge, step).mean(1)
        z_b = self.bias(X * (1 - node), A * (1 - edge), step).mean(1)

        def causal(z_b: Tensor) -> Tensor:
            return self.classify(torch.cat([z_c, z_b.detach()], -1)).squeeze(-1)

        def biased(z_b: Tensor) -> Tensor:
            return self.classify_bias(torch.cat([z_c.detach(), z_b], -1)).squeeze(-1)

        out = Output(causal(z_b), torch.cat([z_c, z_b], -1))
        if step is None:
            return out
        order = step.draw_permutation()
        other = z_b.index_select(0, order)
        return DisCOutput(*out, biased(z_b), causal(other), biased(other), order)


def generalised_cross_entropy(losses: Tensor, q: float) -> Tensor:
    """Weigh cross-entropies by q p_y^q, without its gradient (Zhang & Sabuncu 2018): easy scans count most.

    Shapes: losses [B]; returns [B].
    """
    return losses * q * (-q * losses.detach()).exp()


@method(
    "disc",
    family="graph OOD",
    provenance=follow_paper(
        "one difficulty weight for a whole batch instead of one for each sample. Ours is narrower: states of 64 units "
        "instead of 110, hidden layers of 32, 16 and 8 units instead of 110, 55 and 27 where edges are masked"
    ),
    reference="Fan et al. 2022",
)
class DisC(EdgeMethod):
    """Disentangle a causal from an easily learned biased subgraph, and swap the latter between scans."""

    Settings = DisCSettings
    settings: DisCSettings
    peak_matrices_per_scan = 170.0

    def network(self, shape: InputShape) -> nn.Module:
        return DisCNetwork(shape, self.settings)

    def stages(self) -> list[Stage]:
        s = self.settings
        swapping = max(1, round(s.swap_share * s.epochs))
        first = [Stage("disentangling", s.epochs - swapping, selectable=False)] if swapping < s.epochs else []
        return [*first, Stage("swapping", swapping)]

    def loss(self, out: DisCOutput, batch: Batch, state: RunState, stage: Stage) -> Tensor:
        """L_D + swap * L_G.

        Each is a cross-entropy of the causal branch, weighted by difficulty, and a generalised cross-entropy of the
        biased branch; L_G has swapped biased parts.
        """
        s, label = self.settings, batch.label
        causal, biased = bce(out.logit, label), bce(out.biased, label)
        difficulty = (biased / (biased + causal + 1e-8)).detach()
        loss = average_losses(difficulty * causal + generalised_cross_entropy(biased, s.q), batch)
        if stage.name == "swapping":
            causal, biased = bce(out.swapped, label), bce(out.swapped_biased, label[out.order])
            swapped = difficulty * causal + generalised_cross_entropy(biased, s.q)
            loss = loss + s.swap * average_losses(swapped, batch)
        return loss

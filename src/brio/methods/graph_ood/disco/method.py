"""DiSCO: network, losses and settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from torch import Tensor, nn

from ....domains import Domain, InnerShare, Layers, ShareBelowOne, Temperature, Weight, Width
from ....settings import setting
from ....spaces import choice
from ....training import Batch, InputShape, NeuralMethod, Output, RunState, Stage, StepContext
from ...edges import EdgeNetwork, EdgeSettings, GINEncoder, list_edges, scatter_edges
from ...losses import average_losses, bce
from ...provenance import reconstruct
from ...registry import method
from .experts import ExpertMasks, GraphExperts, keep_regions, sample_masks
from .gate import ExpertGate, gate_loss


@dataclass(frozen=True)
class DiSCOSettings(EdgeSettings):
    """Settings of DiSCO. Values are those of public code of its first author but for widths, which are smaller."""

    layers: Layers = 3  # GIN layers of the shared encoder, and of each expert
    dropout: ShareBelowOne = setting(0.5, choice(0.3, 0.5))
    experts: Annotated[int, Domain(2, 256)] = 8  # K; each has a mask of edges, GIN layers and a classifier of its own
    edge_width: Width = 4  # hidden width of each expert's edge MLP; small, since there are K of them on every edge
    expert_width: Width = 32  # width of each expert's GIN layers and of the hidden layer of its classifier
    gate_width: Width = 64  # hidden width of the gate
    keep: InnerShare = setting(0.575, choice(0.2, 0.575, 0.8))
    correlation: ShareBelowOne = 0.1  # tau, the mean correlation over pairs of masks above which they are penalised
    keep_weight: Weight = 5.0  # weights of the terms for the keep rate, for correlated masks and for the gate
    diversity: Weight = setting(1.0, choice(0.1, 0.5, 1.0))
    gate: Weight = 0.1
    sparsity: Weight = 0.1
    balance: Weight = 0.5
    first_choice: Weight = 0.1
    alpha: Annotated[float, Domain(1, 2, above=True, below=True)] = 1.38
    teacher_temperature: Temperature = 0.75  # temperature of the softmax of negative losses that teaches the gate
    warm_up: Annotated[int, Domain(0, 100_000)] = 9


class DiSCOOutput(NamedTuple):
    """Output in training."""

    logit: Tensor  # [B]
    representation: Tensor  # [B, K expert_width]
    expert_logit: Tensor  # [B, K]
    shares: Tensor  # [B, K] weight of each expert
    mask: Tensor  # [B, K, 2 M] 1 for edges that an expert keeps
    regions: Tensor  # [B, K, P] 1 for ROIs with a kept edge
    real: Tensor  # [B, 2 M] 1 for edges, 0 for empty entries


class DiSCONetwork(EdgeNetwork):
    """A shared GIN that scores edges, K experts on the input with masked edges, a gate over their predictions.

    The shared GIN sees the whole graph, and nothing but the masks passes from it to the experts. Masks are binary
    samples in training, and probabilities at inference.
    """

    def __init__(self, shape: InputShape, s: DiSCOSettings) -> None:
        super().__init__()
        self.edge_share = s.edge_share
        self.encoder = GINEncoder(shape.n_rois, s.width, s.layers, s.dropout)
        self.masks = ExpertMasks(s.width, s.experts, s.edge_width)
        self.experts = GraphExperts(shape.n_rois, s.experts, s.expert_width, s.layers, s.dropout)
        self.gate = ExpertGate(s.gate_width, s.alpha)

    def read_graphs(self, X: Tensor, A: Tensor, step: StepContext | None) -> DiSCOOutput | Output:
        edges = list_edges(A, self.edge_share)
        mask = sample_masks(self.masks(self.encoder(X, A, step), edges), step)
        masked = scatter_edges(mask, edges, A.shape[-1])
        regions = keep_regions(masked)
        pooled, scores = self.experts(X, masked, regions, step)
        shares = self.gate(scores, step)
        expert_logit = scores[..., 1] - scores[..., 0]
        out = Output((shares * expert_logit).sum(-1), pooled.flatten(1))
        if step is None:
            return out
        return DiSCOOutput(*out, expert_logit, shares, mask, regions, edges.real)


def excess_correlation(mask: Tensor, real: Tensor, tau: float) -> Tensor:
    """max(0, mean_{i != j} |corr(m_i, m_j)| - tau) over the items of each graph; a constant mask has correlation 0.

    Shapes: mask [B, K, N], real [B, N]; returns [B].
    """
    share = (real / real.sum(-1, keepdim=True).clamp_min(1)).unsqueeze(1)
    centred = (mask - (share * mask).sum(-1, keepdim=True)) * share.sqrt()
    unit = centred * (centred.square().sum(-1, keepdim=True) + 1e-8).rsqrt()
    K = mask.shape[1]
    off_diagonal = 1 - torch.eye(K, device=mask.device, dtype=mask.dtype)
    return (((unit @ unit.mT).abs() * off_diagonal).sum((-1, -2)) / (K * (K - 1)) - tau).relu()


def keep_rate_loss(mask: Tensor, real: Tensor, use: Tensor, keep: float) -> Tensor:
    """sum_k u_k (r_k - keep)^2, with r_k the share of the edges of a graph that expert k keeps.

    Shapes: mask [B, K, 2 M], real [B, 2 M], use [K]; returns [B].
    """
    rate = (mask * real.unsqueeze(1)).sum(-1) / real.sum(-1, keepdim=True).clamp_min(1)
    return (use * (rate - keep).square()).sum(-1)


@method(
    "disco",
    family="graph OOD",
    provenance=reconstruct(
        "from public summaries and reviews and, since version 2, after code of the first author (MoEOOD) that names no "
        "paper; ours are narrower layers, the batch norm of our GIN layers, expected masks and running statistics of "
        "the gate at inference, and one learning rate"
    ),
    reference="Sun et al. 2026",
)
class DiSCO(NeuralMethod):
    """Diverse and sparse mixture of experts, each on its own subgraph."""

    Settings = DiSCOSettings
    settings: DiSCOSettings
    version = 2
    peak_matrices_per_scan = 180.0

    def network(self, shape: InputShape) -> nn.Module:
        return DiSCONetwork(shape, self.settings)

    def stages(self) -> list[Stage]:
        s = self.settings
        warm = min(s.warm_up, s.epochs - 1)
        first = [Stage("warm-up", warm, selectable=False)] if warm else []
        return [*first, Stage("specialised", s.epochs - warm)]

    def loss(self, out: DiSCOOutput, batch: Batch, state: RunState, stage: Stage) -> Tensor:
        """Sum weighted cross-entropies of the experts, keep rate, diversity of the masks and the loss of the gate.

        While warming up, experts have equal weights and the gate only follows its own loss. Diversity is the mean of a
        term for edges and one for ROIs; masks of ROIs have no gradient.
        """
        s = self.settings
        losses = bce(out.expert_logit, batch.label.unsqueeze(-1).expand_as(out.expert_logit))  # [B, K]
        weights = torch.full_like(out.shares, 1 / s.experts) if stage.name == "warm-up" else out.shares
        use = (batch.weight.unsqueeze(-1) * weights).sum(0).detach()
        of_edges = excess_correlation(out.mask, out.real, s.correlation)
        of_regions = excess_correlation(out.regions, torch.ones_like(out.regions[:, 0]), s.correlation)
        total = (weights * losses).sum(-1) + s.diversity * (of_edges + of_regions) / 2
        total = total + s.keep_weight * keep_rate_loss(out.mask, out.real, use, s.keep)
        gate = gate_loss(out.shares, losses, batch, s.teacher_temperature, s.sparsity, s.balance, s.first_choice)
        return average_losses(total, batch) + s.gate * gate

"""DiSCO: several experts, each with its own subgraph, weighted by a sparse gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...settings import require, setting
from ...spaces import choice
from ...training import Batch, InputShape, NeuralMethod, Output, RunState, Scans, Stage, StepContext
from ..edges import (
    Edges,
    EdgeSettings,
    GINEncoder,
    add_ends,
    list_edges,
    sample_concrete,
    scatter_edges,
    straight_through,
)
from ..graphs import build_profiles, select_strong_edges
from ..layers import BatchNorm, Linear, build_mlp, linear
from ..losses import average_losses, bce
from ..registry import method, reconstruct

__all__ = ["DiSCO", "DiSCONetwork", "DiSCOSettings", "GraphExperts", "excess_correlation", "expert_imbalance"]


@dataclass(frozen=True)
class DiSCOSettings(EdgeSettings):
    """Settings of DiSCO. All values but ``experts`` are ours: the summaries this was written from give no weights.

    Attributes
    ----------
    experts : int
        K; each has a mask of edges, a GIN layer and a classifier of its own.
    edge_width : int
        Hidden width of each expert's edge MLP; small, since there are K of them on every edge.
    expert_width : int
        Width of each expert's GIN layer.
    keep : float
        rho, the share of the edges that a mask should keep.
    correlation : float
        tau, the correlation of two masks above which they are penalised.
    keep_weight, diversity, gate, sparsity, balance : float
        Weights of the terms for the keep rate, for correlated masks and for the gate, and, inside the latter, of its
        entropy and of uneven use of the experts.
    warm_up : float
        Share of the epochs, at the start, in which all experts have the same weight; no checkpoint of these is chosen.
    """

    experts: int = 8
    edge_width: int = 4
    expert_width: int = 32
    keep: float = setting(0.5, choice(0.3, 0.5, 0.7))
    correlation: float = 0.25
    keep_weight: float = 1.0
    diversity: float = setting(0.5, choice(0.1, 0.5, 1.0))
    gate: float = 0.1
    sparsity: float = 0.1
    balance: float = 0.1
    warm_up: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.experts >= 2, "experts", self.experts, "at least 2")
        require(self.expert_width >= 1, "expert_width", self.expert_width, "at least 1")
        require(0 < self.keep < 1, "keep", self.keep, "between 0 and 1")
        require(0 <= self.correlation < 1, "correlation", self.correlation, "0 or more and below 1")
        for name in ("keep_weight", "diversity", "gate", "sparsity", "balance"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "0 or more")
        require(0 <= self.warm_up < 1, "warm_up", self.warm_up, "0 or more and below 1")


class DiSCOOutput(NamedTuple):
    """Output in training."""

    logit: Tensor  # [B]
    representation: Tensor  # [B, K expert_width]
    expert_logit: Tensor  # [B, K]
    routing: Tensor  # [B, K] logarithm of the gate's weight of each expert
    keep: Tensor  # [B, K, M] probability that an expert keeps an edge
    real: Tensor  # [B, M] 1 for edges, 0 for empty entries


class ExpertMasks(nn.Module):
    """Logit of each edge for each of K experts: MLP(h_u || h_v) with one hidden layer, mean of both directions."""

    def __init__(self, n_in: int, experts: int, width: int) -> None:
        super().__init__()
        self.experts = experts
        self.receiver = Linear(n_in, experts * width)
        self.sender = Linear(n_in, experts * width, bias=False)
        self.weight = nn.Parameter(torch.empty(experts, width).uniform_(-1, 1) * width**-0.5)
        self.bias = nn.Parameter(torch.zeros(experts))

    def forward(self, H: Tensor, edges: Edges) -> Tensor:
        """Score edges from states H of ROIs. Shape [B, P, n_in] -> [B, K, M]."""
        hidden = add_ends(self.receiver(H), self.sender(H), edges).relu()
        hidden = hidden.unflatten(-1, (self.experts, -1))  # [B, 2 M, K, width]
        score = (hidden * self.weight).sum(-1).unflatten(1, (2, -1)).mean(1)
        return (score + self.bias).transpose(1, 2)


class GraphExperts(nn.Module):
    """A GIN layer and a linear classifier for each of K experts, side by side."""

    def __init__(self, n_in: int, experts: int, width: int) -> None:
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(experts, 1, 1))
        self.first = Linear(n_in, experts * width)
        self.norm = BatchNorm(experts * width)
        self.second = nn.Parameter(torch.empty(experts, width, width).uniform_(-1, 1) * width**-0.5)
        self.second_bias = nn.Parameter(torch.zeros(experts, 1, width))
        self.classify = nn.Parameter(torch.empty(experts, width).uniform_(-1, 1) * width**-0.5)
        self.bias = nn.Parameter(torch.zeros(experts))
        self.experts = experts

    def forward(self, H: Tensor, A: Tensor, step: StepContext | None = None) -> tuple[Tensor, Tensor]:
        """Encode and classify the masked graphs of all experts.

        The first linear map of the GIN layer is applied before the sum over neighbours, which is the same and cheaper.

        Parameters
        ----------
        H : Tensor, shape [B, P, n_in]
        A : Tensor, shape [B, K, P, P]
        step : StepContext or None

        Returns
        -------
        pooled : Tensor, shape [B, K, width]
        logit : Tensor, shape [B, K]
        """
        x = linear(H, self.first.weight).unflatten(-1, (self.experts, -1)).transpose(1, 2)  # [B, K, P, width]
        x = (1 + self.eps) * x + A @ x
        x = self.norm(x.transpose(1, 2).flatten(-2) + self.first.bias, step).relu()
        x = x.unflatten(-1, (self.experts, -1)).transpose(1, 2) @ self.second + self.second_bias
        pooled = x.relu().mean(2)
        return pooled, (pooled * self.classify).sum(-1) + self.bias


class DiSCONetwork(nn.Module):
    """A shared GIN, K masked copies of the graph, K experts on the shared ROI states, a gate over their logits.

    Masks are binary Gumbel-sigmoid samples in training (straight through), and probabilities at inference.
    """

    def __init__(self, shape: InputShape, s: DiSCOSettings) -> None:
        super().__init__()
        self.edge_share = s.edge_share
        self.encoder = GINEncoder(shape.n_rois, s.width, s.layers, s.dropout)
        self.masks = ExpertMasks(s.width, s.experts, s.edge_width)
        self.experts = GraphExperts(s.width, s.experts, s.expert_width)
        self.gate = build_mlp(3 * s.experts, 4 * s.experts, s.experts)

    def forward(self, scans: Scans, state: RunState, step: StepContext | None = None) -> DiSCOOutput | Output:
        """Compute logits and representations of scans; in training also what the loss reads.

        Parameters
        ----------
        scans : Scans
            Of B scans.
        state : RunState
            ``learned["mean"]``, shape [P, P], fills the edges of ROIs without signal.
        step : StepContext or None
            None at inference.
        """
        X, A = build_profiles(scans, state), select_strong_edges(scans)
        edges = list_edges(A, self.edge_share)
        H = self.encoder(X, A, step)
        logit = self.masks(H, edges)
        keep = logit.sigmoid()
        mask = keep if step is None else straight_through(sample_concrete(logit, step), 0.5)
        pooled, expert_logit = self.experts(H, scatter_edges(torch.cat([mask, mask], -1), edges, A.shape[-1]), step)
        routing = F.log_softmax(self.gate(_summarise_experts(expert_logit), step), -1)
        out = Output((routing.exp() * expert_logit).sum(-1), pooled.flatten(1))
        if step is None:
            return out
        return DiSCOOutput(*out, expert_logit, routing, keep, edges.real[:, : keep.shape[-1]])


def _summarise_experts(expert_logit: Tensor) -> Tensor:
    """Probability, confidence and entropy of each expert for the gate, without gradient. Shape [B, K] -> [B, 3 K]."""
    z = expert_logit.detach()
    p = z.sigmoid()
    entropy = F.softplus(z) - p * z
    return torch.cat([p, (p - 0.5).abs() * 2, entropy], -1)


def excess_correlation(keep: Tensor, real: Tensor, tau: float) -> Tensor:
    """1 / (K (K - 1)) sum_{i != j} max(0, |corr(m_i, m_j)| - tau) over the edges of each graph.

    Parameters
    ----------
    keep : Tensor, shape [B, K, M]
        Probabilities m. Samples would be independent of each other, however similar the masks are.
    real : Tensor, shape [B, M]
        1 for edges, 0 for empty entries.
    tau : float

    Returns
    -------
    Tensor, shape [B]
    """
    share = (real / real.sum(-1, keepdim=True).clamp_min(1)).unsqueeze(1)
    centred = (keep - (share * keep).sum(-1, keepdim=True)) * share.sqrt()
    unit = centred * (centred.square().sum(-1, keepdim=True) + 1e-8).rsqrt()
    K = keep.shape[1]
    off_diagonal = 1 - torch.eye(K, device=keep.device, dtype=keep.dtype)
    return (((unit @ unit.mT).abs() - tau).relu() * off_diagonal).sum((-1, -2)) / (K * (K - 1))


def expert_imbalance(shares: Tensor, batch: Batch) -> Tensor:
    """K sum_i u_i^2 - 1 for the use u_i of expert i in the batch.

    It is 0 if all experts are used equally, and K - 1 if only one is.

    Parameters
    ----------
    shares : Tensor, shape [B, K]
        Weights of the experts for each scan.
    batch : Batch

    Returns
    -------
    Tensor, scalar
    """
    use = (batch.weight.unsqueeze(-1) * shares).sum(0)
    return len(use) * use.square().sum() - 1


@method(
    "disco",
    family="graph OOD",
    provenance=reconstruct(
        "from public summaries and reviews, which leave out weights and widths; code of the first author (MoEOOD), "
        "found afterwards, has other experts, another gate and other weights"
    ),
    reference="Sun et al. 2026",
)
class DiSCO(NeuralMethod):
    """Diverse and sparse mixture of experts, each on its own subgraph."""

    Settings = DiSCOSettings
    settings: DiSCOSettings
    peak_matrices_per_scan = 90.0

    def network(self, shape: InputShape) -> nn.Module:
        return DiSCONetwork(shape, self.settings)

    def stages(self) -> list[Stage]:
        s = self.settings
        warm = min(round(s.warm_up * s.epochs), s.epochs - 1)
        first = [Stage("warm-up", warm, selectable=False)] if warm else []
        return [*first, Stage("specialised", s.epochs - warm)]

    def loss(self, out: DiSCOOutput, batch: Batch, state: RunState, stage: Stage) -> Tensor:
        """Sum gated cross-entropies of the experts, keep rate, diversity of the masks and, after warm-up, the gate.

        The teacher of the gate is the softmax of the negative losses of the experts.
        """
        s = self.settings
        losses = bce(out.expert_logit, batch.label.unsqueeze(-1).expand_as(out.expert_logit))  # [B, K]
        rate = (out.keep * out.real.unsqueeze(1)).sum(-1) / out.real.sum(-1).clamp_min(1).unsqueeze(-1)
        total = s.keep_weight * (rate - s.keep).square().mean(-1)
        total = total + s.diversity * excess_correlation(out.keep, out.real, s.correlation)
        if stage.name == "warm-up":
            return average_losses(losses.mean(-1) + total, batch)
        shares = out.routing.exp()
        teacher = F.log_softmax(-losses.detach(), -1)
        divergence = (shares * (out.routing - teacher)).sum(-1)
        entropy = -(shares * out.routing).sum(-1)
        total = total + (shares * losses).sum(-1) + s.gate * (divergence + s.sparsity * entropy)
        return average_losses(total, batch) + s.gate * s.balance * expert_imbalance(shares, batch)

"""Masks of edges, one for each expert, and experts that encode and classify their masked graphs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ....training import StepContext
from ...edges import Edges, add_ends, straight_through
from ...layers import BatchNorm, Dropout, Linear, linear

TEMPERATURE = 0.1
"""Of the relaxed samples of masks, whose gradient the binary masks have."""


class ExpertMasks(nn.Module):
    """Logit of each edge for each of K experts: MLP(h_u || h_v) with one hidden layer, an own one for each expert.

    Both directions of an edge have logits of their own.
    """

    def __init__(self, n_in: int, experts: int, width: int) -> None:
        super().__init__()
        self.experts = experts
        self.receiver = Linear(n_in, experts * width)
        self.sender = Linear(n_in, experts * width, bias=False)
        # in place, as in ExpertLinear: elsewhere than in memory ("meta") torch imports its compiler for a product
        self.weight = nn.Parameter(torch.empty(experts, width).uniform_(-1, 1).mul_(width**-0.5))
        self.bias = nn.Parameter(torch.zeros(experts))

    def forward(self, H: Tensor, edges: Edges) -> Tensor:
        """Score edges from states H of ROIs. Shape [B, P, n_in] -> [B, K, 2 M]."""
        hidden = add_ends(self.receiver(H), self.sender(H), edges).relu()
        hidden = hidden.unflatten(-1, (self.experts, -1))  # [B, 2 M, K, width]
        return ((hidden * self.weight).sum(-1) + self.bias).transpose(1, 2)


def sample_masks(logit: Tensor, step: StepContext | None = None) -> Tensor:
    """Draw binary masks with Gumbel noise in training; return the probability of an edge at inference.

    An edge is kept where logit + g > 0, with g = -log(-log u). Its probability is 1 - exp(-exp(logit)). The gradient is
    that of sigmoid((logit + g) / 0.1).

    Shapes: logit [B, ...]; returns [B, ...].
    """
    if step is None:
        return -torch.expm1(-logit.exp())
    gumbel = -(-step.draw_uniform(logit.shape, logit).log()).log()
    return straight_through(((logit + gumbel) / TEMPERATURE).sigmoid(), 0.5)


def keep_regions(A: Tensor) -> Tensor:
    """Compute which ROIs have a kept edge in either direction, without gradient.

    For probabilities of edges this is the probability of it, as masks of single edges are drawn independently.

    Shapes: A [..., P, P]; returns [..., P].
    """
    removed = 1 - A.detach()
    return 1 - removed.prod(-1) * removed.prod(-2)


class ExpertLinear(nn.Module):
    """A linear map without bias for each of K experts."""

    def __init__(self, n_in: int, n_out: int, experts: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, n_in, n_out).uniform_(-1, 1).mul_(n_in**-0.5))

    def forward(self, x: Tensor) -> Tensor:
        """Map states of each expert, [B, K, P, n_in], or states that all share, [B, P, n_in], to [B, K, P, n_out]."""
        if x.dim() == 4:
            return x @ self.weight
        joint = self.weight.transpose(1, 2).flatten(0, 1)  # one product for all experts
        return linear(x, joint).unflatten(-1, (len(self.weight), -1)).transpose(1, 2)


class ExpertGINLayer(nn.Module):
    """A GIN layer (:class:`~brio.methods.layers.GINLayer`) for each of K experts.

    The first linear map of the MLP is applied before the sum over neighbours, which is the same and, for the wide
    profiles of the input, cheaper.
    """

    def __init__(self, n_in: int, width: int, experts: int) -> None:
        super().__init__()
        self.experts = experts
        self.eps = nn.Parameter(torch.zeros(experts, 1, 1))
        self.first = ExpertLinear(n_in, width, experts)
        self.first_bias = nn.Parameter(torch.zeros(experts * width))
        self.norm = BatchNorm(experts * width)
        self.second = ExpertLinear(width, width, experts)
        self.second_bias = nn.Parameter(torch.zeros(experts, 1, width))

    def forward(self, x: Tensor, A: Tensor, step: StepContext | None = None, regions: Tensor | None = None) -> Tensor:
        """Update the states of the ROIs.

        Shapes: x [B, K, P, n_in], A [B, K, P, P], regions [B, K, P]; returns [B, K, P, width].
        """
        x = self.first(x)
        if regions is not None:
            x = x * regions.unsqueeze(-1)  # the same as a factor of the input, since the map has no bias
        x = ((1 + self.eps) * x + A @ x).transpose(1, 2).flatten(-2)
        x = self.norm(x + self.first_bias, step).relu()
        return self.second(x.unflatten(-1, (self.experts, -1)).transpose(1, 2)) + self.second_bias


class GraphExperts(nn.Module):
    """K experts side by side, each with GIN layers, a mean over ROIs and an MLP with two scores, one for each class."""

    def __init__(self, n_in: int, experts: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        widths = [n_in, *[width] * (layers - 1)]
        self.layers = nn.ModuleList(ExpertGINLayer(w, width, experts) for w in widths)
        self.dropout = Dropout(dropout)
        self.hidden = ExpertLinear(width, width, experts)
        self.hidden_bias = nn.Parameter(torch.zeros(experts, 1, width))
        self.classify = ExpertLinear(width, 2, experts)
        self.classify_bias = nn.Parameter(torch.zeros(experts, 1, 2))

    def forward(self, X: Tensor, A: Tensor, regions: Tensor, step: StepContext | None = None) -> tuple[Tensor, Tensor]:
        """Encode and classify the masked graphs of all experts.

        Shapes: X [B, P, n_in], A [B, K, P, P], regions [B, K, P]; returns pooled [B, K, width], scores [B, K, 2].
        """
        x = X
        for number, layer in enumerate(self.layers):
            x = self.dropout(layer(x, A, step, regions if number == 0 else None).relu(), step)
        pooled = x.mean(2)
        hidden = (self.hidden(pooled.unsqueeze(2)) + self.hidden_bias).relu()
        return pooled, (self.classify(hidden) + self.classify_bias).squeeze(2)

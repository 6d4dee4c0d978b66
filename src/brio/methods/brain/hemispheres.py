"""Encoder of single scans in FC-HGNN: convolution within hemispheres and over the whole brain, two-channel pooling."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...training import RunState, Scans, StepContext
from ..graphs import build_profiles, normalise_adjacency
from ..layers import Dropout, GCNLayer


class HemisphereLayer(nn.Module):
    """Graph convolution within each hemisphere, with weights of its own; midline ROIs become zero."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.left, self.right = GCNLayer(n_in, n_out), GCNLayer(n_in, n_out)

    def forward(self, H: Tensor, within: Tensor, side: Tensor) -> Tensor:
        """Convolve the states of ROIs.

        Shapes: H [B, P, n_in], within [B, P, P], side [P]; returns [B, P, n_out].
        """
        left, right = ((side == s).to(H.dtype).unsqueeze(-1) for s in (-1, 1))
        return left * F.leaky_relu(self.left(H, within)) + right * F.leaky_relu(self.right(H, within))


class ChebLayer(nn.Module):
    """Chebyshev convolution sum_k T_k(L) H W_k + b (Defferrard et al. 2016), L = -D^-1/2 A D^-1/2."""

    def __init__(self, n_in: int, n_out: int, order: int) -> None:
        super().__init__()
        self.order = order
        self.mix = nn.Linear(order * n_in, n_out)

    def forward(self, H: Tensor, A: Tensor) -> Tensor:
        """Convolve the states of ROIs.

        Shapes: H [B, P, n_in], A [B, P, P]; returns [B, P, n_out].
        """
        degree = A.sum(-1, keepdim=True)
        root = torch.where(degree > 0, degree.clamp_min(1e-12).rsqrt(), torch.zeros_like(degree))
        terms = [H]
        for k in range(1, self.order):
            product = -root * (A @ (root * terms[-1]))
            terms.append(product if k == 1 else 2 * product - terms[-2])
        return self.mix(torch.cat(terms, -1))


class ScanEncoder(nn.Module):
    """Convolution within hemispheres and over the whole brain, then pooling by two channels.

    The local channel selects the ROIs of highest score and weighs them by it (SAGPool, Lee et al. 2019). The global
    channel assigns ROIs softly to clusters. A selected ROI adds the features of its clusters, weighted by its
    assignment. Dropped ROIs leave zeros, so that every other ROI keeps its position when the graph is flattened.
    """

    def __init__(
        self,
        n_rois: int,
        width: int,
        state: int,
        *,
        alpha: float,
        kept_share: float,
        cluster_share: float,
        dropout: float,
    ) -> None:
        super().__init__()
        self.alpha = alpha
        self.n_selected = max(1, math.ceil(kept_share * n_rois - 1e-9))
        self.first, self.second = HemisphereLayer(n_rois, width), HemisphereLayer(width, state)
        self.whole = GCNLayer(state, state)
        self.score_own, self.score_near = nn.Linear(state, 1), nn.Linear(state, 1, bias=False)
        self.assign = ChebLayer(state, max(2, math.ceil(cluster_share * n_rois - 1e-9)), 3)
        self.dropout = Dropout(dropout)

    def forward(self, scans: Scans, state: RunState, step: StepContext | None = None) -> Tensor:
        """Encode scans.

        Shapes: returns [B, P * width of a state].
        """
        strength, side = scans.A.abs(), state.learned["side"]
        edges = (strength > self.alpha).to(strength.dtype)
        weights = edges * strength
        within = normalise_adjacency(weights * (side[:, None] * side == 1).to(weights.dtype))
        H = self.first(self.dropout(build_profiles(scans, state), step), within, side)
        H = self.second(self.dropout(H, step), within, side)
        H = F.leaky_relu(self.whole(H, normalise_adjacency(weights)))
        local, selected = self.pool_locally(H, edges)
        assignment = self.assign(H, edges).softmax(-1)
        clusters = assignment.transpose(-1, -2) @ H
        return (selected * (local + assignment @ clusters)).flatten(1)

    def pool_locally(self, H: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        """Weigh ROIs by their score, and select those of highest score.

        Shapes: H [B, P, d], edges [B, P, P]; returns local [B, P, d], selected [B, P, 1].
        """
        score = (self.score_own(H) + edges @ self.score_near(H)).tanh()
        rank = score.detach().squeeze(-1).argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
        return score * H, (rank < self.n_selected).to(H.dtype).unsqueeze(-1)

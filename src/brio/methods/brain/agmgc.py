"""AGMGC: adaptive graph learning with convolution over several graphs, including a learned and a correlation graph."""

import math
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from msgspec import Meta
from torch import Tensor, nn
from torch.nn import functional as F

from ...settings import Temperature, Weight, choice, setting
from ...training import Batch, InputShape, Scans, StepContext
from .. import layers
from ..registry import method, reconstruct


@dataclass(frozen=True)
class AGMGCSettings(layers.GraphSettings):
    """Settings of AGMGC.

    Attributes
    ----------
    spline_kernel : int
        Number of knots of the spline over the edge weight.
    contrast_weight : float
        Weight of the contrastive loss between the representations of a scan from the two graphs.
    temperature : float
        Temperature of the contrastive loss.
    """

    weight_decay: Weight = 5e-4
    spline_kernel: Annotated[int, Meta(ge=2, le=100)] = 5
    contrast_weight: Weight = setting(0.1, choice(0.03, 0.1, 0.3))
    temperature: Temperature = 0.5


class AGMGCOutput(NamedTuple):
    """An :class:`~brio.training.Output`, and the representation of each scan by each graph alone."""

    logit: Tensor  # [B]
    representation: Tensor  # [B, 2 width]
    learned: Tensor  # [B, width]
    correlation: Tensor  # [B, width]


class AttentionGraph(nn.Module):
    """A graph learned from the states of ROIs: the strongest edges of softmax(ReLU(Q K^T / sqrt(d))), symmetric."""

    def __init__(self, width: int, edge_share: float) -> None:
        super().__init__()
        self.query, self.key = layers.Linear(width, width, bias=False), layers.Linear(width, width, bias=False)
        self.edge_share = edge_share

    def forward(self, H: Tensor, alive: Tensor) -> Tensor:
        """Compute the graph of each scan.

        Each ROI keeps the strongest share of its partners, and those that tie with the weakest of these.

        Shapes: H [B, P, d], alive [B, P]; returns [B, P, P].
        """
        n_rois, width = H.shape[-2:]
        score = (self.query(H) @ self.key(H).transpose(-1, -2) / math.sqrt(width)).relu()
        other = ~torch.eye(n_rois, dtype=torch.bool, device=H.device)
        linked = (alive.unsqueeze(-1) & alive.unsqueeze(-2)) & other
        weight = torch.where(linked, score, torch.full_like(score, -1e9)).softmax(-1) * linked.to(H.dtype)
        keep = max(1, math.ceil(self.edge_share * (n_rois - 1) - 1e-9))
        weakest = weight.detach().topk(keep, dim=-1).values[..., -1:]
        weight = torch.where(weight.detach() >= weakest, weight, torch.zeros_like(weight))
        return (weight + weight.transpose(-1, -2)) / 2


class SplineLayer(nn.Module):
    """Convolution whose kernel is a spline over the edge weight (SplineCNN, Fey et al. 2018), degree 1.

    h_u <- mean over neighbours v of sum_k b_k(w_uv) h_v Theta_k, plus h_u Theta_root and a bias. The degree-1 basis
    is a row of hat functions b_k, so that each of them is one masked matrix.
    """

    def __init__(self, n_in: int, n_out: int, kernel: int) -> None:
        super().__init__()
        # in place, since elsewhere than in memory ("meta") torch imports its compiler for a quotient
        self.weight = nn.Parameter(torch.empty(kernel, n_in, n_out).uniform_(-1, 1).div_(math.sqrt(n_in)))
        self.root = layers.Linear(n_in, n_out)

    def forward(self, H: Tensor, position: Tensor, edges: Tensor) -> Tensor:
        """Convolve the states of ROIs.

        Shapes: H [B, P, n_in], position [B, P, P], edges [B, P, P]; returns [B, P, n_out].
        """
        kernel = len(self.weight)
        knots = torch.arange(kernel, device=H.device, dtype=H.dtype)
        share = edges / edges.sum(-1, keepdim=True).clamp_min(1)
        hats = (1 - ((kernel - 1) * position.unsqueeze(-3) - knots[:, None, None]).abs()).relu() * share.unsqueeze(-3)
        messages = H.unsqueeze(-3) @ self.weight  # [B, K, P, n_out]
        return (hats @ messages).sum(-3) + self.root(H)


class MultiGraphLayer(nn.Module):
    """Sum the messages A_g H W_g of several graphs g; batch norm and ReLU follow."""

    def __init__(self, n_in: int, n_out: int, n_graphs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_graphs, n_in, n_out))
        for weight in self.weight:
            nn.init.xavier_uniform_(weight)
        self.norm = layers.BatchNorm(n_out)

    def forward(
        self, H: Tensor, graphs: list[Tensor | None], step: StepContext | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Update the states of ROIs.

        Shapes: H [B, P, n_in], graphs [B, P, P]; returns state [B, P, n_out], messages [B, P, n_out].
        """
        messages = [H @ W if A is None else A @ (H @ W) for A, W in zip(graphs, self.weight.unbind(0), strict=True)]
        return self.norm(sum(messages[1:], messages[0]), step).relu(), messages


def normalise_without_loops(adjacency: Tensor) -> Tensor:
    """Compute D^-1/2 A D^-1/2. Shape [..., P, P] in and out.

    There are no self-loops, because the state of the ROI itself has its own weight matrix.
    """
    degree = adjacency.sum(-1)
    root = torch.where(degree > 0, degree.clamp_min(1e-12).rsqrt(), torch.zeros_like(degree))
    return root.unsqueeze(-1) * adjacency * root.unsqueeze(-2)


def compute_spline_position(A: Tensor, edges: Tensor) -> Tensor:
    """Scale the signed weights of each scan's edges so that the lowest becomes 0 and the highest 1.

    Shapes: A [B, P, P], edges [B, P, P]; returns [B, P, P].
    """
    low = torch.where(edges > 0, A, torch.full_like(A, torch.inf)).amin((-1, -2), keepdim=True)
    high = torch.where(edges > 0, A, torch.full_like(A, -torch.inf)).amax((-1, -2), keepdim=True)
    has_range = high > low  # not so without edges, or where all edges have the same weight
    span = torch.where(has_range, high - low, torch.ones_like(low))
    low = torch.where(has_range, low, torch.zeros_like(low))
    return ((A - low) / span).clamp(0, 1)


class AGMGCNetwork(nn.Module):
    """Embedding, spline convolution, layers over three graphs, mean and maximum as readout, an MLP as classifier."""

    def __init__(self, shape: InputShape, s: AGMGCSettings) -> None:
        super().__init__()
        self.embed = layers.Linear(shape.n_rois, s.width)
        self.learner = AttentionGraph(s.width, s.edge_share)
        self.spline = SplineLayer(s.width, s.width, s.spline_kernel)
        self.spline_norm = layers.BatchNorm(s.width)
        self.layers = nn.ModuleList(MultiGraphLayer(s.width, s.width, 3) for _ in range(s.layers))
        self.project = layers.build_mlp(s.width, s.width, s.width)
        self.dropout = layers.Dropout(s.dropout)
        self.classify = layers.build_mlp(2 * s.width, s.width, 1, dropout=s.dropout)

    def forward(self, scans: Scans, step: StepContext | None = None) -> AGMGCOutput:
        """Compute logits and representations of scans, and those of each graph alone."""
        edges = layers.select_strong_edges(scans)
        H = self.embed(layers.build_profiles(scans))
        learned = normalise_without_loops(self.learner(H, scans.alive))
        correlation = normalise_without_loops(edges * scans.A.abs())
        H = self.spline(H, compute_spline_position(scans.A, edges), edges)
        H = self.dropout(self.spline_norm(H, step).relu(), step)
        for layer in self.layers:
            H, messages = layer(H, [learned, correlation, None], step)
        pooled = torch.cat([H.mean(1), H.amax(1)], -1)
        views = (self.project(message.mean(1), step) for message in messages[:2])
        return AGMGCOutput(self.classify(self.dropout(pooled, step), step).squeeze(-1), pooled, *views)


def nt_xent(first: Tensor, second: Tensor, batch: Batch, temperature: float) -> Tensor:
    """NT-Xent (Chen et al. 2020): cross-entropy of identifying the other view of a scan among all views of the batch.

    Scans that pad the stack are not candidates and have no weight.

    Shapes: first, second [B, d].
    """
    n = len(first)
    views = F.normalize(torch.cat([first, second]), dim=-1)
    candidate = batch.real.repeat(2) * (1 - torch.eye(2 * n, device=views.device, dtype=views.dtype))
    score = views @ views.T / temperature
    log_share = torch.where(candidate > 0, score, torch.full_like(score, -1e9)).log_softmax(-1)
    identified = (log_share[:n, n:].diagonal() + log_share[n:, :n].diagonal()) / 2
    return -(batch.weight * torch.where(batch.real > 0, identified, torch.zeros_like(identified))).sum()


@method(
    "agmgc",
    family="brain networks",
    reference="Noman et al., AGMGC, MICCAI 2025",
    provenance=reconstruct(
        "based on the abstract alone; the code it refers to could not be found; all layer sizes are our choice"
    ),
)
class AGMGC(layers.Classifier):
    """Spline and multi-graph convolution on a learned graph and a correlation graph, aligned by a contrastive loss."""

    settings: AGMGCSettings
    network_class = AGMGCNetwork
    peak_matrices_per_scan = 60.0

    def loss(self, out: AGMGCOutput, batch: Batch) -> Tensor:
        """Cross-entropy + contrast_weight * NT-Xent."""
        contrast = nt_xent(out.learned, out.correlation, batch, self.settings.temperature)
        return layers.classification_loss(out.logit, batch) + self.settings.contrast_weight * contrast

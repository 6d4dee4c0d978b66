"""BrainOOD: a feature mask shared by all scans, a reconstruction, and sampled edges aligned over the batch."""

import itertools
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from msgspec import Meta
from torch import Tensor, nn
from torch.nn import functional as F

from ...settings import InnerShare, LearningRate, ShareBelowOne, Weight, choice, setting
from ...training import Batch, InputShape, Output, StepContext
from ..edges import scorer
from ..edges.scorer import EdgeMethod, EdgeMLP, EdgeNetwork, Edges, EdgeSettings
from ..layers import BatchNorm, Chain, Dropout, GINLayer, average_losses, classification_loss, linear
from ..registry import follow_code, method, variant


@dataclass(frozen=True)
class BrainOODSettings(EdgeSettings):
    """Settings of BrainOOD; defaults are those of its published configuration for ABIDE unless stated otherwise.

    Attributes
    ----------
    rounds : int
        Number of edge masks drawn for each scan and step; the logits computed with them are averaged.
    feature_dropout : float
        Dropout inside the feature mask.
    reconstruction, alignment, entropy : float
        Weights of the reconstruction error (``reconstruction``), the spread of edge logits over the batch
        (``alignment``), and the entropy of the feature mask (``entropy``).
    information : float
        Weight of the information bottleneck: 0 in the published configuration, although the paper describes it.
    final_r : float
        Final value of the share of edges that the prior of the bottleneck keeps.
    """

    learning_rate: LearningRate = setting(2e-3, choice(3e-4, 1e-3, 2e-3))
    dropout: ShareBelowOne = setting(0.5, choice(0.2, 0.5))
    rounds: Annotated[int, Meta(ge=1, le=100)] = 5
    feature_dropout: ShareBelowOne = 0.2
    reconstruction: Weight = setting(0.5, choice(0.5, 10.0))
    alignment: Weight = setting(0.1, choice(0.01, 0.1, 1.0))
    entropy: Weight = 0.01
    information: Weight = 0.0
    final_r: InnerShare = 0.5


class BrainOODOutput(NamedTuple):
    """Output in training."""

    logit: Tensor  # [B]
    representation: Tensor  # [B, width]
    error: Tensor  # [B] of the reconstruction
    entropy: Tensor  # scalar, of the feature mask
    edge_logit: Tensor  # [B, P, P], 0 where there is no edge
    edge_sample: Tensor  # [B, 2 M] relaxed sample of each edge
    edges: Edges


class EarlyGINLayer(GINLayer):
    """GIN layer whose first linear map is applied before the sum over neighbours: the same function, cheaper."""

    def forward(self, H: Tensor, A: Tensor, step: StepContext | None = None) -> Tensor:
        """Update the states of ROIs. Shapes: H [B, ..., P, n_in], A [B, ..., P, P]; returns [B, ..., P, n_out]."""
        first = self.update[0]
        assert isinstance(first, nn.Linear)
        return self.update[1:](self.mix(linear(H, first.weight), A) + first.bias, step)

    def mix(self, x: Tensor, A: Tensor) -> Tensor:
        """Add to each ROI the messages of its neighbours. Shape [B, ..., P, d] in and out."""
        return (1 + self.eps) * x + A @ x


class HighPassLayer(EarlyGINLayer):
    """GIN layer on the difference of an ROI from its neighbourhood: MLP(h_u - [(1 + eps) h_u + sum_v a_uv h_v])."""

    def mix(self, x: Tensor, A: Tensor) -> Tensor:
        """Subtract from each ROI what a GIN layer would compute for it. Shape [B, ..., P, d] in and out."""
        return x - super().mix(x, A)


class VirtualGIN(nn.Module):
    """GIN with a virtual node that receives from all ROIs and is added to each before every layer except the first."""

    def __init__(
        self, n_in: int, width: int, layers: int, dropout: float, layer: type[EarlyGINLayer] = EarlyGINLayer
    ) -> None:
        super().__init__()
        widths = [n_in, *[width] * layers]
        self.layers = nn.ModuleList(layer(a, b) for a, b in itertools.pairwise(widths))
        self.norms = nn.ModuleList(BatchNorm(b) for b in widths[1:])
        self.dropout = Dropout(dropout)
        self.virtual = nn.Parameter(torch.randn(width))
        self.update_virtual: Chain | None = None  # with two layers the virtual node is only read once, at its start
        if layers > 2:
            wide, narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
            self.update_virtual = Chain(wide, BatchNorm(2 * width), nn.ReLU(), narrow, BatchNorm(width), nn.ReLU())

    def forward(self, X: Tensor, A: Tensor, step: StepContext | None = None) -> Tensor:
        """Encode the ROIs of graphs; there is no ReLU after the last layer.

        Shapes: X [B, P, n_in] or [B, 1, P, n_in], A [B, ..., P, P]; returns [B, ..., P, width].
        """
        H, virtual, last = X, self.virtual, len(self.layers) - 1
        for number, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            H = norm(layer(H + virtual if number else H, A, step), step)
            H = self.dropout(H.relu() if number < last else H, step)
            if self.update_virtual is not None and 0 < number < last:
                total = H.sum(-2, keepdim=True)
                virtual = self.dropout(self.update_virtual(total + virtual, step), step)
        return H


class BrainOODNetwork(EdgeNetwork):
    """Mask the features, encode, score and sample edges, encode again over the sampled graphs, average, classify.

    Features are correlations with ones on the diagonal, as published, so that tanh can reconstruct them. At inference
    the probabilities of edges replace the samples (the published code samples there too).
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

    def read_graphs(self, X: Tensor, A: Tensor, step: StepContext | None) -> BrainOODOutput | Output:
        p = A.shape[-1]
        M = self.feature_dropout((self.feature @ self.feature.T).sigmoid(), step)
        X = M * (X.tanh() + torch.eye(p, device=A.device, dtype=A.dtype))
        H = self.encoder(X, A, step)
        edges = scorer.list_edges(A, self.edge_share)
        edge_logit = self.score(H, edges, step)
        edge_sample = scorer.sample_concrete(edge_logit, step)
        if step is None:
            pooled = self.encoder(X, scorer.scatter_edges(scorer.average_directions(edge_sample), edges, p)).mean(-2)
            return Output(self.classify(pooled).squeeze(-1), pooled)
        masks = self._draw_masks(scorer.average_directions(edge_sample), step)
        pooled = self.encoder(X.unsqueeze(1), scorer.scatter_edges(masks, edges, p), step).mean(
            (1, 2)
        )  # over rounds and ROIs
        R = self.reconstruct(H, A, step)
        error = ((R @ R.mT).tanh() * M - X).square().mean((-1, -2))
        row = F.log_softmax(M, -1)
        entropy = -(row.exp() * row).sum(-1).mean()
        logit = self.classify(pooled).squeeze(-1)
        return BrainOODOutput(
            logit, pooled, error, entropy, scorer.scatter_edges(edge_logit, edges, p), edge_sample, edges
        )

    def _draw_masks(self, probability: Tensor, step: StepContext) -> Tensor:
        """Draw binary masks, the same in both directions. Shape [B, 2 M] -> [B, rounds, 2 M]."""
        n_graphs, both = probability.shape
        u = step.draw_uniform((n_graphs, self.rounds, both // 2), probability)
        return scorer.straight_through(probability.unsqueeze(1), torch.cat([u, u], -1))


def logit_spread(edge_logit: Tensor, batch: Batch) -> Tensor:
    """Standard deviation of each edge's logit over the scans of the batch, mean over all pairs of ROIs.

    Shapes: edge_logit [B, P, P].
    """
    count = batch.real.sum()
    share = (batch.real / count)[:, None, None]
    mean = (share * edge_logit).sum(0)
    variance = (share * (edge_logit - mean).square()).sum(0) * count / (count - 1).clamp_min(1)
    return (variance + 1e-12).sqrt().mean()


@method(
    "brainood",
    family="brain networks",
    provenance=follow_code(
        "states have 64 units instead of 100, and the MLP that scores edges has hidden layers of 32 and 8 units "
        "instead of 400 and 100, which need 150 times as much computation per edge; width=100 and edge_width=100 "
        "restore the published sizes. At inference, masks are expected values instead of samples"
    ),
    reference="Xu et al. 2025",
)
class BrainOOD(EdgeMethod):
    """Masked features and sampled edges with consistent scores, and reconstruction by a high-pass graph network."""

    settings: BrainOODSettings
    network_class = BrainOODNetwork
    training_only = ("reconstruct",)
    peak_matrices_per_scan = 180.0

    def loss(self, out: BrainOODOutput, batch: Batch) -> Tensor:
        """Sum cross-entropy, reconstruction error, spread of edge logits, mask entropy and the bottleneck."""
        s = self.settings
        loss = (
            classification_loss(out.logit, batch)
            + s.reconstruction * average_losses(out.error, batch)
            + s.alignment * logit_spread(out.edge_logit, batch)
            + s.entropy * out.entropy
        )
        if s.information > 0:
            r = scorer.schedule_keep_rate(batch.epoch, s.epochs, s.final_r)
            loss = loss + s.information * average_losses(scorer.bernoulli_kl(out.edge_sample, out.edges, r), batch)
        return loss


variant("brainood-kl", BrainOOD, "BrainOOD with the information bottleneck of its paper switched on.", information=1.0)

"""XG-GNN: a connectome learned from BOLD, trained over episodes of source sites.

Its objective mixes scans within a site, looks one step ahead on meta-training sites, and compares maps of class
differences between meta-test sites.
"""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from msgspec import Meta
from torch import Tensor, nn

from ...settings import Count, Heads, LearningRate, ShareBelowOne, Weight, Width, choice, log_uniform, require, setting
from ...training import Batch, InputShape, NetworkCall, Scans, StepContext, Tensors
from ..layers import BatchNorm, Chain, Dropout, Linear, average_by_site, bce, build_profiles
from ..registry import follow_code, follow_paper, method, variant
from .deci import BoldMethod, BoldSettings, CourseEncoder, average_windows, repeat_for_windows, split_windows


def split_episode(draw: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Split the source sites at random into meta-training (half of them, rounded down) and meta-test sites.

    A single source site is both.

    Shapes: draw [E], real [E]; returns [E].
    """
    rank = torch.argsort(torch.argsort(draw + 2.0 * (1.0 - real), stable=True), stable=True)
    count = real.sum()
    train = real * (rank < torch.floor(count / 2).clamp_min(1)).to(real.dtype)
    return train, torch.where(count > 1, real - train, real)


def pair_within_sites(draw: Tensor, site: Tensor) -> Tensor:
    """Pair each scan with a scan from its own site, by a random order of the scans of each site.

    Shapes: draw [B], site [B]; returns [B].
    """
    return torch.argsort(draw + 2.0 * site, stable=True)


def mix_scans(scans: Scans, label: Tensor, partner: Tensor, share: Tensor) -> tuple[Scans, Tensor]:
    """Mix scans and labels with those of their partners (mixup, Zhang et al. 2018).

    Edges of ROIs without signal are filled before connectomes are mixed, so the network fills nothing in a mixture.

    Shapes: label [B], partner [B], share [B]; returns label [B].
    """

    def mix(x: Tensor) -> Tensor:
        own = share.view(-1, *[1] * (x.dim() - 1))
        return own * x + (1 - own) * x[partner]

    A, alive = mix(build_profiles(scans)), mix(scans.alive.to(scans.A.dtype))
    return scans._replace(A=A, alive=alive, bold=mix(scans.bold)), mix(label)


def compute_difference_maps(learned: Tensor, label: Tensor, cells: tuple[int, int, int]) -> Tensor:
    """Compute a map of the class differences between learned connectomes at each site.

    The map is |mean of class 0 - mean of class 1| with each column standardised, passed through a sigmoid. A mixed scan
    belongs to both classes, weighted by its label.

    Shapes: learned [B, P, P], label [B]; returns [E, P, P].
    """
    n_sites = cells[0]
    y = label.reshape(n_sites, -1)
    m = learned.reshape(n_sites, -1, learned[0].numel())
    one, zero = (((w / w.sum(1, keepdim=True)).unsqueeze(1) @ m).squeeze(1) for w in (y, 1 - y))
    D = (one - zero).abs().unflatten(-1, learned.shape[1:])
    centred = D - D.mean(-2, keepdim=True)
    variance = centred.square().sum(-2, keepdim=True) / (D.shape[-2] - 1)
    return (centred * (variance + 1e-12).rsqrt()).sigmoid()


def map_entropy(S: Tensor) -> Tensor:
    """Sum over the rows of a map of -g log g, with g the geometric mean of the row. Shape [E, P, P] -> [E]."""
    log = (S + 1e-10).log().mean(-1)
    return -(log.exp() * log).sum(-1)


def dice_gap(S: Tensor) -> Tensor:
    """1 - Dice of the maps of every two sites. Shape [E, P, P] -> [E, E]."""
    flat = S.flatten(1)
    size = flat.sum(1)
    return 1 - 2 * (flat @ flat.T) / (size[:, None] + size + 1e-8)


def self_dice_gap(S: Tensor) -> Tensor:
    """1 - Dice of a map with itself, averaged over the two sites of every pair. Shape [E, P, P] -> [E, E].

    The published code compares one of the two maps with itself: the one that comes later in a random order.
    """
    flat = S.flatten(1)
    gap = 1 - 2 * flat.square().sum(1) / (2 * flat.sum(1) + 1e-8)
    return 0.5 * (gap[:, None] + gap)


@dataclass(frozen=True)
class XGSettings(BoldSettings):
    """Settings of XG-GNN.

    Attributes
    ----------
    embedding, kernel : int
        Width of the embedding of each ROI's time course, and length of the first convolution in frames.
    heads : int
        Number of heads in the self-attention between ROIs, among which the embedding is divided.
    dropout : float
        Share of the hidden values dropped in training.
    inner_rate : float
        Learning rate of the look-ahead step on the meta-training sites.
    sparsity, consistency : float
        Weights of two loss terms: the entropy of the class-difference map of a site (``sparsity``), and the difference
        between the maps of two sites (``consistency``).
    mixup : bool
        Whether to mix scans of a site with each other, with shares drawn for each site and step.
    published : bool
        Whether to follow the published code where it differs from its paper. See :class:`XGNetwork`.
    """

    learning_rate: LearningRate = setting(1e-3, choice(3e-4, 1e-3, 3e-3))
    embedding: Width = 8
    kernel: Count = 4
    heads: Heads = 4
    dropout: ShareBelowOne = setting(0.5, choice(0.2, 0.5))
    inner_rate: Annotated[float, Meta(ge=0, le=10)] = setting(1e-3, choice(3e-4, 1e-3, 3e-3))
    sparsity: Weight = 1e-4
    consistency: Weight = setting(0.01, log_uniform(0.001, 1.0))
    mixup: bool = True
    published: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.embedding % self.heads == 0, "embedding", self.embedding, "a multiple of heads")
        require(self.kernel <= self.bold_frames, "kernel", self.kernel, "at most bold_frames")


class XGOutput(NamedTuple):
    """Output of XG-GNN."""

    logit: Tensor  # [B]
    representation: Tensor  # [B, d]
    learned: Tensor  # [B, P, P] the learned connectome m; empty outside training


class ConnectomeLearner(nn.Module):
    """Self-attention between ROIs; the learned connectome is m = v v', where v is the output of the attention.

    Attention alone is the mean of nearly equal embeddings with nearly equal weights. At the start it gives every ROI
    the same v to the last bit of float32, and m is constant. The usual residual connection, v = x + attention(x), keeps
    the differences of the embeddings x.
    """

    def __init__(self, width: int, heads: int, published: bool = False) -> None:
        super().__init__()
        self.heads, self.published = heads, published
        self.query, self.key = Linear(width, width), Linear(width, width)
        self.value = None if published else Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Compute connectomes from embeddings of ROIs. Shape [B, P, d] -> [B, P, P]."""
        layers = (self.query, self.key, self.value or self.key)
        query, key, value = (layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in layers)
        attention = (query @ key.transpose(-1, -2) * x.shape[-1] ** -0.5).softmax(-1)  # [B, heads, P, P]
        v = (attention @ value).transpose(1, 2).flatten(-2)
        v = v if self.published else x + v
        return v @ v.transpose(-1, -2)


class XGNetwork(nn.Module):
    """Learn a connectome m from embeddings of BOLD, then update connection profiles three times.

    An update is x <- MLP(x + m x / P): an ROI keeps its own profile and adds the mean message of all ROIs. Without the
    first term a nearly constant m gives all ROIs the same profile. The published code computes x_u <- MLP(x_u sum_v
    m_uv) instead: it rescales each ROI and passes no message. It also hands two sigmoids to the cross-entropy as if
    they were logits, so that the margin is their difference.

    The embedding of an ROI is averaged over the BOLD windows of its scan.
    """

    def __init__(self, shape: InputShape, s: XGSettings) -> None:
        super().__init__()
        P = shape.n_rois
        self.bold_windows, self.published = s.bold_windows, s.published
        self.courses = CourseEncoder(shape.n_frames // s.bold_windows, s.embedding, s.kernel)
        self.learner = ConnectomeLearner(s.embedding, s.heads, s.published)
        self.first = Chain(Linear(P, P), nn.LeakyReLU(0.2), Linear(P, P), BatchNorm(P))
        self.second = Chain(Linear(P, P), nn.LeakyReLU(0.2), BatchNorm(P))
        self.third = Chain(Linear(P, 64), nn.LeakyReLU(0.2), Linear(64, 8), nn.LeakyReLU(0.2), Dropout(s.dropout))
        self.norm = BatchNorm(P)
        self.read = nn.Sequential(Linear(8 * P, 256), nn.LeakyReLU(0.2), Linear(256, 32), nn.LeakyReLU(0.2))
        self.classify = Linear(32, 2 if s.published else 1)

    def forward(self, scans: Scans, step: StepContext | None = None) -> XGOutput:
        """Compute logits and representations of scans; in training also the learned connectomes."""
        n = self.bold_windows
        embedding = self.courses(split_windows(scans.bold, n), repeat_for_windows(scans.alive, n), step)
        m = self.learner(average_windows(embedding, n).softmax(-1))
        x = self.first(self.pass_messages(m, build_profiles(scans)), step)
        x = self.second(self.pass_messages(m, x), step)
        x = self.third(self.pass_messages(m, x), step)  # [B, P, 8]
        x = self.norm(x.transpose(1, 2), step).transpose(1, 2)  # statistics of each ROI
        representation = self.read(x.flatten(1))
        score = self.classify(representation)
        if self.published:
            control, patient = score.sigmoid().unbind(-1)
            logit = patient - control
        else:
            logit = score.squeeze(-1)
        return XGOutput(logit, representation, m if step is not None else m[:, :0])

    def pass_messages(self, m: Tensor, x: Tensor) -> Tensor:
        """Update states of ROIs under learned connectomes. Shapes [B, P, P] and [B, P, d] -> [B, P, d]."""
        return m.sum(-1, keepdim=True) * x if self.published else x + m @ x / m.shape[-1]


@method(
    "xg-gnn",
    family="brain networks",
    needs={"bold", "sites"},
    provenance=follow_paper(
        "its graph step rescales each ROI without aggregating neighbours, its Dice loss compares a map with itself, "
        "its values reuse the key projection, its mixed scans keep their original labels, and its loss treats sigmoids "
        "as logits. In our version, an ROI adds messages to its own state, and the attention has a residual "
        "connection; without this connection, all ROIs of a scan would start alike"
    ),
    reference="Qiu et al., XG-GNN, MICCAI 2024",
)
class XGGNN(BoldMethod):
    """Connectome learned from BOLD, with meta-learning over episodes of sites and consistent class-difference maps."""

    version = 2
    settings: XGSettings
    network_class = XGNetwork
    peak_matrices_per_scan = 80.0

    def objective(self, call: NetworkCall, params: Tensors, batch: Batch) -> Tensor:
        """Compute the loss at the meta-test sites, with weights one step ahead on the meta-training sites.

        This is first-order MAML: the gradient is computed after the step ahead and applied before it.
        """
        s, weight = self.settings, batch.cell_weight
        real = (batch.site_weight > 0).to(weight.dtype)
        draw_uniform = batch.step.draw_uniform
        train, test = split_episode(draw_uniform(real.shape, weight), real)
        scans, label = batch.scans, batch.label
        if s.mixup:
            partner = pair_within_sites(draw_uniform(label.shape, weight), batch.site)
            share = draw_uniform(real.shape, weight)[batch.site]
            scans, label = mix_scans(scans, label, partner, share)
        key = (draw_uniform((2,), weight) * 2**24).long()  # one for each pass
        ahead = StepContext(key[0], train[batch.site], batch.site, update_statistics=False)

        def loss_ahead(params: Tensors) -> Tensor:
            return 2 * (train * self._site_losses(call(params, scans, ahead), label, batch)).sum()

        gradient = torch.func.grad(loss_ahead)({name: p.detach() for name, p in params.items()})
        # the direction of Adam's first step, when its averages hold this gradient alone; without gradient
        direction = {name: (g / (g.abs() + 1e-8)).detach() for name, g in gradient.items()}
        adapted = {name: p - s.inner_rate * direction[name] for name, p in params.items()}

        out = call(adapted, scans, StepContext(key[1], test[batch.site], batch.site))
        S = compute_difference_maps(out.learned, batch.label if s.published else label, batch.cells)
        gap = self_dice_gap(S) if s.published else dice_gap(S)
        loss = 2 * (test * self._site_losses(out, label, batch)).sum() + s.sparsity * (test * map_entropy(S)).sum()
        return loss + s.consistency * (gap * (test[:, None] * test)).triu(1).sum()

    def _site_losses(self, out: XGOutput, label: Tensor, batch: Batch) -> Tensor:
        return average_by_site(bce(out.logit, label), batch)


variant(
    "xg-gnn-published",
    XGGNN,
    "XG-GNN as in its published code: ROIs are rescaled and exchange no messages.",
    provenance=follow_code(
        "we reset the averages of Adam in each look-ahead step. As in the published code, all edges of the learned "
        "connectome start with the same value, up to rounding, so the class-difference maps contain only rounding "
        "errors at first"
    ),
    published=True,
)

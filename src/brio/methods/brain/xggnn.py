"""XG-GNN: a connectome learned from BOLD, trained over episodes of source sites with explanations that agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...connectome import fill_dead
from ...settings import require, setting
from ...spaces import choice, log_uniform
from ...training import (
    Batch,
    InputShape,
    NetworkCall,
    NeuralMethod,
    RunState,
    Scans,
    Stage,
    StepContext,
    Tensors,
)
from ..graphs import build_profiles
from ..layers import BatchNorm, Chain, Dropout, Linear
from ..losses import average_by_site, bce
from ..registry import follow_paper, method
from ..settings import BoldSettings
from .courses import CourseEncoder

__all__ = [
    "XGGNN",
    "ConnectomeLearner",
    "XGNetwork",
    "XGOutput",
    "XGSettings",
    "dice_gap",
    "difference_maps",
    "episode",
    "map_entropy",
    "mix_scans",
]


@dataclass(frozen=True)
class XGSettings(BoldSettings):
    """Settings of XG-GNN.

    Attributes
    ----------
    embedding, kernel : int
        Dimension of the embedding of each ROI's course, and frames of the first convolution.
    heads : int
        Heads of the self-attention between ROIs; they share the embedding.
    dropout : float
    inner_rate : float
        Size of the look ahead on the meta-training sites.
    sparsity, consistency : float
        Weights of the entropy of a site's class-difference map and of the gap between maps of two sites.
    mixup : bool
        Blend scans of a site with each other, by shares drawn anew for each site and step.
    """

    learning_rate: float = setting(1e-3, choice(3e-4, 1e-3, 3e-3))
    embedding: int = 8
    kernel: int = 4
    heads: int = 4
    dropout: float = setting(0.5, choice(0.2, 0.5))
    inner_rate: float = setting(1e-3, choice(3e-4, 1e-3, 3e-3))
    sparsity: float = 1e-4
    consistency: float = setting(0.01, log_uniform(0.001, 1.0))
    mixup: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("embedding", "kernel", "heads"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        require(self.embedding % self.heads == 0, "embedding", self.embedding, "a multiple of heads")
        require(self.kernel <= self.bold_frames, "kernel", self.kernel, "at most bold_frames")
        require(0 <= self.dropout < 1, "dropout", self.dropout, "0 or more and below 1")
        for name in ("inner_rate", "sparsity", "consistency"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "0 or more")


class XGOutput(NamedTuple):
    """Output of XG-GNN."""

    logit: Tensor  # [B]
    representation: Tensor  # [B, d]
    learned: Tensor  # [B, P, P] the learned connectome m; empty outside training


class ConnectomeLearner(nn.Module):
    """Self-attention between ROIs; the learned connectome is m = v v' of the attended values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (Linear(width, width) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """Shape [B, P, d] -> [B, P, P]."""
        query, key, value = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )  # [B, heads, P, d / heads]
        attention = (query @ key.transpose(-1, -2) * x.shape[-1] ** -0.5).softmax(-1)
        v = (attention @ value).transpose(1, 2).flatten(-2)
        return v @ v.transpose(-1, -2)


class XGNetwork(nn.Module):
    """BOLD -> embedding of each ROI -> learned connectome m; three steps x <- MLP(m x) from the connection profiles."""

    def __init__(self, shape: InputShape, s: XGSettings) -> None:
        super().__init__()
        P = shape.n_rois
        self.courses = CourseEncoder(shape.n_frames, s.embedding, s.kernel)
        self.learner = ConnectomeLearner(s.embedding, s.heads)
        self.first = Chain(Linear(P, P), nn.LeakyReLU(0.2), Linear(P, P), BatchNorm(P))
        self.second = Chain(Linear(P, P), nn.LeakyReLU(0.2), BatchNorm(P))
        self.third = Chain(Linear(P, 64), nn.LeakyReLU(0.2), Linear(64, 8), nn.LeakyReLU(0.2), Dropout(s.dropout))
        self.norm = BatchNorm(P)
        self.read = nn.Sequential(Linear(8 * P, 256), nn.LeakyReLU(0.2), Linear(256, 32), nn.LeakyReLU(0.2))
        self.classify = Linear(32, 1)

    def forward(self, scans: Scans, state: RunState, step: StepContext | None = None) -> XGOutput:
        m = self.learner(self.courses(scans.bold, scans.alive, step).softmax(-1))
        x = self.second(m @ self.first(m @ build_profiles(scans, state), step), step)
        x = self.third(m @ x, step)  # [B, P, 8]
        x = self.norm(x.transpose(1, 2), step).transpose(1, 2)  # each ROI by itself
        representation = self.read(x.flatten(1))
        logit = self.classify(representation).squeeze(-1)
        return XGOutput(logit, representation, m if step is not None else m[:, :0])


def episode(draw: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Split source sites at random into meta-training (half of them, rounded down) and meta-test sites.

    A lone source site is both.

    Parameters
    ----------
    draw : Tensor, shape [E]
        Uniform numbers.
    real : Tensor, shape [E]
        1 for source sites, 0 for those that pad the stack.

    Returns
    -------
    Tensors of shape [E], 1 for members
    """
    rank = torch.argsort(torch.argsort(draw + 2.0 * (1.0 - real), stable=True), stable=True)
    count = real.sum()
    train = real * (rank < torch.floor(count / 2).clamp_min(1)).to(real.dtype)
    return train, torch.where(count > 1, real - train, real)


def site_partners(draw: Tensor, site: Tensor) -> Tensor:
    """A random order of the scans that keeps each at a place of its own site. Shape [B], int64.

    Parameters
    ----------
    draw : Tensor, shape [B]
        Uniform numbers.
    site : Tensor of int64, shape [B]
        Ascending.
    """
    return torch.argsort(draw + 2.0 * site, stable=True)


def mix_scans(scans: Scans, label: Tensor, partner: Tensor, share: Tensor, mean: Tensor) -> tuple[Scans, Tensor]:
    """Scans and labels blended with those of partners (mixup, Zhang et al. 2018).

    Connectomes are filled before they are blended, and the network has nothing left to fill in a blend.

    Parameters
    ----------
    label, share : Tensor, shape [B]
        ``share`` is that of the scan itself.
    partner : Tensor of int64, shape [B]
    mean : Tensor, shape [P, P]
        Stands in for edges of ROIs without signal.
    """

    def blend(x: Tensor) -> Tensor:
        own = share.view(-1, *[1] * (x.dim() - 1))
        return own * x + (1 - own) * x[partner]

    filled, alive = blend(fill_dead(scans.A, scans.alive, mean)), blend(scans.alive.to(mean.dtype))
    return scans._replace(A=filled, alive=alive, bold=blend(scans.bold)), blend(label)


def difference_maps(learned: Tensor, label: Tensor, cells: tuple[int, int, int]) -> Tensor:
    """Where the learned connectomes of the classes differ at each site, between 0 and 1. Shape [E, P, P].

    |mean of class 0 - mean of class 1|, each column standardised, through a sigmoid. A blended scan belongs to both
    classes, by its label.

    Parameters
    ----------
    learned : Tensor, shape [B, P, P]
    label : Tensor, shape [B]
        Between 0 and 1.
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
    """Sum over the rows of a map of -g log g, g the geometric mean of the row. Shape [E, P, P] -> [E]."""
    log = (S + 1e-10).log().mean(-1)
    return -(log.exp() * log).sum(-1)


def dice_gap(S: Tensor) -> Tensor:
    """1 - Dice of the maps of every two sites. Shape [E, P, P] -> [E, E]."""
    flat = S.flatten(1)
    size = flat.sum(1)
    return 1 - 2 * (flat @ flat.T) / (size[:, None] + size + 1e-8)


@method(
    "xg-gnn",
    family="brain networks",
    needs={"bold", "sites"},
    provenance=follow_paper(
        "its graph step rescales each ROI and aggregates no neighbours, its Dice compares a map with itself, values "
        "reuse the key projection, blended scans count by their unblended label, the loss sees sigmoids as logits"
    ),
    reference="Qiu et al., XG-GNN, MICCAI 2024",
)
class XGGNN(NeuralMethod):
    """Connectome learned from BOLD, meta-learned over site episodes, class-difference maps that agree over sites."""

    Settings = XGSettings
    settings: XGSettings
    peak_matrices_per_scan = 80.0

    def network(self, shape: InputShape) -> nn.Module:
        return XGNetwork(shape, self.settings)

    def objective(self, call: NetworkCall, params: Tensors, batch: Batch, state: RunState, stage: Stage) -> Tensor:
        """Loss at the meta-test sites under weights that looked one step ahead on the meta-training sites.

        First-order MAML: the gradient is taken where the look ahead ends and applied where it began.
        """
        s, weight = self.settings, batch.cell_weight
        real = (batch.site_weight > 0).to(weight.dtype)
        draw_uniform = batch.step.draw_uniform
        train, test = episode(draw_uniform(real.shape, weight), real)
        scans, label = batch.scans, batch.label
        if s.mixup:
            partner = site_partners(draw_uniform(label.shape, weight), batch.site)
            share = draw_uniform(real.shape, weight)[batch.site]
            scans, label = mix_scans(scans, label, partner, share, state.learned["mean"])
        key = (draw_uniform((2,), weight) * 2**24).long()  # for the two passes
        ahead = StepContext(key[0], train[batch.site], batch.site, update_statistics=False)

        def loss_ahead(params: Tensors) -> Tensor:
            return 2 * (train * self._site_losses(call(params, scans, ahead), label, batch)).sum()

        slope = torch.func.grad(loss_ahead)({name: p.detach() for name, p in params.items()})
        adapted = {name: p - s.inner_rate * first_adam_step(slope[name]) for name, p in params.items()}

        out = call(adapted, scans, StepContext(key[1], test[batch.site], batch.site))
        S = difference_maps(out.learned, label, batch.cells)
        loss = 2 * (test * self._site_losses(out, label, batch)).sum() + s.sparsity * (test * map_entropy(S)).sum()
        return loss + s.consistency * (dice_gap(S) * (test[:, None] * test)).triu(1).sum()

    def _site_losses(self, out: XGOutput, label: Tensor, batch: Batch) -> Tensor:
        return average_by_site(bce(out.logit, label), batch)


def first_adam_step(gradient: Tensor) -> Tensor:
    """Direction of the first step of Adam, when its averages hold this gradient alone."""
    return (gradient / (gradient.abs() + 1e-8)).detach()

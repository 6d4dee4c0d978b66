"""DeCI: the time course of each ROI, embedded and split into drift and cycle; ROIs are fused by averaging."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...domains import Layers, LearningRate, ShareBelowOne, Width
from ...settings import setting
from ...spaces import choice
from ...training import Batch, InputShape, Output, RunState, Scans, Stage, StepContext
from ..layers import Chain, Dropout, LayerNorm, Linear
from ..losses import classification_loss
from ..provenance import follow_paper
from ..registry import method
from ..settings import BoldSettings
from .bold_windows import BoldMethod, average_windows, repeat_for_windows, split_windows


@dataclass(frozen=True)
class DeCISettings(BoldSettings):
    """Settings of DeCI, as published for the shortest scans of ABIDE (120 frames)."""

    learning_rate: LearningRate = setting(1e-3, choice(3e-4, 1e-3, 3e-3))
    width: Width = 64  # width of the embedding of each ROI's time course, and length of the drift kernels
    layers: Layers = setting(1, choice(1, 2))
    dropout: ShareBelowOne = setting(0.2, choice(0.0, 0.2, 0.5))


class CausalConvolution(nn.Module):
    """Depthwise causal convolution along the last axis, one kernel for each ROI, initialised as the running mean.

    It is written as a product with a triangular matrix for each ROI, which is fastest for a stack of runs.
    """

    def __init__(self, n_rois: int, width: int) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.full((n_rois, width), 1.0 / width))  # by lag
        self.bias = nn.Parameter(torch.zeros(n_rois))

    def forward(self, x: Tensor) -> Tensor:
        """Compute out_i = bias + sum over lags k <= i of kernel_k x_{i-k}. Shape [B, P, d] in and out."""
        d = x.shape[-1]
        band = F.pad(self.kernel.flip(-1), (0, d - 1)).unfold(-1, d, 1)  # row s holds the weights of out_{d-1-s}
        return torch.einsum("bpj,pij->bpi", x, band.flip(-2)) + self.bias[:, None]


class Cycle(nn.Module):
    """The periodic part: a gated linear map and an MLP, each added to its input and normalised."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.gate, self.update = (
            Chain(Linear(width, 2 * width), Dropout(dropout), nn.GELU(), Linear(2 * width, width)) for _ in range(2)
        )
        self.mix = Linear(width, width)
        self.norm_mixed, self.norm_updated = LayerNorm(width, eps=1e-6), LayerNorm(width, eps=1e-6)

    def forward(self, x: Tensor, step: StepContext | None = None) -> Tensor:
        """Extract the cycle from embeddings. Shape [B, P, d] in and out."""
        mixed = self.norm_mixed(x + self.mix(self.gate(x, step).sigmoid() * x))
        return self.norm_updated(mixed + self.update(mixed, step))


class DeCIBlock(nn.Module):
    """Split an embedding into drift, cycle and remainder."""

    def __init__(self, n_rois: int, width: int, dropout: float) -> None:
        super().__init__()
        self.drift = CausalConvolution(n_rois, width)
        self.dropout = Dropout(dropout)
        self.cycle = Cycle(width, dropout)

    def forward(self, x: Tensor, step: StepContext | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Split embeddings x, shape [B, P, d].

        Shapes: returns [B, P, d].
        """
        drift = self.dropout(self.drift(x), step)
        cycle = self.cycle(x - drift, step)
        return drift, cycle, x - drift - cycle


class DeCINetwork(nn.Module):
    """One linear embedding for the course of every ROI, blocks of drift and cycle, linear classifiers of their means.

    The mean over ROIs of a linear score is the score of the mean, so the classifiers read pooled drifts and cycles.
    ROIs without signal are left out of the mean. The windows of a scan are averaged in the same way.
    """

    def __init__(self, shape: InputShape, s: DeCISettings) -> None:
        super().__init__()
        self.bold_windows = s.bold_windows
        self.embed = Linear(shape.n_frames // s.bold_windows, s.width)
        self.blocks = nn.ModuleList(DeCIBlock(shape.n_rois, s.width, s.dropout) for _ in range(s.layers))
        self.classify = Linear(2 * s.layers * s.width, 1)

    def forward(self, scans: Scans, state: RunState, step: StepContext | None = None) -> Output:
        """Compute logits and representations of scans."""
        bold = split_windows(scans.bold, self.bold_windows)
        centred = bold - bold.mean(1, keepdim=True)
        course = centred * (centred.square().mean(1, keepdim=True) + 1e-5).rsqrt()
        remainder = self.embed(course.transpose(1, 2).contiguous())  # [B, P, d]
        share = repeat_for_windows(scans.alive, self.bold_windows).to(remainder.dtype)
        share = (share / share.sum(-1, keepdim=True)).unsqueeze(1)  # [B, 1, P]
        pooled = []
        for block in self.blocks:
            drift, cycle, remainder = block(remainder, step)
            pooled += [(share @ drift).squeeze(1), (share @ cycle).squeeze(1)]
        representation = average_windows(torch.cat(pooled, -1), self.bold_windows)
        return Output(self.classify(representation).squeeze(-1), representation)


@method(
    "deci",
    family="brain networks",
    needs={"bold"},
    provenance=follow_paper(
        "its binary loss compares every prediction with the labels of the whole batch, gradients pile up from step to "
        "step, and the checkpoint is chosen on the reported fold"
    ),
    reference="DeCI, IEEE TMI 2026, arXiv 2602.08262",
)
class DeCI(BoldMethod):
    """Drift and cycle of the BOLD course of each ROI; ROIs are independent until their scores are averaged."""

    Settings = DeCISettings
    settings: DeCISettings
    peak_matrices_per_scan = 32.0

    def network(self, shape: InputShape) -> nn.Module:
        return DeCINetwork(shape, self.settings)

    def loss(self, out: Output, batch: Batch, state: RunState, stage: Stage) -> Tensor:
        return classification_loss(out.logit, batch)

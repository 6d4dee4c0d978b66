"""Graph neural networks: GCN, GAT and GIN."""

import itertools
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import nn
from torch.nn import functional as F

from ..settings import Heads, ShareBelowOne, choice, require, setting
from ..training import InputShape, Output, Scans, StepContext
from . import layers
from .registry import PUBLISHED, method


@dataclass(frozen=True)
class GCNSettings(layers.GraphSettings):
    """Settings of the GCN.

    Attributes
    ----------
    readout : {"mean", "concat"}
        What the classifier reads: the mean of the last states of all ROIs, or these states concatenated.
    """

    readout: Literal["mean", "concat"] = setting("mean", choice("mean", "concat"))


class GCNNetwork(nn.Module):
    """Layers H <- dropout(ReLU(BN(A_hat H W))), a readout, and a linear classifier."""

    def __init__(self, shape: InputShape, s: layers.GraphSettings) -> None:
        super().__init__()
        widths = [shape.n_rois, *[s.width] * s.layers]
        self.layers = nn.ModuleList(layers.GCNLayer(a, b) for a, b in itertools.pairwise(widths))
        self.norms = nn.ModuleList(layers.BatchNorm(b) for b in widths[1:])
        self.dropout = layers.Dropout(s.dropout)
        self.readout = getattr(s, "readout", "mean")
        self.classify = nn.Linear(s.width * (shape.n_rois if self.readout == "concat" else 1), 1)

    def forward(self, scans: Scans, step: StepContext | None = None) -> Output:
        """Return logits [B] and pooled states [B, width] or [B, P * width]; ``step`` is None at inference."""
        A_hat = layers.normalise_adjacency(layers.select_strong_edges(scans) * scans.A.abs())
        H = layers.build_profiles(scans)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            H = self.dropout(norm(layer(H, A_hat), step).relu(), step)
        pooled = H.flatten(1) if self.readout == "concat" else H.mean(1)
        return Output(self.classify(pooled).squeeze(-1), pooled)


@method("gcn", family="GNN", provenance=PUBLISHED, reference="Kipf & Welling 2017")
class GCN(layers.Classifier):
    """Graph convolution over connection profiles, with a mean readout."""

    settings: GCNSettings

    network_class = GCNNetwork


@dataclass(frozen=True)
class GATSettings(layers.GraphSettings):
    """Settings of the GAT.

    Attributes
    ----------
    heads : int
        Number of attention heads in every layer. All layers except the last concatenate heads of width ``width /
        heads``; the last averages heads of full width.
    attention_dropout : float
        Share of the attention weights dropped in training.
    """

    heads: Heads = 4
    attention_dropout: ShareBelowOne = setting(0.2, choice(0.2, 0.5))

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.width % self.heads == 0, "heads", self.heads, f"a divisor of width={self.width}")


class GATNetwork(nn.Module):
    """Layers H <- dropout(ELU(attention(H))), the mean over ROIs, and a linear classifier.

    An ROI attends to itself and to its neighbours along the strongest edges. As in the original, edges have no weights,
    and there is no batch norm.
    """

    def __init__(self, shape: InputShape, s: GATSettings) -> None:
        super().__init__()
        widths = [*[s.width // s.heads] * (s.layers - 1), s.width]  # of a head
        self.layers = nn.ModuleList(
            layers.GATLayer(s.width if i else shape.n_rois, width, s.heads, i < s.layers - 1, s.attention_dropout)
            for i, width in enumerate(widths)
        )
        self.dropout = layers.Dropout(s.dropout)
        self.classify = nn.Linear(s.width, 1)

    def forward(self, scans: Scans, step: StepContext | None = None) -> Output:
        """Return logits [B] and pooled states [B, width]; ``step`` is None at inference."""
        mask = layers.select_strong_edges(scans)
        H = layers.build_profiles(scans)
        for layer in self.layers:
            H = self.dropout(F.elu(layer(H, mask, step)), step)
        pooled = H.mean(1)
        return Output(self.classify(pooled).squeeze(-1), pooled)


@method("gat", family="GNN", provenance=PUBLISHED, reference="Velickovic et al. 2018")
class GAT(layers.Classifier):
    """Graph attention over connection profiles, with a mean readout."""

    settings: GATSettings
    network_class = GATNetwork
    peak_matrices_per_scan: ClassVar[float] = 90.0  # scores, attention and its dropout of four heads in two layers


@dataclass(frozen=True)
class GINSettings(layers.GraphSettings):
    """Settings of the GIN.

    Attributes
    ----------
    readout : {"every", "last"}
        Whether the classifier reads the profiles of the ROIs and their states after every layer, as in the original,
        or their states after the last layer only, as in later benchmarks.
    """

    readout: Literal["every", "last"] = setting("every", choice("every", "last"))


class GINNetwork(nn.Module):
    """Layers H <- dropout(ReLU(BN(MLP((1 + eps) H + A H)))), readouts, and a linear classifier.

    A is binary, so an ROI receives the unweighted sum over its neighbours. A readout is the mean over ROIs. Because
    every scan has the same number of ROIs, the mean distinguishes the same graphs as the original sum, without its
    large values.
    """

    def __init__(self, shape: InputShape, s: GINSettings) -> None:
        super().__init__()
        widths = [shape.n_rois, *[s.width] * s.layers]
        self.layers = nn.ModuleList(layers.GINLayer(a, b) for a, b in itertools.pairwise(widths))
        self.norms = nn.ModuleList(layers.BatchNorm(b) for b in widths[1:])
        self.dropout = layers.Dropout(s.dropout)
        self.readout = s.readout
        self.classify = nn.Linear(sum(widths) if s.readout == "every" else s.width, 1)

    def forward(self, scans: Scans, step: StepContext | None = None) -> Output:
        """Return logits [B] and pooled states, concatenated over layers, [B, d]; ``step`` is None at inference."""
        A = layers.select_strong_edges(scans)
        states = [layers.build_profiles(scans)]
        for layer, norm in zip(self.layers, self.norms, strict=True):
            states.append(self.dropout(norm(layer(states[-1], A, step), step).relu(), step))
        read_out = states if self.readout == "every" else states[-1:]
        pooled = torch.cat([H.mean(1) for H in read_out], -1)
        return Output(self.classify(pooled).squeeze(-1), pooled)


@method("gin", family="GNN", provenance=PUBLISHED, reference="Xu et al. 2019")
class GIN(layers.Classifier):
    """Sum aggregation and an MLP update over connection profiles, with a readout of every layer."""

    settings: GINSettings
    network_class = GINNetwork

"""A small multi-layer perceptron on the edges of the connectome: a neural network without a graph."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from ..connectome import read_edges
from ..settings import LearningRate, ShareBelowOne, Weight, Width, choice, setting
from ..training import InputShape, NeuralSettings, Output, Scans, StepContext
from .layers import BatchNorm, Classifier, Dropout, Identity, build_profiles
from .registry import TEXTBOOK, method


@dataclass(frozen=True)
class MLPSettings(NeuralSettings):
    """Settings of the MLP.

    Attributes
    ----------
    learning_rate, weight_decay : float
        Settings of AdamW; tuned by ``brio tune``.
    width : int
        Number of hidden units.
    dropout : float
        Share of the hidden units dropped in training.
    norm : bool
        Whether batch normalisation precedes the activation.
    """

    learning_rate: LearningRate = setting(1e-3, choice(3e-4, 1e-3, 3e-3))
    weight_decay: Weight = setting(1e-4, choice(1e-4, 1e-2, 1e-1))
    width: Width = 64
    dropout: ShareBelowOne = setting(0.5, choice(0.2, 0.5))
    norm: bool = setting(True, choice(True, False))


class MLPNetwork(nn.Module):
    """The P (P - 1) / 2 edges of the connectome, a hidden layer (optional batch norm, ReLU, dropout), one logit."""

    def __init__(self, shape: InputShape, settings: MLPSettings) -> None:
        super().__init__()
        self.hidden = nn.Linear(shape.n_rois * (shape.n_rois - 1) // 2, settings.width)
        self.norm = BatchNorm(settings.width) if settings.norm else Identity()
        self.dropout = Dropout(settings.dropout)
        self.classify = nn.Linear(settings.width, 1)

    def forward(self, scans: Scans, step: StepContext | None = None) -> Output:
        """Return logits [B] and hidden units [B, width]; ``step`` is None at inference."""
        A = build_profiles(scans)  # FC, with the edges of ROIs without signal filled in
        hidden = self.dropout(self.norm(self.hidden(read_edges(A)), step).relu(), step)
        return Output(self.classify(hidden).squeeze(-1), hidden)


@method("mlp", family="network on edges", provenance=TEXTBOOK, reference="Rumelhart et al. 1986")
class MLP(Classifier):
    """One hidden layer on the edges of the connectome (Fisher z), with dropout."""

    settings: MLPSettings
    network_class = MLPNetwork
    peak_matrices_per_scan: ClassVar[float] = 8.0  # the filled FC and its edges; no layer keeps P x P values

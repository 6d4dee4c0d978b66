"""Graph attention network on the strongest edges of each scan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from ...domains import Domain, ShareBelowOne
from ...settings import require, setting
from ...spaces import choice
from ...training import Batch, InputShape, NeuralMethod, Output, RunState, Scans, Stage, StepContext
from ..graphs import GraphSettings, build_profiles, select_strong_edges
from ..layers import Dropout, GATLayer
from ..losses import classification_loss
from ..provenance import PUBLISHED
from ..registry import method


@dataclass(frozen=True)
class GATSettings(GraphSettings):
    """Settings of the GAT."""

    heads: Annotated[int, Domain(1, 256)] = 4
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
        n_concatenated = s.layers - 1
        concatenated = [
            GATLayer(s.width if i else shape.n_rois, s.width // s.heads, s.heads, True, s.attention_dropout)
            for i in range(n_concatenated)
        ]
        averaged = GATLayer(s.width if n_concatenated else shape.n_rois, s.width, s.heads, False, s.attention_dropout)
        self.layers = nn.ModuleList([*concatenated, averaged])
        self.dropout = Dropout(s.dropout)
        self.classify = nn.Linear(s.width, 1)

    def forward(self, scans: Scans, state: RunState, step: StepContext | None = None) -> Output:
        """Return logits [B] and pooled states [B, width]; ``step`` is None at inference."""
        mask = select_strong_edges(scans)
        H = build_profiles(scans, state)
        for layer in self.layers:
            H = self.dropout(F.elu(layer(H, mask, step)), step)
        pooled = H.mean(1)
        return Output(self.classify(pooled).squeeze(-1), pooled)


@method("gat", family="GNN", provenance=PUBLISHED, reference="Velickovic et al. 2018")
class GAT(NeuralMethod):
    """Graph attention over connection profiles, mean readout."""

    Settings = GATSettings
    settings: GATSettings
    peak_matrices_per_scan: ClassVar[float] = 90.0  # scores, attention and its dropout of four heads in two layers

    def network(self, shape: InputShape) -> nn.Module:
        return GATNetwork(shape, self.settings)

    def loss(self, out: Output, batch: Batch, state: RunState, stage: Stage) -> Tensor:
        return classification_loss(out.logit, batch)

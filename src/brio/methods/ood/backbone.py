"""What the methods for unseen domains share: the GCN they train, and the stages of a penalty that is annealed."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from torch import Tensor, nn

from ...settings import require
from ...training import Batch, InputShape, NeuralMethod, Output, RunState, Stage
from ..gnn.gcn import GCNNetwork
from ..graphs import GraphSettings
from ..losses import classification_loss

__all__ = ["AnnealedMethod", "AnnealedSettings", "GCNMethod"]


class GCNMethod(NeuralMethod):
    """The GCN with mean readout, trained under a loss that knows the source sites.

    A batch holds 2 ``cell_batch`` scans of each site, 8 by default: whatever a loss estimates for a site, it
    estimates from as few. A larger ``cell_batch`` makes the estimates better and the steps fewer.
    """

    Settings = GraphSettings
    settings: GraphSettings

    def network(self, shape: InputShape) -> nn.Module:
        return GCNNetwork(shape, self.settings)


@dataclass(frozen=True)
class AnnealedSettings(GraphSettings):
    """Settings of a penalty that begins at weight one.

    Attributes
    ----------
    penalty : float
        Weight of the penalty once the annealing is over.
    annealing : float
        Share of the epochs in which the penalty has weight one. Their checkpoints cannot be chosen.
    """

    penalty: float = 1.0
    annealing: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.penalty >= 0, "penalty", self.penalty, "0 or more")
        require(0 <= self.annealing < 1, "annealing", self.annealing, "0 or more and below 1")


class AnnealedMethod(GCNMethod):
    """Mean risk and a penalty, whose weight jumps when the annealing is over; the optimiser starts anew there.

    The optimiser's running averages are those of gradients of another size, so they are forgotten.
    """

    Settings = AnnealedSettings
    settings: AnnealedSettings

    @abstractmethod
    def penalty(self, logit: Tensor, batch: Batch) -> Tensor:
        """What is added to the mean risk, before its weight."""

    def stages(self) -> list[Stage]:
        s = self.settings
        first = min(round(s.annealing * s.epochs), s.epochs - 1)
        if s.annealing > 0 and s.epochs > 1:
            first = max(1, first)
        penalised = Stage("penalised", s.epochs - first, fresh_optimiser=first > 0)
        return [Stage("annealing", first, selectable=False), penalised] if first else [penalised]

    def loss(self, out: Output, batch: Batch, state: RunState, stage: Stage) -> Tensor:
        weight = 1.0 if stage.name == "annealing" else self.settings.penalty
        return classification_loss(out.logit, batch) + weight * self.penalty(out.logit, batch)

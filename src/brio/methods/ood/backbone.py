"""What the domain generalisation methods share: the GCN they train, and the stages of an annealed penalty."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from torch import Tensor, nn

from ...domains import ShareBelowOne, Weight
from ...training import Batch, InputShape, NeuralMethod, Output, RunState, Stage
from ..gnn.gcn import GCNNetwork
from ..graphs import GraphSettings
from ..losses import classification_loss


class GCNMethod(NeuralMethod):
    """The GCN with mean readout, trained under a loss that knows the source sites.

    A batch holds 2 ``cell_batch`` scans of each site, 8 by default, and a loss estimates whatever it needs of a site
    from these few. A larger ``cell_batch`` makes the estimates better and the steps fewer.
    """

    Settings = GraphSettings
    settings: GraphSettings

    def network(self, shape: InputShape) -> nn.Module:
        return GCNNetwork(shape, self.settings)


@dataclass(frozen=True)
class AnnealedSettings(GraphSettings):
    """Settings of a penalty whose weight is 1 at first."""

    penalty: Weight = 1.0  # weight of the penalty after annealing
    annealing: ShareBelowOne = 0.1


class AnnealedMethod(GCNMethod):
    """The mean risk and a penalty whose weight jumps when annealing ends.

    The optimiser starts afresh there, because its running averages are those of gradients of another size.
    """

    Settings = AnnealedSettings
    settings: AnnealedSettings

    @abstractmethod
    def penalty(self, logit: Tensor, batch: Batch) -> Tensor:
        """Compute the penalty, before its weight.

        Shapes: logit [B].
        """

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

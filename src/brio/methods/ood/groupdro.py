"""GroupDRO: the worst source site counts most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...settings import require, setting
from ...spaces import log_uniform
from ...training import Batch, InputShape, RunState, Scans, Stage, StepContext, Tensors
from ..gnn.gcn import GCNNetwork
from ..graphs import GraphSettings
from ..losses import bce, site_losses
from ..registry import PUBLISHED, method
from .backbone import GCNMethod

__all__ = ["GroupDRO", "GroupDRONetwork", "GroupDROSettings", "GroupOutput"]


@dataclass(frozen=True)
class GroupDROSettings(GraphSettings):
    """Settings of GroupDRO.

    Attributes
    ----------
    step_size : float
        How fast the weights of the source sites follow their losses.
    """

    step_size: float = setting(0.01, log_uniform(0.001, 0.1))

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.step_size >= 0, "step_size", self.step_size, "0 or more")


class GroupOutput(NamedTuple):
    """What the network returns for a batch in training."""

    logit: Tensor  # [B]
    representation: Tensor  # [B, width]
    log_share: Tensor  # [E] logarithm of each source site's weight, up to a constant: the buffer, which the loss moves


class GroupDRONetwork(GCNNetwork):
    """The GCN, and the weights of the source sites as a buffer."""

    log_share: Tensor

    def __init__(self, shape: InputShape, s: GroupDROSettings) -> None:
        super().__init__(shape, s)
        self.register_buffer("log_share", torch.zeros(shape.n_sites))

    def forward(self, scans: Scans, state: RunState, step: StepContext | None = None) -> Any:
        """A :class:`GroupOutput` in training, else an :class:`~brio.training.Output`."""
        out = super().forward(scans, state, step)
        return out if step is None else GroupOutput(*out, self.log_share)


@method("groupdro", family="OOD", needs={"sites"}, provenance=PUBLISHED, reference="Sagawa et al. 2020; DomainBed")
class GroupDRO(GCNMethod):
    """GCN that weighs source sites by how badly it has done there."""

    Settings = GroupDROSettings
    settings: GroupDROSettings
    training_only = ("log_share",)

    def network(self, shape: InputShape) -> nn.Module:
        return GroupDRONetwork(shape, self.settings)

    def loss(self, out: GroupOutput, batch: Batch, state: RunState, stage: Stage) -> Tensor:
        """Mean loss of the source sites under their weights, after one exponentiated-gradient step of these."""
        losses = site_losses(bce(out.logit, batch.label), batch)
        real = (batch.site_weight > 0).to(losses.dtype)
        out.log_share.add_(self.settings.step_size * real * losses.detach())
        share = torch.where(real > 0, out.log_share, torch.full_like(losses, -torch.inf)).softmax(0)
        return (share * losses).sum()

    def remove_padding(self, parameters: Tensors, state: RunState, n_sites: int) -> tuple[Tensors, RunState]:
        return parameters | {"log_share": parameters["log_share"][:n_sites].clone()}, state

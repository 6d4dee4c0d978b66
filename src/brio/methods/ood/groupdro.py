"""GroupDRO: give the source sites with the largest losses the largest weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor, nn

from ...domains import Domain
from ...settings import setting
from ...spaces import log_uniform
from ...training import Batch, InputShape, RunState, Scans, Stage, StepContext, Tensors
from ..gnn.gcn import GCNNetwork
from ..graphs import GraphSettings
from ..losses import average_by_site, bce
from ..provenance import PUBLISHED
from ..registry import method
from .backbone import GCNMethod


@dataclass(frozen=True)
class GroupDROSettings(GraphSettings):
    """Settings of GroupDRO."""

    step_size: Annotated[float, Domain(0, 100)] = setting(0.01, log_uniform(0.001, 0.1))


class GroupOutput(NamedTuple):
    """Output of the network in training."""

    logit: Tensor  # [B]
    representation: Tensor  # [B, width]
    log_share: Tensor  # [E] log weight of each source site, up to a constant: the buffer, which the loss moves


class GroupDRONetwork(GCNNetwork):
    """The GCN with a buffer that holds the weights of the source sites."""

    log_share: Tensor

    def __init__(self, shape: InputShape, s: GroupDROSettings) -> None:
        super().__init__(shape, s)
        self.register_buffer("log_share", torch.zeros(shape.n_sites))

    def forward(self, scans: Scans, state: RunState, step: StepContext | None = None) -> Any:
        """Return a :class:`GroupOutput` in training, else an :class:`~brio.training.Output`."""
        out = super().forward(scans, state, step)
        return out if step is None else GroupOutput(*out, self.log_share)


@method("groupdro", family="OOD", needs={"sites"}, provenance=PUBLISHED, reference="Sagawa et al. 2020; DomainBed")
class GroupDRO(GCNMethod):
    """GCN that weights source sites by their losses so far."""

    Settings = GroupDROSettings
    settings: GroupDROSettings
    training_only = ("log_share",)

    def network(self, shape: InputShape) -> nn.Module:
        return GroupDRONetwork(shape, self.settings)

    def loss(self, out: GroupOutput, batch: Batch, state: RunState, stage: Stage) -> Tensor:
        """Take one exponentiated-gradient step of the site weights, then average the losses of the sites by them."""
        losses = average_by_site(bce(out.logit, batch.label), batch)
        real = (batch.site_weight > 0).to(losses.dtype)
        out.log_share.add_(self.settings.step_size * real * losses.detach())
        share = torch.where(real > 0, out.log_share, torch.full_like(losses, -torch.inf)).softmax(0)
        return (share * losses).sum()

    def remove_padding(self, parameters: Tensors, state: RunState, n_sites: int) -> tuple[Tensors, RunState]:
        return parameters | {"log_share": parameters["log_share"][:n_sites].clone()}, state

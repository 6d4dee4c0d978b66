"""GroupDRO: the worst source site counts most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...settings import require, setting
from ...spaces import log_uniform
from ...training import Batch, InputShape, Scans, Stage
from ...training.ambient import real_graphs
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
    """What the network says of a batch in training."""

    logit: Tensor  # [B]
    representation: Tensor  # [B, width]
    site_share: Tensor  # [E] weight of each source site in the loss; 0 for padding, sums to one


class GroupDRONetwork(GCNNetwork):
    """The GCN and its source sites' weights, which every training step moves by exponentiated gradient."""

    log_share: Tensor

    def __init__(self, shape: InputShape, s: GroupDROSettings) -> None:
        super().__init__(shape, s)
        self.step_size = s.step_size
        self.register_buffer("log_share", torch.zeros(shape.n_sites))  # up to a constant

    def forward(self, scans: Scans, context: dict[str, Tensor]) -> Any:
        """A :class:`GroupOutput` in training, else an :class:`~brio.training.Output`."""
        out = super().forward(scans, context)
        if not self.training:
            return out
        # a batch is made of sites, classes and scans in this order, so the losses can be told here
        cells = out.logit.detach().unflatten(0, (len(self.log_share), 2, -1))
        label = torch.arange(2, device=cells.device, dtype=cells.dtype)[:, None].expand_as(cells)
        risk = bce(cells, label).mean((1, 2))
        real = real_graphs().unflatten(0, cells.shape)[:, 0, 0]
        self.log_share.add_(self.step_size * real * risk)
        share = torch.where(real > 0, self.log_share, torch.full_like(risk, -torch.inf)).softmax(0)
        return GroupOutput(out.logit, out.representation, share)


@method("groupdro", family="OOD", needs={"sites"}, provenance=PUBLISHED, reference="Sagawa et al. 2020; DomainBed")
class GroupDRO(GCNMethod):
    """GCN that weighs source sites by how badly it has done there."""

    Settings = GroupDROSettings
    settings: GroupDROSettings
    only_for_training = ("log_share",)

    def network(self, shape: InputShape) -> nn.Module:
        return GroupDRONetwork(shape, self.settings)

    def loss(self, out: GroupOutput, batch: Batch, context: dict[str, Tensor], stage: Stage) -> Tensor:
        return (out.site_share * site_losses(bce(out.logit, batch.label), batch)).sum()

    def remove_padding(self, weights: dict[str, Tensor], n_sites: int) -> dict[str, Tensor]:
        return weights | {"log_share": weights["log_share"][:n_sites].clone()}

"""DANN: features from which a classifier cannot infer the source site."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...domains import Weight
from ...settings import setting
from ...spaces import log_uniform
from ...training import Batch, InputShape, RunState, Scans, Stage, StepContext, Tensors
from ..gnn.gcn import GCNNetwork
from ..graphs import GraphSettings
from ..losses import classification_loss, reverse_gradient, site_cross_entropy
from ..provenance import PUBLISHED
from ..registry import method
from .backbone import GCNMethod


@dataclass(frozen=True)
class DANNSettings(GraphSettings):
    """Settings of DANN."""

    strength: Weight = setting(1.0, log_uniform(0.01, 10.0))


class SiteOutput(NamedTuple):
    """Output of the network in training."""

    logit: Tensor  # [B]
    representation: Tensor  # [B, width]
    site_logit: Tensor  # [B, E] its gradient reaches the features, reversed
    detached_site_logit: Tensor  # [B, E] the same numbers; their gradient stops at the site classifier


class DANNNetwork(GCNNetwork):
    """The GCN and a site classifier with one hidden layer, which only training uses."""

    def __init__(self, shape: InputShape, s: DANNSettings) -> None:
        super().__init__(shape, s)
        self.site = nn.Sequential(nn.Linear(s.width, s.width), nn.ReLU(), nn.Linear(s.width, shape.n_sites))
        for p in self.site[-1].parameters():
            nn.init.zeros_(p)  # it has as many rows as the stack has sites, and no random draw may depend on that

    def forward(self, scans: Scans, state: RunState, step: StepContext | None = None) -> Any:
        """Return a :class:`SiteOutput` in training, else an :class:`~brio.training.Output`."""
        out = super().forward(scans, state, step)
        if step is None:
            return out
        h = out.representation
        return SiteOutput(out.logit, h, self.site(reverse_gradient(h, 1.0)), self.site(h.detach()))


def ramp_up(epoch: Tensor, epochs: int) -> Tensor:
    """Scale the reversed gradient from 0 in the first epoch to almost 1 in the last (Ganin et al.)."""
    progress = (epoch - 1) / max(1, epochs - 1)
    return 2 * torch.sigmoid(10 * progress) - 1


@method("dann", family="OOD", needs={"sites"}, provenance=PUBLISHED, reference="Ganin et al. 2016")
class DANN(GCNMethod):
    """GCN trained against a classifier of the source site, through a reversed gradient."""

    Settings = DANNSettings
    settings: DANNSettings
    training_only = ("site",)

    def network(self, shape: InputShape) -> nn.Module:
        return DANNNetwork(shape, self.settings)

    def loss(self, out: SiteOutput, batch: Batch, state: RunState, stage: Stage) -> Tensor:
        """Add the risks of both classifiers.

        The ramp scales the gradient of the features only; the site classifier learns at full size throughout.
        """
        size = self.settings.strength * ramp_up(batch.epoch, self.settings.epochs)
        adversarial = size * site_cross_entropy(out.site_logit, batch)
        detached = (1 - size) * site_cross_entropy(out.detached_site_logit, batch)
        return classification_loss(out.logit, batch) + adversarial + detached

    def remove_padding(self, parameters: Tensors, state: RunState, n_sites: int) -> tuple[Tensors, RunState]:
        own = {name: parameters[name][:n_sites].clone() for name in ("site.2.weight", "site.2.bias")}
        return parameters | own, state

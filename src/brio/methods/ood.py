"""Methods for unseen domains, based on a GCN: CORAL, IRM, V-REx, GroupDRO and DANN, each with its own loss."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from msgspec import Meta
from torch import Tensor, nn

from ..settings import ShareBelowOne, Weight, choice, log_uniform, setting
from ..training import Batch, InputShape, Output, Scans, Stage, StepContext
from . import layers
from .gnn import GCNNetwork
from .registry import PUBLISHED, method


class GCNMethod(layers.Classifier):
    """The GCN with mean readout, trained with a loss that uses the source sites.

    A batch holds 2 ``cell_batch`` scans of each site (8 by default), from which a loss estimates whatever it needs to
    know about a site. A larger ``cell_batch`` gives better estimates but fewer steps.
    """

    settings: layers.GraphSettings

    network_class: ClassVar[type[nn.Module]] = GCNNetwork


@dataclass(frozen=True)
class AnnealedSettings(layers.GraphSettings):
    """Settings of a penalty whose weight is initially 1.

    Attributes
    ----------
    penalty : float
        Weight of the penalty after annealing.
    annealing : float
        Share of the epochs, counted from the first, in which the penalty has weight 1. Checkpoints of these epochs
        cannot be chosen.
    """

    penalty: Weight = 1.0
    annealing: ShareBelowOne = 0.1


class AnnealedMethod(GCNMethod):
    """The mean risk and a penalty whose weight jumps when annealing ends.

    The optimiser is then reset, because its running averages come from gradients of a different scale.
    """

    settings: AnnealedSettings
    penalty: Callable[[Tensor, Batch], Tensor]
    """The penalty of logits [B], before its weight."""

    def stages(self) -> list[Stage]:
        s = self.settings
        first = min(max(round(s.annealing * s.epochs), int(s.annealing > 0)), s.epochs - 1)
        penalised = Stage("penalised", s.epochs - first, fresh_optimiser=True)
        return [Stage("annealing", first, selectable=False), penalised]

    def loss(self, out: Output, batch: Batch) -> Tensor:
        weight = 1.0 if batch.stage.name == "annealing" else self.settings.penalty
        return layers.classification_loss(out.logit, batch) + weight * self.penalty(out.logit, batch)


@dataclass(frozen=True)
class CORALSettings(layers.GraphSettings):
    """Settings of CORAL.

    Attributes
    ----------
    penalty : float
        Weight of the penalty on differences between source sites.
    means : bool
        Whether means are compared too, as in DomainBed; the paper compares only covariances.
    """

    penalty: Weight = setting(1.0, log_uniform(0.1, 10.0))
    means: bool = True


def coral_penalty(x: Tensor, batch: Batch, means: bool) -> Tensor:
    """Average over pairs of source sites the mean squared entry of C_e - C_e' (and of m_e - m_e').

    C is the centred covariance of the site's scans in the batch, both classes together. With 8 scans its rank is at
    most 7, and the distance between two such estimates is mostly noise. This also applies to the published code.

    Shapes: x [B, d].
    """
    of_site = x.unflatten(0, (batch.cells[0], -1))  # [E, 2 n, d]
    mean = of_site.mean(1, keepdim=True)
    centred = of_site - mean
    covariance = centred.transpose(-1, -2) @ centred / (of_site.shape[1] - 1)
    distance = _subtract_pairs(covariance.flatten(1)).square().mean(-1)
    if means:
        distance = distance + _subtract_pairs(mean.squeeze(1)).square().mean(-1)
    return (batch.pair_weight * distance).sum()


def _subtract_pairs(x: Tensor) -> Tensor:
    """Compute x_e - x_e' for e < e', in the order of ``batch.pair_weight``. Shape [E, k] -> [E (E - 1) / 2, k].

    As a product with a constant matrix: its gradient is summed in the same order every time, unlike that of indexing.
    """
    one = torch.eye(len(x), device=x.device, dtype=x.dtype)
    first, second = torch.triu_indices(len(x), len(x), 1, device=x.device)
    return (one[first] - one[second]) @ x


@method("coral", family="OOD", needs={"sites"}, provenance=PUBLISHED, reference="Sun & Saenko 2016; DomainBed")
class CORAL(GCNMethod):
    """GCN whose pooled states have similar covariances (and means) at all source sites."""

    settings: CORALSettings

    def loss(self, out: Output, batch: Batch) -> Tensor:
        penalty = coral_penalty(out.representation, batch, self.settings.means)
        return layers.classification_loss(out.logit, batch) + self.settings.penalty * penalty


@dataclass(frozen=True)
class IRMSettings(AnnealedSettings):
    """Settings of IRM.

    Attributes
    ----------
    penalty : float
        Weight of the penalty after annealing. Published values differ by four orders of magnitude: 100 in DomainBed,
        0.01 for connectomes. A very large weight makes all logits equal.
    """

    penalty: Weight = setting(1.0, choice(0.01, 1.0, 100.0))


def irm_penalty(logit: Tensor, batch: Batch) -> Tensor:
    """Average over source sites the squared derivative of a site's risk with respect to a logit scale w, at w = 1.

    This is IRMv1. For cross-entropy the derivative is known, d/dw bce(w z, y) = (sigmoid(z) - y) z at w = 1, so one
    backward pass is enough. The square of a mean over a few scans would mostly be noise. The product of the means over
    two halves of the site's scans, each with both classes, is an unbiased estimate, and can be negative. If a batch has
    one scan of each class, there are no halves, and the square is used. The halves are not independent if a site has
    fewer scans of a class than a batch needs.

    Shapes: logit [B].
    """
    derivative = ((logit.sigmoid() - batch.label) * logit).unflatten(0, batch.cells)  # [E, 2, n]
    halves = (derivative[..., ::2], derivative[..., 1::2]) if batch.cells[2] > 1 else (derivative, derivative)
    first, second = (half.mean((1, 2)) for half in halves)
    return (batch.site_weight * first * second).sum()


@method("irm", family="OOD", needs={"sites"}, provenance=PUBLISHED, reference="Arjovsky et al. 2019; DomainBed")
class IRM(AnnealedMethod):
    """GCN whose classifier is optimal in scale at every source site (IRMv1)."""

    settings: IRMSettings
    penalty = staticmethod(irm_penalty)


@dataclass(frozen=True)
class VRExSettings(AnnealedSettings):
    """Settings of V-REx.

    Attributes
    ----------
    penalty : float
        Weight of the variance after annealing.
    """

    penalty: Weight = setting(10.0, log_uniform(0.1, 1000.0))


def vrex_penalty(logit: Tensor, batch: Batch) -> Tensor:
    """Compute the variance of the risks of the source sites.

    The risk of a site is estimated from a few scans (8 by default), so part of the variance is sampling noise.

    Shapes: logit [B].
    """
    risk = layers.average_by_site(layers.bce(logit, batch.label), batch)
    mean = (batch.site_weight * risk).sum()
    return (batch.site_weight * (risk - mean).square()).sum()


@method("vrex", family="OOD", needs={"sites"}, provenance=PUBLISHED, reference="Krueger et al. 2021; DomainBed")
class VREx(AnnealedMethod):
    """GCN with a penalty on the variance of the source sites' risks."""

    settings: VRExSettings
    penalty = staticmethod(vrex_penalty)


@dataclass(frozen=True)
class GroupDROSettings(layers.GraphSettings):
    """Settings of GroupDRO.

    Attributes
    ----------
    step_size : float
        How fast the weights of the source sites adapt to their losses.
    """

    step_size: Annotated[float, Meta(ge=0, le=100)] = setting(0.01, log_uniform(0.001, 0.1))


class GroupOutput(NamedTuple):
    """Output of the network in training."""

    logit: Tensor  # [B]
    representation: Tensor  # [B, width]
    log_share: Tensor  # [E] log weight of each source site, up to a constant: the buffer, which the loss moves


class GroupDRONetwork(GCNNetwork):
    """The GCN with a buffer for the weights of the source sites."""

    log_share: Tensor

    def __init__(self, shape: InputShape, s: GroupDROSettings) -> None:
        super().__init__(shape, s)
        self.register_buffer("log_share", torch.zeros(shape.n_sites))

    def forward(self, scans: Scans, step: StepContext | None = None) -> Any:
        """Return a :class:`GroupOutput` in training, otherwise an :class:`~brio.training.Output`."""
        out = super().forward(scans, step)
        return out if step is None else GroupOutput(*out, self.log_share)


@method("groupdro", family="OOD", needs={"sites"}, provenance=PUBLISHED, reference="Sagawa et al. 2020; DomainBed")
class GroupDRO(GCNMethod):
    """GCN that gives larger weights to source sites with larger losses so far."""

    settings: GroupDROSettings
    network_class = GroupDRONetwork
    training_only = site_rows = ("log_share",)

    def loss(self, out: GroupOutput, batch: Batch) -> Tensor:
        """Take one exponentiated-gradient step of the site weights, then average the losses of the sites by them."""
        losses = layers.average_by_site(layers.bce(out.logit, batch.label), batch)
        real = (batch.site_weight > 0).to(losses.dtype)
        out.log_share.add_(self.settings.step_size * real * losses.detach())
        share = torch.where(real > 0, out.log_share, torch.full_like(losses, -torch.inf)).softmax(0)
        return (share * losses).sum()


@dataclass(frozen=True)
class DANNSettings(layers.GraphSettings):
    """Settings of DANN.

    Attributes
    ----------
    strength : float
        Scale of the reversed gradient at the end of its ramp.
    """

    strength: Weight = setting(1.0, log_uniform(0.01, 10.0))


class SiteOutput(NamedTuple):
    """Output of the network in training."""

    logit: Tensor  # [B]
    representation: Tensor  # [B, width]
    site_logit: Tensor  # [B, E] its gradient reaches the features, reversed
    detached_site_logit: Tensor  # [B, E] the same numbers; their gradient stops at the site classifier


class DANNNetwork(GCNNetwork):
    """The GCN and a site classifier with one hidden layer, used only in training."""

    def __init__(self, shape: InputShape, s: DANNSettings) -> None:
        super().__init__(shape, s)
        self.site = nn.Sequential(nn.Linear(s.width, s.width), nn.ReLU(), nn.Linear(s.width, shape.n_sites))
        for p in self.site[-1].parameters():
            nn.init.zeros_(p)  # it has as many rows as the stack has sites, and no random draw may depend on that

    def forward(self, scans: Scans, step: StepContext | None = None) -> Any:
        """Return a :class:`SiteOutput` in training, otherwise an :class:`~brio.training.Output`."""
        out = super().forward(scans, step)
        if step is None:
            return out
        h = out.representation
        return SiteOutput(out.logit, h, self.site(layers.reverse_gradient(h, 1.0)), self.site(h.detach()))


def ramp_up(epoch: Tensor, epochs: int) -> Tensor:
    """Scale the reversed gradient from 0 in the first epoch to almost 1 in the last (Ganin et al.)."""
    progress = (epoch - 1) / max(1, epochs - 1)
    return 2 * torch.sigmoid(10 * progress) - 1


@method("dann", family="OOD", needs={"sites"}, provenance=PUBLISHED, reference="Ganin et al. 2016")
class DANN(GCNMethod):
    """GCN trained against a source-site classifier through gradient reversal."""

    settings: DANNSettings
    network_class = DANNNetwork
    training_only = ("site",)
    site_rows = ("site.2.weight", "site.2.bias")

    def loss(self, out: SiteOutput, batch: Batch) -> Tensor:
        """Add the risks of both classifiers.

        The ramp scales only the gradient of the features; the site classifier always gets its full gradient.
        """
        size = self.settings.strength * ramp_up(batch.epoch, self.settings.epochs)
        adversarial = size * layers.site_cross_entropy(out.site_logit, batch)
        detached = (1 - size) * layers.site_cross_entropy(out.detached_site_logit, batch)
        return layers.classification_loss(out.logit, batch) + adversarial + detached

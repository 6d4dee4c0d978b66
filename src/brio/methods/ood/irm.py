"""IRM: a classifier whose scale is optimal at every source site."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ...domains import Weight
from ...settings import setting
from ...spaces import choice
from ...training import Batch
from ..provenance import PUBLISHED
from ..registry import method
from .backbone import AnnealedMethod, AnnealedSettings


@dataclass(frozen=True)
class IRMSettings(AnnealedSettings):
    """Settings of IRM."""

    penalty: Weight = setting(1.0, choice(0.01, 1.0, 100.0))


def irm_penalty(logit: Tensor, batch: Batch) -> Tensor:
    """Average over source sites the squared derivative of the site's risk by a factor w on the logits, at w = 1.

    This is IRMv1. For cross-entropy the derivative is known, d/dw bce(w z, y) = (sigmoid(z) - y) z at w = 1, so one
    backward pass is enough. The square of a mean over a few scans would mostly be noise. The product of the means over
    two halves of the site's scans, each with both classes, is an unbiased estimate, and can be negative. Where a batch
    has one scan of each class, there are no halves and the square is used. Halves are not independent where a site
    has fewer scans of a class than a batch takes.

    Shapes: logit [B].
    """
    derivative = ((logit.sigmoid() - batch.label) * logit).unflatten(0, batch.cells)  # [E, 2, n]
    halves = (derivative[..., ::2], derivative[..., 1::2]) if batch.cells[2] > 1 else (derivative, derivative)
    first, second = (half.mean((1, 2)) for half in halves)
    return (batch.site_weight * first * second).sum()


@method("irm", family="OOD", needs={"sites"}, provenance=PUBLISHED, reference="Arjovsky et al. 2019; DomainBed")
class IRM(AnnealedMethod):
    """GCN whose classifier is optimal in scale at every source site (IRMv1)."""

    Settings = IRMSettings
    settings: IRMSettings

    def penalty(self, logit: Tensor, batch: Batch) -> Tensor:
        return irm_penalty(logit, batch)

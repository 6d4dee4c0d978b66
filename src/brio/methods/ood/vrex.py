"""V-REx: penalise the variance of the risks of the source sites."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ...domains import Weight
from ...settings import setting
from ...spaces import log_uniform
from ...training import Batch
from ..losses import average_by_site, bce
from ..provenance import PUBLISHED
from ..registry import method
from .backbone import AnnealedMethod, AnnealedSettings


@dataclass(frozen=True)
class VRExSettings(AnnealedSettings):
    """Settings of V-REx."""

    penalty: Weight = setting(10.0, log_uniform(0.1, 1000.0))


def vrex_penalty(logit: Tensor, batch: Batch) -> Tensor:
    """Compute the variance of the risks of the source sites.

    The risk of a site is estimated from a few scans (8 by default), so part of the variance is sampling noise.

    Shapes: logit [B].
    """
    risk = average_by_site(bce(logit, batch.label), batch)
    mean = (batch.site_weight * risk).sum()
    return (batch.site_weight * (risk - mean).square()).sum()


@method("vrex", family="OOD", needs={"sites"}, provenance=PUBLISHED, reference="Krueger et al. 2021; DomainBed")
class VREx(AnnealedMethod):
    """GCN with a penalty on the variance of the source sites' risks."""

    Settings = VRExSettings
    settings: VRExSettings

    def penalty(self, logit: Tensor, batch: Batch) -> Tensor:
        return vrex_penalty(logit, batch)

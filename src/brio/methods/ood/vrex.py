"""V-REx: source sites with equal risks."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ...settings import setting
from ...spaces import log_uniform
from ...training import Batch
from ..losses import bce, site_losses
from ..registry import PUBLISHED, method
from .backbone import AnnealedMethod, AnnealedSettings

__all__ = ["VREx", "VRExSettings", "vrex_penalty"]


@dataclass(frozen=True)
class VRExSettings(AnnealedSettings):
    """Settings of V-REx.

    Attributes
    ----------
    penalty : float
        Weight of the variance once the annealing is over.
    """

    penalty: float = setting(10.0, log_uniform(0.1, 1000.0))


def vrex_penalty(logit: Tensor, batch: Batch) -> Tensor:
    """Variance of the source sites' risks about their mean.

    The risk of a site over 8 scans varies by itself, so part of the variance does not come from the site.

    Parameters
    ----------
    logit : Tensor, shape [B]
    """
    risk = site_losses(bce(logit, batch.label), batch)
    mean = (batch.site_weight * risk).sum()
    return (batch.site_weight * (risk - mean).square()).sum()


@method("vrex", family="OOD", needs={"sites"}, provenance=PUBLISHED, reference="Krueger et al. 2021; DomainBed")
class VREx(AnnealedMethod):
    """GCN with the variance of the source sites' risks as a penalty."""

    Settings = VRExSettings
    settings: VRExSettings

    def penalty(self, logit: Tensor, batch: Batch) -> Tensor:
        return vrex_penalty(logit, batch)

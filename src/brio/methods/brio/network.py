"""From graphs to factors, contributions and a logit, Eqs. (8)-(10)."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...training import RunState, Scans, StepContext
from .assignment import Assignment
from .encoder import SignedEncoder
from .settings import BrioSettings


class FactorOutput(NamedTuple):
    """What the network returns for each graph."""

    logit: Tensor  # [B] z, Eq. (10)
    representation: Tensor  # [B, J * d_t] s, Eq. (9)
    factors: Tensor  # [B, J, d_t] r, Eq. (8), unit norm
    contributions: Tensor  # [B, J] a, Eq. (10)


class FactorMap(nn.Module):
    """F_phi of Eq. (8): a bias-free projection and an MLP, both outputs on the unit sphere."""

    def __init__(self, d_h: int, d_t: int, d_mlp: int, bias: bool) -> None:
        super().__init__()
        self.project = nn.Linear(d_h, d_t, bias=False)
        self.widen = nn.Linear(d_t, d_mlp, bias=bias)
        self.narrow = nn.Linear(d_mlp, d_t, bias=bias)

    def forward(self, pooled: Tensor) -> Tensor:
        """Shape [..., d_h] -> [..., d_t], unit norm."""
        x = F.normalize(self.project(pooled), dim=-1)
        return F.normalize(self.narrow(F.gelu(self.widen(x))), dim=-1)


class BrioNetwork(nn.Module):
    """The whole network of one run.

    It reads the learned support ``S``, the ``mean`` connectome, which fills ROIs without signal, the mean and SD of the
    descriptors (``c_mean``, ``c_sd``) where they are standardised, and, once the warm-up is over, the cached assignment
    ``Pi_bar``.
    """

    def __init__(self, n_rois: int, s: BrioSettings) -> None:
        super().__init__()
        self.encoder = SignedEncoder(n_rois, s.d_e, s.d_h, s.layers, s.roi_scale)
        self.assignment = Assignment(s.J, s.d_e, s.d_qk, s.temperature, s.assignment_iterations)
        self.factor_map = FactorMap(s.d_h, s.d_t, s.d_mlp, s.mlp_bias)
        bound = 1.0 / math.sqrt(s.J * s.d_t)  # as a linear layer on the concatenated factors would start
        self.w = nn.Parameter(torch.empty(s.J, s.d_t).uniform_(-bound, bound))
        self.b = nn.Parameter(torch.zeros(()))

    def forward(self, scans: Scans, state: RunState, step: StepContext | None = None) -> FactorOutput:
        """Compute factors, contributions and logits of B graphs."""
        J = len(self.w)
        learned = state.learned
        standard = (learned.get("c_mean"), learned.get("c_sd"))
        H = self.encoder(scans.A, learned["S"], scans.alive, learned["mean"], *standard)
        Pi = state.inference["Pi_bar"] if "Pi_bar" in state.inference else self.assignment(self.encoder.roi)
        factors = self.factor_map(J * (Pi @ H))
        contributions = (factors * self.w).sum(-1)
        return FactorOutput(
            logit=contributions.sum(-1) / math.sqrt(J) + self.b,
            representation=factors.flatten(-2) / math.sqrt(J),
            factors=factors,
            contributions=contributions,
        )

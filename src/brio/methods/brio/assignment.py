"""The shared balanced assignment of ROIs to factors, Eq. (7)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def balanced(similarity: Tensor, iterations: int) -> Tensor:
    """Assignment Pi with row sums 1/J and column sums 1/P by log-domain scaling, Eq. (7).

    The last update is that of the columns, whose sums are exact.

    Shapes: similarity [J, P].
    """
    J, P = similarity.shape[-2:]
    log_pi = similarity
    for _ in range(iterations):
        log_pi = torch.log_softmax(log_pi, dim=-1) - math.log(J)
        log_pi = torch.log_softmax(log_pi, dim=-2) - math.log(P)
    return log_pi.exp()


class Assignment(nn.Module):
    """Learnable queries Q and keys of ROI embeddings; scaled dot products, balanced."""

    def __init__(self, J: int, d_e: int, d_qk: int, temperature: float, iterations: int) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(J, d_qk))  # Q
        self.keys = nn.Linear(d_e, d_qk, bias=False)  # omega
        self.scale = 1.0 / (math.sqrt(d_qk) * temperature)
        self.iterations = iterations

    def forward(self, roi: Tensor) -> Tensor:
        """Pi = A_omega(Q, E^ROI). Shape [P, d_e] -> [J, P]."""
        return balanced(self.scale * self.queries @ self.keys(roi).transpose(-1, -2), self.iterations)

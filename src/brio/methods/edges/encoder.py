"""The graph encoder that methods with edge scores share."""

from __future__ import annotations

from torch import Tensor, nn

from ...training import StepContext
from ..layers import BatchNorm, Dropout, GINLayer, Identity, Linear


class GINEncoder(nn.Module):
    """A linear layer, then GIN layers.

    Each GIN layer is followed by ReLU and dropout and, if ``norm_and_residual``, by batch norm before the ReLU and a
    residual connection after it.
    """

    def __init__(self, n_in: int, width: int, layers: int, dropout: float, norm_and_residual: bool = False) -> None:
        super().__init__()
        self.embed = Linear(n_in, width)
        self.layers = nn.ModuleList(GINLayer(width, width) for _ in range(layers))
        self.norms = nn.ModuleList(BatchNorm(width) if norm_and_residual else Identity() for _ in range(layers))
        self.norm_and_residual = norm_and_residual
        self.dropout = Dropout(dropout)

    def forward(self, X: Tensor, A: Tensor, step: StepContext | None = None) -> Tensor:
        """Encode the ROIs of graphs.

        Shapes: X [B, P, n_in], A [B, P, P]; returns [B, P, width].
        """
        H = self.embed(X)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            new = norm(layer(H, A, step), step).relu()
            H = self.dropout(H + new if self.norm_and_residual else new, step)
        return H

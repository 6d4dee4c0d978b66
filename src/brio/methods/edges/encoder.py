"""The graph encoder that methods with edge scores share."""

from __future__ import annotations

from torch import Tensor, nn

from ...training import StepContext
from ..layers import BatchNorm, Dropout, GINLayer, Identity, Linear

__all__ = ["GINEncoder"]


class GINEncoder(nn.Module):
    """A linear layer, then GIN layers, each followed by (batch norm,) ReLU, (a residual connection) and dropout.

    Parameters
    ----------
    n_in : int
        Features of each ROI.
    width, layers : int
        Hidden width and number of GIN layers.
    dropout : float
    residual : bool
        With batch norm and a residual connection.
    """

    def __init__(self, n_in: int, width: int, layers: int, dropout: float, residual: bool = False) -> None:
        super().__init__()
        self.embed = Linear(n_in, width)
        self.layers = nn.ModuleList(GINLayer(width, width) for _ in range(layers))
        self.norms = nn.ModuleList(BatchNorm(width) if residual else Identity() for _ in range(layers))
        self.residual = residual
        self.dropout = Dropout(dropout)

    def forward(self, X: Tensor, A: Tensor, step: StepContext | None = None) -> Tensor:
        """Encode the ROIs of graphs.

        Parameters
        ----------
        X : Tensor, shape [B, P, n_in]
        A : Tensor, shape [B, P, P]
            A[u, v] weighs the message from v to u.
        step : StepContext or None

        Returns
        -------
        Tensor, shape [B, P, width]
        """
        H = self.embed(X)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            new = norm(layer(H, A, step), step).relu()
            H = self.dropout(H + new if self.residual else new, step)
        return H

"""The graph encoder that methods with edge scores share."""

from __future__ import annotations

from torch import Tensor, nn

from ...training import StepContext
from ..layers import BatchNorm, Dropout, GINLayer, Identity, Linear

__all__ = ["GINEncoder"]


class GINEncoder(nn.Module):
    """A linear layer, then GIN layers.

    Each GIN layer is followed by ReLU and dropout and, if ``norm_and_residual``, by batch norm before the ReLU and a
    residual connection after it.

    Parameters
    ----------
    n_in : int
        Features of each ROI.
    width, layers : int
        Hidden width and number of GIN layers.
    dropout : float
        Share of hidden units dropped in training.
    norm_and_residual : bool
        Whether each layer has batch norm and a residual connection.
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

        Parameters
        ----------
        X : Tensor, shape [B, P, n_in]
        A : Tensor, shape [B, P, P]
            A[b, u, v] weighs the message from v to u.
        step : StepContext or None
            None at inference.

        Returns
        -------
        Tensor, shape [B, P, width]
        """
        H = self.embed(X)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            new = norm(layer(H, A, step), step).relu()
            H = self.dropout(H + new if self.norm_and_residual else new, step)
        return H

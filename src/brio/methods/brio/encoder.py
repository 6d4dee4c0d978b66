"""The shared signed encoder: supported graphs, local descriptors and two signed layers, Eqs. (4)-(6)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["SignedEncoder", "SignedLayer", "descriptor", "inverse_root_degree", "signed_graphs"]


def signed_graphs(A: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
    """Positive weights G+ and negative-weight magnitudes G- on the support, Eq. (4).

    Parameters
    ----------
    A : Tensor, shape [..., P, P]
    S : Tensor, shape [P, P]
    """
    G = S * A
    return G.clamp_min(0), (-G).clamp_min(0)


def descriptor(G_plus: Tensor, G_minus: Tensor, S: Tensor) -> Tensor:
    """Local connectivity of each ROI: mean positive, mean negative and root mean square weight, Eq. (5).

    Returns
    -------
    Tensor, shape [..., P, 3]
    """
    d = S.sum(-1)  # every ROI selects at least one partner, so no degree is zero
    square = (G_plus.square() + G_minus.square()).sum(-1) / d  # the two channels never overlap
    return torch.stack([G_plus.sum(-1) / d, G_minus.sum(-1) / d, square.sqrt()], dim=-1)


def inverse_root_degree(G: Tensor) -> Tensor:
    """D^(-1/2) of a non-negative graph, zero for ROIs without edges. Shape [..., P, 1]."""
    degree = G.sum(-1, keepdim=True)
    return torch.where(degree > 0, degree.clamp_min(torch.finfo(G.dtype).tiny).rsqrt(), torch.zeros_like(degree))


class SignedLayer(nn.Module):
    """Sum of bias-free maps of self-features and both channels' messages; GELU, residual, LayerNorm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.own = nn.Linear(width, width, bias=False)
        self.positive = nn.Linear(width, width, bias=False)
        self.negative = nn.Linear(width, width, bias=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, H: Tensor, channels: tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Tensor:
        """One layer. H: [B, P, d]; channels: (G, D^(-1/2)) for the positive and the negative graph."""
        (G_plus, root_plus), (G_minus, root_minus) = channels
        # D^(-1/2) G D^(-1/2) H, without ever storing the normalised graph
        plus = root_plus * (G_plus @ (root_plus * H))
        minus = root_minus * (G_minus @ (root_minus * H))
        return self.norm(H + F.gelu(self.own(H) + self.positive(plus) + self.negative(minus)))


class SignedEncoder(nn.Module):
    """ROI embeddings and connectivity to ROI representations H, Eqs. (4)-(6)."""

    def __init__(self, n_rois: int, d_e: int, d_h: int, layers: int) -> None:
        super().__init__()
        self.roi = nn.Parameter(torch.randn(n_rois, d_e))  # E^ROI
        self.phi_in = nn.Linear(d_e + 3, d_h)
        self.layers = nn.ModuleList(SignedLayer(d_h) for _ in range(layers))

    def forward(self, A: Tensor, S: Tensor) -> Tensor:
        """ROI representations of graphs A [B, P, P] on the support S [P, P]. Shape [B, P, d_h]."""
        G_plus, G_minus = signed_graphs(A, S)
        c = descriptor(G_plus, G_minus, S)
        H = self.phi_in(torch.cat([self.roi.expand(*c.shape[:-1], -1), c], dim=-1))
        channels = ((G_plus, inverse_root_degree(G_plus)), (G_minus, inverse_root_degree(G_minus)))
        for layer in self.layers:
            H = layer(H, channels)
        return H

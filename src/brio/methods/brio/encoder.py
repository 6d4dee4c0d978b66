"""The shared signed encoder: supported graphs, local descriptors and two signed layers, Eqs. (4)-(6)."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...connectome import fill_dead
from ...kernels import kernels_run_on
from ..layers import LayerNorm, Linear


def signed_graphs(A: Tensor, S: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the supported graph G, its positive weights G+ and its negative-weight magnitudes G-, Eq. (4).

    Shapes: A [..., P, P], S [P, P].
    """
    G = S * A
    G_plus = G.clamp_min(0)
    return G, G_plus, G_plus - G


def descriptor(G: Tensor, degree_plus: Tensor, degree_minus: Tensor, S: Tensor) -> Tensor:
    """Local connectivity of each ROI: mean positive, mean negative and root mean square weight, Eq. (5).

    Shapes: G [..., P, P], degree_plus, degree_minus [..., P], S [P, P]; returns [..., P, 3].
    """
    d = S.sum(-1)  # every ROI selects at least one partner, so no degree is zero
    return torch.stack([degree_plus / d, degree_minus / d, torch.linalg.vector_norm(G, dim=-1) / d.sqrt()], dim=-1)


def measure_descriptors(graphs: Iterable[tuple[Tensor, Tensor]], S: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """Measure mean and SD over scans of the descriptor of each ROI, with which the encoder standardises it.

    Shapes: graphs [n, P, P], S [P, P], mean [P, P]; returns [P, 3].
    """
    parts = []
    for A, alive in graphs:
        G, G_plus, G_minus = signed_graphs(fill_dead(A, alive, mean), S)
        parts.append(descriptor(G, G_plus.sum(-1), G_minus.sum(-1), S).double())
    c = torch.cat(parts)
    sd = c.std(0, correction=0)
    return c.mean(0).to(S), torch.where(sd > 1e-6 * c.abs().amax(), sd, torch.ones_like(sd)).to(S)


def inverse_root(degree: Tensor) -> Tensor:
    """D^(-1/2) as a column, zero for ROIs without edges. Shape [..., P] -> [..., P, 1]."""
    root = torch.where(degree > 0, degree.clamp_min(torch.finfo(degree.dtype).tiny).rsqrt(), torch.zeros_like(degree))
    return root.unsqueeze(-1)


def find_gpu_twin(A: Tensor, width: int) -> Any:
    """Return the module :mod:`.gpu.encoder` if its kernels can encode graphs A with d_h = ``width``, or else None.

    The kernels need float32, a GPU that runs Triton kernels (:func:`brio.kernels.kernels_run_on`), and d_h of 16, 32,
    48 or 64; the graphs must not need a gradient. Otherwise the encoder computes the same by tensor operations, with
    more time and memory.
    """
    by_shape = width in (16, 32, 48, 64) and A.shape[-1] <= 2**15  # a place in a graph is a 32-bit number
    if not A.is_cuda or A.dtype != torch.float32 or A.requires_grad or not by_shape or not kernels_run_on(A.device):
        return None
    from .gpu import encoder

    return encoder


class SignedLayer(nn.Module):
    """Sum of bias-free maps of self-features and both channels' messages; GELU, residual, LayerNorm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.own = Linear(width, width, bias=False)
        self.positive = Linear(width, width, bias=False)
        self.negative = Linear(width, width, bias=False)
        self.norm = LayerNorm(width)

    def forward(self, H: Tensor, channels: tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Tensor:
        """One layer. H: [B, P, d]; channels: (G, D^(-1/2)) for the positive and the negative graph."""
        (G_plus, root_plus), (G_minus, root_minus) = channels
        # D^(-1/2) G D^(-1/2) H, without ever storing the normalised graph
        plus = root_plus * (G_plus @ (root_plus * H))
        minus = root_minus * (G_minus @ (root_minus * H))
        return self.norm(H + F.gelu(self.own(H) + self.positive(plus) + self.negative(minus)))


class SignedEncoder(nn.Module):
    """ROI embeddings and connectivity to ROI representations H, Eqs. (4)-(6)."""

    def __init__(self, n_rois: int, d_e: int, d_h: int, layers: int, roi_scale: float = 1.0) -> None:
        super().__init__()
        # E^ROI; multiplied in place, since elsewhere than in memory ("meta") torch imports its compiler for a product
        self.roi = nn.Parameter(torch.randn(n_rois, d_e).mul_(roi_scale))
        self.phi_in = Linear(d_e + 3, d_h)
        self.layers = nn.ModuleList(SignedLayer(d_h) for _ in range(layers))

    def forward(
        self,
        A: Tensor,
        S: Tensor,
        alive: Tensor | None = None,
        mean: Tensor | None = None,
        c_mean: Tensor | None = None,
        c_sd: Tensor | None = None,
    ) -> Tensor:
        """Encode graphs.

        Shapes: A [B, P, P], S [P, P], alive [B, P], mean [P, P], c_mean, c_sd [P, 3]; returns [B, P, d_h].
        """
        alive = A.new_ones(A.shape[:-1]) if alive is None else alive
        mean = A.new_zeros(A.shape[-2:]) if mean is None else mean
        c_mean = A.new_zeros(A.shape[-1], 3) if c_mean is None else c_mean
        c_sd = A.new_ones(A.shape[-1], 3) if c_sd is None else c_sd
        twin = find_gpu_twin(A, self.phi_in.out_features)
        if twin is not None:
            return self._encode_on_gpu(twin, (c_mean, c_sd), A, (alive > 0).to(torch.uint8), mean, S.to(torch.uint8))
        G, G_plus, G_minus = signed_graphs(fill_dead(A, alive, mean), S)
        degree_plus, degree_minus = G_plus.sum(-1), G_minus.sum(-1)
        c = (descriptor(G, degree_plus, degree_minus, S) - c_mean) / c_sd
        H = self.phi_in(torch.cat([self.roi.expand(*c.shape[:-1], -1), c], dim=-1))
        channels = ((G_plus, inverse_root(degree_plus)), (G_minus, inverse_root(degree_minus)))
        for layer in self.layers:
            H = layer(H, channels)
        return H

    def _encode_on_gpu(self, twin: Any, standard: tuple[Tensor, Tensor], *graphs: Tensor) -> Tensor:
        """The same by :mod:`.gpu.encoder`."""
        of_roi, of_c = self.phi_in.weight.split([self.roi.shape[-1], 3], dim=1)
        H, root = twin.embed(F.linear(self.roi, of_roi, self.phi_in.bias), of_c, standard, graphs)
        for layer in self.layers:
            assert isinstance(layer, SignedLayer)
            W = torch.stack([layer.own.weight, layer.positive.weight, layer.negative.weight])
            H = twin.signed_layer(H, W, (layer.norm.weight, layer.norm.bias, layer.norm.eps), (*graphs, root))
        return H

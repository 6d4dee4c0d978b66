"""Lists of graph edges, random masks for them, the MLP that scores them, and neural networks that use it.

A graph contains a fifth of all pairs of ROIs. Values are therefore computed on lists of edges, [B, 2 M, h], and
scattered into P x P matrices once they are single numbers. This takes a fifth of the memory of an MLP over all pairs.

Given mean and variance over the edges, a norm is a scale and a shift. For the first layer, both moments follow from the
states of ROIs and the graph. Its norm is therefore applied to ROIs, and nothing as wide as the first layer is
normalised edge by edge.
"""

import itertools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from ...kernels import kernels_run_on
from ...settings import ShareBelowOne, Width, choice, setting
from ...training import Batch, Scans, Stage, StepContext
from .. import layers


class Edges(NamedTuple):
    """The edges of each graph, in both directions.

    The first half of a list holds every pair u < v as the edge from v to u. The second half holds the same pairs in the
    same order as the edge from u to v. A graph with fewer than M edges leaves entries empty.

    Shapes: receiver, sender [B, 2 M], real [B, 2 M].
    """

    receiver: Tensor  # ROIs at the ends of each edge
    sender: Tensor
    real: Tensor  # 1 for edges, 0 for empty entries

    def gather(self, H: Tensor, end: Tensor) -> Tensor:
        """Gather the states at one end of each edge. Shapes: H [B, P, h], end [B, 2 M]; returns [B, 2 M, h]."""
        return H.gather(1, end.unsqueeze(-1).expand(-1, -1, H.shape[-1]))


def list_edges(adjacency: Tensor, share: float) -> Edges:
    """List the edges of graphs whose edges are the strongest ``share`` of all pairs. Shapes: adjacency [B, P, P]."""
    n_graphs, p = adjacency.shape[:2]
    n_pairs = p * (p - 1) // 2
    length = max(1, min(n_pairs, round(share * n_pairs)))
    cell = torch.arange(p * p, device=adjacency.device)
    upper = (adjacency.flatten(1) > 0) & (cell % p > cell // p)
    number = upper.long().cumsum(1)  # index of the edge within its graph, from 1
    entry = torch.where(upper & (number <= length), number - 1, torch.full_like(number, length))
    empty = torch.zeros(n_graphs, length + 1, dtype=torch.long, device=adjacency.device)
    cells = empty.scatter(1, entry, cell.expand(n_graphs, -1))[:, :length]  # empty entries point at the diagonal
    u, v = cells // p, cells % p
    real = (v > u).to(adjacency.dtype)
    return Edges(torch.cat([u, v], 1), torch.cat([v, u], 1), torch.cat([real, real], 1))


def scatter_edges(values: Tensor, edges: Edges, n_rois: int) -> Tensor:
    """Scatter values of edges into matrices of message weights, zero elsewhere.

    Shapes: values [B, ..., 2 M]; returns [B, ..., P, P].
    """
    middle = values.shape[1:-1]
    index = (edges.receiver * n_rois + edges.sender).reshape(len(values), *[1] * len(middle), -1).expand_as(values)
    real = edges.real.reshape(index.shape[0], *[1] * len(middle), -1)
    flat = values.new_zeros(len(values), *middle, n_rois * n_rois).scatter(-1, index, values * real)
    return flat.unflatten(-1, (n_rois, n_rois))


def average_directions(values: Tensor) -> Tensor:
    """Replace the values of both directions of each edge by their mean. Shape [B, ..., 2 M] in and out."""
    return (values + values.roll(values.shape[-1] // 2, -1)) / 2


INITIAL_RATE, DECREMENT, N_INTERVALS = 0.9, 0.1, 10
"""The share of edges that the prior keeps starts at the first value and falls by the second after each interval."""


def sample_concrete(logit: Tensor, step: StepContext | None) -> Tensor:
    """Draw relaxed Bernoulli samples (Maddison et al. 2017) in training; return their probability at inference.

    Shapes: logit [B, ...]; returns [B, ...].
    """
    if step is None:
        return logit.sigmoid()
    u = step.draw_uniform(logit.shape, logit)
    return (logit + u.log() - (-u).log1p()).sigmoid()


def straight_through(probability: Tensor, threshold: Tensor | float) -> Tensor:
    """Binarise values, with the gradient of the original values (Bengio et al. 2013).

    Shapes: probability [...], threshold [...]; returns [...].
    """
    return (probability > threshold).to(probability.dtype) + (probability - probability.detach())


def schedule_keep_rate(epoch: Tensor, epochs: int, final: float) -> Tensor:
    """Schedule r, the share of edges that the prior keeps (GSAT, Miao et al. 2022).

    It starts at 0.9 and falls by 0.1 after every tenth of the epochs, down to ``final``.
    """
    n_falls = torch.div(epoch - 1, max(1, epochs // N_INTERVALS), rounding_mode="floor")
    return (INITIAL_RATE - DECREMENT * n_falls).clamp_min(final)


def plan_decay_stages(epochs: int, final: float) -> list[Stage]:
    """Plan a stage in which r falls, and a second stage in which it is ``final``.

    Checkpoints are chosen only in the second stage, which has at least one epoch.
    """
    falling = max(1, round((INITIAL_RATE - final) / DECREMENT)) * max(1, epochs // N_INTERVALS)
    falling = min(falling, epochs - 1)
    return [Stage("decay", falling, selectable=False), Stage("constant rate", epochs - falling)]


def find_keep_rate(batch: Batch, epochs: int, final: float) -> Tensor | float:
    """Find r in one of the stages of :func:`plan_decay_stages`."""
    return schedule_keep_rate(batch.epoch, epochs, final) if batch.stage.name == "decay" else final


def bernoulli_kl(probability: Tensor, edges: Edges, r: Tensor | float) -> Tensor:
    """KL(Bernoulli(a) || Bernoulli(r)), mean over the edges of each graph.

    Shapes: probability [B, 2 M]; returns [B].
    """
    a = probability.clamp(1e-6, 1 - 1e-6)
    kl = a * (a / r).log() + (1 - a) * ((1 - a) / (1 - r)).log()
    return (kl * edges.real).sum(-1) / edges.real.sum(-1).clamp_min(1)


Moments = tuple[Tensor, Tensor]
KERNEL_WIDTH = 64
"""Width of the widest layer that kernels compute in one block."""


def compute_edge_moments(x: Tensor, real: Tensor) -> Moments:
    """Compute mean and variance over the real edges of each graph.

    Shapes: x [B, 2 M, h], real [B, 2 M]; returns [B, h].
    """
    share = (real / real.sum(1, keepdim=True).clamp_min(1)).unsqueeze(1)  # weighted sums as products: fewer passes
    mean = share @ x
    return mean.squeeze(1), (share @ (x - mean).square()).squeeze(1)


def compute_end_moments(r: Tensor, s: Tensor, edges: Edges) -> Moments:
    """Compute mean and variance of r_u + s_v over the real edges of each graph, without a tensor of edges.

    With N the adjacency matrix of n real edges, d its row sums (and column sums: edges go both ways) and both terms
    centred, the variance is (sum_u d_u (r_u^2 + s_u^2) + 2 sum_u r_u (N s)_u) / n.

    Shapes: r, s [B, P, h]; returns [B, h].
    """
    N = scatter_edges(torch.ones_like(edges.real), edges, r.shape[1])
    degree = N.sum(-1)
    share = (degree / degree.sum(1, keepdim=True).clamp_min(1)).unsqueeze(1)
    mean_r, mean_s = share @ r, share @ s
    r, s = r - mean_r, s - mean_s
    covariance = (r * (N @ s)).sum(1) / degree.sum(1, keepdim=True).clamp_min(1)
    variance = (share @ (r.square() + s.square())).squeeze(1) + 2 * covariance
    return (mean_r + mean_s).squeeze(1), variance.clamp_min(0)


class EdgeInstanceNorm(nn.Module):
    """Normalise each channel over the edges of one graph, in training and at inference, without parameters."""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps

    def compute_affine(
        self, moments: Callable[[], Moments], real: Tensor, step: StepContext | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute k and c such that the norm is k x + c. Shapes: real [B, 2 M]; returns [B, 1, h]."""
        mean, variance = moments()
        k = (variance + self.eps).rsqrt()
        return k.unsqueeze(1), (-mean * k).unsqueeze(1)


class EdgeBatchNorm(layers.BatchNorm):
    """Batch normalisation over all edges of the batch; empty entries of a list do not count.

    Use :meth:`compute_affine`; the ``forward`` of its base class counts all entries.
    """

    def compute_affine(
        self, moments: Callable[[], Moments], real: Tensor, step: StepContext | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute k and c such that the norm is k x + c. Shapes: real [B, 2 M]; returns [B, 1, h]."""
        mean, variance = self.running_mean, self.running_var
        if step is not None:  # pool the moments of the graphs
            graph_mean, graph_variance = moments()
            n_edges = real.sum(1) * step.real
            count = n_edges.sum().clamp_min(1)
            share = (n_edges / count).unsqueeze(-1)
            mean = (share * graph_mean).sum(0)
            variance = (share * (graph_variance + (graph_mean - mean).square())).sum(0)
            self.update_statistics(mean, variance, count, step)
        k = (variance + self.eps).rsqrt() * self.weight
        return k.expand(len(real), 1, -1), (self.bias - mean * k).expand(len(real), 1, -1)


def find_gpu_twin(H: Tensor, widths: Sequence[int]) -> Any:
    """Return the GPU twin of this module, :mod:`.gpu.scorer`, if its kernels can be used.

    The kernels need float32, a GPU that runs Triton kernels (:func:`brio.kernels.kernels_run_on`) and widths of at most
    :data:`KERNEL_WIDTH`. Otherwise tensor operations compute the same, with more time and memory.
    """
    too_wide = max(widths, default=0) > KERNEL_WIDTH
    if not H.is_cuda or H.dtype != torch.float32 or too_wide or not kernels_run_on(H.device):
        return None
    from .gpu import scorer

    return scorer


def add_ends(r: Tensor, s: Tensor, edges: Edges) -> Tensor:
    """Add the terms of both ends, r_u + s_v, for every edge from v to u.

    The gradients of r and s are sums over edges. The GPU twin fixes their order; torch on a GPU does not.

    Shapes: r, s [B, P, h]; returns [B, 2 M, h].
    """
    twin = find_gpu_twin(r, ())
    if twin is not None:
        # numbers of an edge do not depend on each other, so a wide layer is gathered in pieces
        pieces = zip(r.split(KERNEL_WIDTH, -1), s.split(KERNEL_WIDTH, -1), strict=True)
        sums = [twin.add_ends(*ends, edges) for ends in pieces]
        return sums[0] if len(sums) == 1 else torch.cat(sums, -1)
    return edges.gather(r, edges.receiver) + edges.gather(s, edges.sender)


class EdgeMLP(nn.Module):
    """A score for each edge from the states of its ends, MLP(h_u || h_v): linear, norm, ReLU, dropout, ..., linear.

    The first layer has one matrix for each end, so it is applied to ROIs and not to edges. Scores of empty list entries
    are meaningless.
    """

    def __init__(
        self,
        n_in: int,
        widths: Sequence[int],
        dropout: float = 0.0,
        norm: type[EdgeInstanceNorm] | type[EdgeBatchNorm] = EdgeInstanceNorm,
    ) -> None:
        super().__init__()
        self.widths = tuple(widths)
        self.receiver = layers.Linear(n_in, widths[0])
        self.sender = layers.Linear(n_in, widths[0], bias=False)
        self.norms = nn.ModuleList(norm(w) for w in widths)
        self.linears = nn.ModuleList(layers.Linear(a, b) for a, b in itertools.pairwise([*widths, 1]))
        self.dropout = layers.Dropout(dropout)

    def forward(self, H: Tensor, edges: Edges, step: StepContext | None = None) -> Tensor:
        """Score edges. Shapes: H [B, P, n_in]; returns [B, 2 M]."""
        first, *later = cast("list[EdgeInstanceNorm | EdgeBatchNorm]", list(self.norms))
        r, s = self.receiver(H), self.sender(H)
        k, c = first.compute_affine(partial(compute_end_moments, r, s, edges), edges.real, step)
        r, s = torch.addcmul(c, r, k), s * k
        twin = find_gpu_twin(H, self.widths)
        if twin is not None:
            x = twin.apply_first_layer(r, s, edges, *self._linear(0, step))
        else:
            x = self.linears[0](self.dropout(add_ends(r, s, edges).relu(), step))
        compute_moments = compute_edge_moments if twin is None else twin.compute_edge_moments
        for number, norm in enumerate(later, 1):
            k, c = norm.compute_affine(partial(compute_moments, x, edges.real), edges.real, step)
            if twin is not None:
                x = twin.apply_later_layer(x, k.squeeze(1), c.squeeze(1), *self._linear(number, step))
            else:
                x = self.linears[number](self.dropout(torch.addcmul(c, x, k).relu(), step))
        return x.squeeze(-1)

    def _linear(self, number: int, step: StepContext | None) -> tuple[Tensor, Tensor, Tensor | None, float]:
        """Weight and bias of a linear map, and the keys and probability of the dropout before it."""
        linear: Any = self.linears[number]
        p = self.dropout.p
        if step is None or p == 0:
            return linear.weight, linear.bias, None, 0.0
        return linear.weight, linear.bias, step.draw_keys(), p


class GINEncoder(nn.Module):
    """A linear layer, then GIN layers.

    Each GIN layer is followed by ReLU and dropout and, if ``norm_and_residual``, by batch norm before the ReLU and a
    residual connection after it.
    """

    def __init__(self, n_in: int, width: int, n_layers: int, dropout: float, norm_and_residual: bool = False) -> None:
        super().__init__()
        self.embed = layers.Linear(n_in, width)
        self.layers = nn.ModuleList(layers.GINLayer(width, width) for _ in range(n_layers))
        self.norms = nn.ModuleList(
            layers.BatchNorm(width) if norm_and_residual else layers.Identity() for _ in range(n_layers)
        )
        self.norm_and_residual = norm_and_residual
        self.dropout = layers.Dropout(dropout)

    def forward(self, X: Tensor, A: Tensor, step: StepContext | None = None) -> Tensor:
        """Encode the ROIs of graphs. Shapes: X [B, P, n_in], A [B, P, P]; returns [B, P, width]."""
        H = self.embed(X)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            new = norm(layer(H, A, step), step).relu()
            H = self.dropout(H + new if self.norm_and_residual else new, step)
        return H


class EdgeNetwork(nn.Module):
    """A neural network that reads connection profiles and the strong edges of scans."""

    def forward(self, scans: Scans, step: StepContext | None = None) -> Any:
        """Compute logits and representations of scans and, in training, the inputs of the loss."""
        return self.read_graphs(layers.build_profiles(scans), layers.select_strong_edges(scans), step)

    @abstractmethod
    def read_graphs(self, X: Tensor, A: Tensor, step: StepContext | None) -> Any:
        """Compute what :meth:`forward` returns. Shapes: X [B, P, P], A [B, P, P]."""


COPIES = 7
"""Approximate number of copies of the edges' hidden states that a step holds if kernels do not fuse the layers."""


@dataclass(frozen=True)
class EdgeSettings(layers.GraphSettings):
    """Settings of methods that score edges from the states of their ends.

    Attributes
    ----------
    edge_width : int
        Width of the MLP that scores edges: the first hidden layer has four times this many units, the second this many.
        Published code uses ``width`` here: layers of 256 and 64 units cost 16,448 multiplications for each edge and
        step, those of 32 and 8 units 264. Kernels fuse the layers up to ``edge_width=16``. For larger widths, the
        hidden states of all edges are stored. At 64, this takes about 3 GB more for each run of a stack on AAL116
        (2,668 edges in both directions, 136 scans in a batch), and 10 GB more on CC200.
    edge_dropout : float
        Dropout inside the MLP that scores edges.
    """

    dropout: ShareBelowOne = setting(0.3, choice(0.3, 0.5))
    edge_width: Width = 8
    edge_dropout: ShareBelowOne = 0.5


class EdgeMethod(layers.Classifier):
    """A method that scores edges by an MLP; if kernels do not fuse the MLP, memory grows with its width."""

    settings: EdgeSettings

    def estimate_peak_matrices(self) -> float:
        s = self.settings
        stored = COPIES * s.edge_share * 5 * s.edge_width if 4 * s.edge_width > KERNEL_WIDTH else 0.0
        return super().estimate_peak_matrices() + stored

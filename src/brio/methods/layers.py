"""Layers, losses, graphs and the classifier that methods share; a run gives the same numbers alone and in a stack."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..connectome import fill_dead
from ..settings import Layers, LearningRate, PositiveShare, ShareBelowOne, Width, choice, setting
from ..training import Batch, InputShape, NeuralMethod, NeuralSettings, Scans, StepContext
from ..training.random_numbers import drop_out


@dataclass(frozen=True)
class GraphSettings(NeuralSettings):
    """Settings that most graph networks share.

    Attributes
    ----------
    width : int
        Hidden width.
    layers : int
        Number of message-passing layers.
    dropout : float
        Share of the hidden states dropped in training.
    edge_share : float
        Share of a scan's edges that are kept in its graph; those with the largest absolute values are kept.
    """

    learning_rate: LearningRate = setting(1e-3, choice(3e-4, 1e-3, 3e-3))
    width: Width = 64
    layers: Layers = 2
    dropout: ShareBelowOne = setting(0.5, choice(0.2, 0.5))
    edge_share: PositiveShare = 0.2


def build_profiles(scans: Scans) -> Tensor:
    """Build node features: rows of the FC matrix, in which edges of ROIs without signal are filled in.

    Parameters
    ----------
    scans : Scans
        B scans. Their ``state.learned["mean"]``, shape [P, P], contains the values that are filled in.

    Returns
    -------
    Tensor, shape [B, P, P]

    Examples
    --------
    >>> from brio.training import RunState
    >>> scans = Scans.of(torch.eye(5).repeat(2, 1, 1))
    >>> scans = scans._replace(state=RunState.from_learned(mean=torch.zeros(5, 5)))
    >>> build_profiles(scans).shape
    torch.Size([2, 5, 5])
    """
    return fill_dead(scans.A, scans.alive, scans.state.learned["mean"])


def select_strong_edges(scans: Scans) -> Tensor:
    """Select the strongest edges of each scan; the setting ``edge_share`` is their share of all edges.

    Parameters
    ----------
    scans : Scans
        B scans.

    Returns
    -------
    Tensor, shape [B, P, P]
        1 for a selected edge, 0 otherwise; symmetric, with zeros on the diagonal.

    Examples
    --------
    >>> A = torch.tensor([[[0.0, 0.9, 0.1], [0.9, 0.0, -0.5], [0.1, -0.5, 0.0]]])
    >>> select_strong_edges(Scans.of(A)._replace(cut=torch.tensor([0.4])))
    tensor([[[0., 1., 0.],
             [1., 0., 1.],
             [0., 1., 0.]]])
    """
    strength = scans.A.abs()
    return ((strength >= scans.cut[:, None, None]) & (strength > 0)).to(scans.A.dtype)


def normalise_adjacency(A: Tensor) -> Tensor:
    """Compute D^-1/2 (A + I) D^-1/2, where D contains the degrees of A + I (Kipf & Welling 2017).

    Parameters
    ----------
    A : Tensor, shape [..., P, P]
        Non-negative weights of edges.

    Returns
    -------
    Tensor, shape [..., P, P]

    Examples
    --------
    >>> normalise_adjacency(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]])
    """
    looped = A + torch.eye(A.shape[-1], device=A.device, dtype=A.dtype)
    root = looped.sum(-1).rsqrt()
    return root.unsqueeze(-1) * looped * root.unsqueeze(-2)


def bce(logit: Tensor, label: Tensor) -> Tensor:
    """Compute the binary cross-entropy of each scan.

    Parameters
    ----------
    logit : Tensor, shape [B]
    label : Tensor, shape [B]
        Between 0 and 1.

    Returns
    -------
    Tensor, shape [B]

    Examples
    --------
    >>> bce(torch.zeros(2), torch.tensor([0.0, 1.0]))
    tensor([0.6931, 0.6931])
    """
    return F.binary_cross_entropy_with_logits(logit, label, reduction="none")


def classification_loss(logit: Tensor, batch: Batch) -> Tensor:
    """Compute the binary cross-entropy with equal weights for source sites and classes, Eq. (26) of the paper.

    Parameters
    ----------
    logit : Tensor, shape [B]
    batch : Batch

    Returns
    -------
    Tensor, scalar

    Examples
    --------
    >>> step = StepContext(torch.tensor(0), torch.ones(2), torch.zeros(2, dtype=torch.int64))
    >>> scans, share = Scans.of(torch.zeros(2, 3, 3)), torch.full((1, 2), 0.5)
    >>> batch = Batch(scans, share, torch.ones(0), torch.tensor(1.0), step)
    >>> classification_loss(torch.tensor([0.0, 0.0]), batch)
    tensor(0.6931)
    """
    cells = bce(logit, batch.label).unflatten(0, batch.cells).mean(-1)
    return (batch.cell_weight * cells).sum()


class Classifier(NeuralMethod):
    """A method whose network is built from the input shape and the settings; by default, the loss is cross-entropy."""

    network_class: ClassVar[type[nn.Module]]

    def network(self, shape: InputShape) -> nn.Module:
        return self.network_class(shape, self.settings)

    def loss(self, out: Any, batch: Batch) -> Tensor:
        return classification_loss(out.logit, batch)


def average_losses(losses: Tensor, batch: Batch) -> Tensor:
    """Average losses of individual scans with equal weights for source sites and classes.

    Parameters
    ----------
    losses : Tensor, shape [B]
    batch : Batch

    Returns
    -------
    Tensor, scalar

    Examples
    --------
    >>> step = StepContext(torch.tensor(0), torch.ones(2), torch.zeros(2, dtype=torch.int64))
    >>> scans, share = Scans.of(torch.zeros(2, 3, 3)), torch.full((1, 2), 0.5)
    >>> batch = Batch(scans, share, torch.ones(0), torch.tensor(1.0), step)
    >>> average_losses(torch.tensor([1.0, 3.0]), batch)
    tensor(2.)
    """
    return (batch.weight * losses).sum()


def average_by_site(losses: Tensor, batch: Batch) -> Tensor:
    """Average losses of individual scans at each source site, with equal weights for both classes.

    Parameters
    ----------
    losses : Tensor, shape [B]
    batch : Batch

    Returns
    -------
    Tensor, shape [E]
        One loss per site, including sites that pad the stack.

    Examples
    --------
    >>> step = StepContext(torch.tensor(0), torch.ones(4), torch.tensor([0, 0, 1, 1]))
    >>> scans, share = Scans.of(torch.zeros(4, 3, 3)), torch.full((2, 2), 0.25)
    >>> batch = Batch(scans, share, torch.ones(1), torch.tensor(1.0), step)
    >>> average_by_site(torch.tensor([1.0, 3.0, 2.0, 2.0]), batch)
    tensor([2., 2.])
    """
    return losses.unflatten(0, batch.cells).mean((1, 2))


def site_cross_entropy(site_logit: Tensor, batch: Batch) -> Tensor:
    """Compute the cross-entropy of a classifier that predicts the source site.

    Sites that pad the stack are not classes.

    Shapes: site_logit [B, E].
    """
    is_real = batch.site_weight > 0
    masked = torch.where(is_real, site_logit, torch.full_like(site_logit, -1e9))
    is_own = torch.arange(len(is_real), device=site_logit.device) == batch.site[:, None]
    return -(batch.weight * torch.where(is_own, F.log_softmax(masked, -1), torch.zeros_like(masked)).sum(-1)).sum()


def reverse_gradient(x: Tensor, strength: Tensor | float) -> Tensor:
    """Return x; in the backward pass, multiply its gradient by ``-strength`` (Ganin et al. 2016)."""
    return x * -strength + (x * (1.0 + strength)).detach()


class StepLayer(nn.Module):
    """Base class of layers that :class:`Chain` calls as ``layer(x, step)``; ``step`` is None at inference."""


class Identity(StepLayer):
    """Return the input, in place of an optional ``StepLayer``."""

    def forward(self, x: Tensor, step: StepContext | None = None) -> Tensor:
        """Return x."""
        return x


class Chain(nn.Sequential):
    """Layers in sequence, as in ``nn.Sequential``; each ``StepLayer`` also receives the training step.

    Parameters
    ----------
    *args : torch.nn.Module
        Layers, in order.

    Examples
    --------
    >>> Chain(Linear(5, 3), nn.ReLU(), Dropout(0.5))(torch.ones(2, 5)).shape
    torch.Size([2, 3])
    """

    def forward(self, x: Tensor, step: StepContext | None = None) -> Tensor:
        """Apply the layers to x in order."""
        for layer in self:
            x = layer(x, step) if isinstance(layer, StepLayer) else layer(x)
        return x


class Dropout(StepLayer):
    """Dropout that draws the same numbers whether a run is trained alone or in a stack.

    Parameters
    ----------
    p : float
        Share of dropped entries.

    Examples
    --------
    >>> Dropout(0.5)(torch.ones(3))  # without a step, as at inference
    tensor([1., 1., 1.])
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor, step: StepContext | None = None) -> Tensor:
        """Drop entries of x and scale the others by 1 / (1 - p); return x itself at inference. Any shape."""
        return x if step is None or self.p == 0 else drop_out(x, step.draw_keys(), self.p)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute x W^T + b, with the graph as the first axis of x.

    On a GPU, the gradient of the weights is summed within groups of graphs first, because one sum over all graphs keeps
    few processors busy.

    Shapes: x [B, ..., n_in], weight [n_out, n_in], bias [n_out]; returns [B, ..., n_out].
    """
    groups = max(k for k in range(1, 17) if len(x) % k == 0)
    if x.device.type == "cpu" or x.dim() == 2 or groups == 1 or not torch.is_grad_enabled():
        return F.linear(x, weight, bias)
    flat = x.reshape(groups, -1, x.shape[-1])
    y = torch.bmm(flat, weight.T.expand(groups, *weight.T.shape)).reshape(*x.shape[:-1], len(weight))
    return y if bias is None else y + bias


class Linear(nn.Linear):
    """A linear layer for inputs whose first axis is the graph; its parameters are those of ``torch.nn.Linear``.

    Examples
    --------
    >>> Linear(5, 3)(torch.ones(2, 4, 5)).shape
    torch.Size([2, 4, 3])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Map [B, ..., n_in] to [B, ..., n_out]."""
        return linear(input, self.weight, self.bias)


class LayerNorm(nn.LayerNorm):
    """Layer normalisation of the last axis; its parameters are those of ``torch.nn.LayerNorm``.

    On a GPU, if no gradient is needed, the layer uses plain reductions, which are faster for short rows than torch's
    kernel.

    Examples
    --------
    >>> LayerNorm(2)(torch.tensor([[0.0, 2.0]])).round(decimals=3)
    tensor([[-1.,  1.]], grad_fn=<RoundBackward1>)
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalise an input of shape [..., width]."""
        if input.device.type == "cpu" or torch.is_grad_enabled():
            return super().forward(input)
        return self.normalise_by_reductions(input)

    def normalise_by_reductions(self, x: Tensor) -> Tensor:
        """Normalise x of shape [..., width] by the mean and variance of each row."""
        variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
        return torch.addcmul(self.bias, (x - mean) * (variance + self.eps).rsqrt(), self.weight)


class BatchNorm(StepLayer):
    """Batch normalisation with statistics over all axes except the last; graphs that pad the stack are ignored.

    As in ``torch.nn.BatchNorm1d``, the batch is normalised by the biased variance, and the running average uses the
    unbiased one.

    Parameters
    ----------
    width : int
        Length of the last axis.
    momentum : float
        Weight of the newest batch in the running averages.
    eps : float
        Constant added to the variance.

    Examples
    --------
    >>> BatchNorm(3)(torch.zeros(4, 3)).shape
    torch.Size([4, 3])
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def forward(self, x: Tensor, step: StepContext | None = None) -> Tensor:
        """Normalise x of shape [B, ..., width] by the batch statistics or, at inference, by running averages."""
        if step is None:
            return self.scale(x - self.running_mean, self.running_var)
        middle = tuple(range(1, x.dim() - 1))
        real = step.real.repeat(len(x) // len(step.real))  # several passes over the batch may lie end to end
        share = (real / real.sum()).unsqueeze(-1)
        mean = (share * (x.mean(middle) if middle else x)).sum(0)
        centred = x - mean
        square = centred.square()
        variance = (share * (square.mean(middle) if middle else square)).sum(0)
        self.update_statistics(mean, variance, real.sum() * (x[0, ..., 0].numel() if middle else 1), step)
        return self.scale(centred, variance)

    def update_statistics(self, mean: Tensor, variance: Tensor, count: Tensor, step: StepContext) -> None:
        """Move the running averages towards the mean and variance of a batch.

        Parameters
        ----------
        mean, variance : Tensor, shape [width]
        count : Tensor, scalar
            Number of values from which the mean and the variance were computed.
        step : StepContext
            Decides whether the running averages are updated.
        """
        if step.update_statistics:
            unbiased = variance.detach() * count / (count - 1).clamp_min(1)
            self.running_mean.mul_(1 - self.momentum).add_(self.momentum * mean.detach())
            self.running_var.mul_(1 - self.momentum).add_(self.momentum * unbiased)

    def scale(self, centred: Tensor, variance: Tensor) -> Tensor:
        """Divide centred values [..., width] by the root of a variance [width], then apply weight and bias."""
        return centred * ((variance + self.eps).rsqrt() * self.weight) + self.bias


class GCNLayer(nn.Module):
    """Graph convolution A_hat H W + b (Kipf & Welling 2017)."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(n_out, n_in)))
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, H: Tensor, A_hat: Tensor) -> Tensor:
        """Update the states of the nodes. Shapes: H [B, P, n_in], A_hat [B, P, P]; returns [B, P, n_out]."""
        return A_hat @ linear(H, self.weight) + self.bias


class GINLayer(nn.Module):
    """MLP((1 + eps) h_u + sum_v a_uv h_v) with learned eps (Xu et al. 2019).

    The MLP is a linear layer, batch norm, ReLU and a linear layer.
    """

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(()))
        self.update = Chain(Linear(n_in, n_out), BatchNorm(n_out), nn.ReLU(), Linear(n_out, n_out))

    def forward(self, H: Tensor, A: Tensor, step: StepContext | None = None) -> Tensor:
        """Update the states of the nodes. Shapes: H [B, P, n_in], A [B, P, P]; returns [B, P, n_out]."""
        return self.update((1 + self.eps) * H + A @ H, step)


class GATLayer(nn.Module):
    """Masked attention over a node and its neighbours (Velickovic et al. 2018)."""

    def __init__(self, n_in: int, n_out: int, heads: int, concat: bool, dropout: float) -> None:
        super().__init__()
        self.heads, self.concat = heads, concat
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads * n_out, n_in)))
        self.receive = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, n_out)))
        self.send = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, n_out)))
        self.bias = nn.Parameter(torch.zeros(heads * n_out if concat else n_out))
        self.dropout = Dropout(dropout)

    def forward(self, H: Tensor, mask: Tensor, step: StepContext | None = None) -> Tensor:
        """Update the states of the nodes.

        Shapes: H [B, P, n_in], mask [B, P, P]; returns [B, P, heads * n_out], or [B, P, n_out] unless ``concat``.
        """
        x = linear(H, self.weight).unflatten(-1, (self.heads, -1))  # [B, P, heads, d]
        to, of = (x * self.receive).sum(-1), (x * self.send).sum(-1)  # [B, P, heads]
        score = F.leaky_relu(to.transpose(-1, -2).unsqueeze(-1) + of.transpose(-1, -2).unsqueeze(-2), 0.2)
        linked = (mask + torch.eye(mask.shape[-1], device=mask.device, dtype=mask.dtype)).unsqueeze(-3) != 0
        attention = self.dropout(torch.where(linked, score, torch.full_like(score, -1e9)).softmax(-1), step)
        out = (attention @ x.transpose(-2, -3)).transpose(-2, -3)  # [B, P, heads, d]
        return (out.flatten(-2) if self.concat else out.mean(-2)) + self.bias


def build_mlp(*widths: int, dropout: float = 0.0, norm: bool = False) -> Chain:
    """Build linear layers with ReLU, dropout and, if requested, batch norm between them.

    Parameters
    ----------
    *widths : int
        Widths of the input, of each hidden layer and of the output.
    dropout : float
        Share of the hidden units dropped in training.
    norm : bool
        Whether batch normalisation follows the linear map of every hidden layer.

    Returns
    -------
    Chain
        Maps [B, ..., widths[0]] to [B, ..., widths[-1]].

    Examples
    --------
    >>> build_mlp(5, 8, 1, dropout=0.5)(torch.ones(2, 5)).shape
    torch.Size([2, 1])
    """
    layers: list[nn.Module] = []
    for n_in, n_out in itertools.pairwise(widths[:-1]):
        layers += [Linear(n_in, n_out), *([BatchNorm(n_out)] if norm else []), nn.ReLU(), Dropout(dropout)]
    return Chain(*layers, Linear(widths[-2], widths[-1]))

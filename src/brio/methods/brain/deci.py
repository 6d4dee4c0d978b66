"""DeCI: drift and cycle of BOLD time courses, and what networks that read BOLD share.

A neural network that reads time courses has weights for a fixed number of frames, so each scan is cut into windows of
that length. The windows pass through the network like additional scans of the batch, and the outputs are averaged.
Windows of one scan are adjacent, so that scans that pad a stack of runs stay last, because random numbers depend on the
position.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from msgspec import Meta
from torch import Tensor, nn
from torch.nn import functional as F

from ...settings import Layers, LearningRate, RepetitionTime, ShareBelowOne, Width, choice, setting
from ...training import InputShape, NeuralSettings, Output, Scans, StepContext
from ..layers import Chain, Classifier, Dropout, LayerNorm, Linear, linear
from ..registry import follow_paper, method


def split_windows(bold: Tensor, n_windows: int) -> Tensor:
    """Split the BOLD series of scans into windows; those of one scan are adjacent.

    Shapes: bold [B, n_windows * T, P]; returns [B * n_windows, T, P].
    """
    return bold.unflatten(1, (n_windows, -1)).flatten(0, 1)


def repeat_for_windows(x: Tensor, n_windows: int) -> Tensor:
    """Repeat what belongs to a scan for each of its windows. Shape [B, ...] -> [B * n_windows, ...]."""
    return x.unsqueeze(1).expand(-1, n_windows, *x.shape[1:]).flatten(0, 1)


def average_windows(x: Tensor, n_windows: int) -> Tensor:
    """Average over the windows of each scan. Shape [B * n_windows, ...] -> [B, ...]."""
    return x.unflatten(0, (-1, n_windows)).mean(1)


@dataclass(frozen=True)
class BoldSettings(NeuralSettings):
    """Settings of methods that read BOLD; the rule itself is :class:`brio.connectome.BoldRule`.

    Attributes
    ----------
    bold_frames : int
        Number of frames in a window; shorter scans are extended by mirroring their ends.
    bold_windows : int
        Number of windows in a scan, spread evenly over it; if there is only one, it is in the middle. To use all
        frames, divide the length of the longest scan by ``bold_frames`` and round up, for example 3 for scans of up to
        300 frames. The setting must be a number and not "all", because the longest scan may come from the test site.
    bold_tr : float or None
        Repetition time in seconds to which scans are interpolated; ``none`` uses the frames as they are.
    """

    bold_frames: Annotated[int, Meta(ge=8, le=10_000)] = 100
    bold_windows: Annotated[int, Meta(ge=1, le=1_000)] = 3
    bold_tr: RepetitionTime | None = 2.0


class BoldMethod(Classifier):
    """A neural network that reads BOLD; every window takes as much memory as a scan."""

    settings: BoldSettings

    def estimate_peak_matrices(self) -> float:
        return super().estimate_peak_matrices() * self.settings.bold_windows


class LinearConvolutions(nn.Module):
    """Convolutions over time, each followed by batch norm without a nonlinearity: together one convolution.

    Each layer is linear, so the whole is a convolution with a longer kernel. The batch statistics of a layer follow
    from mean and covariance of windows of the input, for any weights. Only the last output is stored, which takes a
    tenth of the memory of computing layer after layer and gives the same numbers. The first layer has stride 2. There
    are no biases, since the norm that follows would remove them.
    """

    def __init__(self, widths: tuple[int, ...], kernels: tuple[int, ...], momentum: float = 0.1) -> None:
        super().__init__()
        self.momentum, self.eps = momentum, 1e-5
        n_in = (1, *widths[:-1])
        bounds = [(a * k) ** -0.5 for a, k in zip(n_in, kernels, strict=True)]
        sizes = list(zip(widths, n_in, kernels, bounds, strict=True))
        self.weights = nn.ParameterList(torch.empty(n, a, k).uniform_(-bound, bound) for n, a, k, bound in sizes)
        self.scales = nn.ParameterList(torch.ones(n) for n in widths)
        self.shifts = nn.ParameterList(torch.zeros(n) for n in widths)
        for i, n in enumerate(widths):
            self.register_buffer(f"running_mean_{i}", torch.zeros(n))
            self.register_buffer(f"running_var_{i}", torch.ones(n))

    def forward(self, x: Tensor, step: StepContext | None = None) -> tuple[Tensor, Tensor]:
        """Compute kernel and offset of the combined convolution; in training, with the statistics of this batch.

        Shapes: x [B, T, P]; returns kernel [channels, taps], offset [channels].
        """
        if step is not None:
            real = repeat_for_windows(step.real, len(x) // len(step.real))
            share = real / (real.sum() * x.shape[-1])
            mean = torch.einsum("b,btp->t", share, x)
            gram = torch.einsum("btp,bsp->ts", x * share[:, None, None], x)
            count = real.sum() * x.shape[-1]
        kernel, offset = x.new_ones(1, 1), x.new_zeros(1)
        positions = x.shape[1]
        for i, (w, scale, shift) in enumerate(zip(self.weights, self.scales, self.shifts, strict=True)):
            stride = 2 if i else 1
            positions = (positions - w.shape[-1]) // 2 + 1 if i == 0 else positions - w.shape[-1] + 1
            offset = w.sum(-1) @ offset
            kernel = _compose(w, kernel, stride)
            taps = kernel.shape[-1]
            running_mean, running_var = getattr(self, f"running_mean_{i}"), getattr(self, f"running_var_{i}")
            if step is not None:
                # moments of the input windows of the layer, found along the diagonal of the Gram matrix
                window_mean = mean.unfold(0, taps, 2)[:positions].mean(0)
                blocks = gram.unfold(0, taps, 2).unfold(1, taps, 2).diagonal(dim1=0, dim2=1)
                products = blocks[..., :positions].mean(-1)
                level = kernel @ window_mean + offset
                variance = ((kernel @ (products - window_mean[:, None] * window_mean)) * kernel).sum(-1).clamp_min(0)
                if step.update_statistics:
                    n = count * positions
                    unbiased = variance.detach() * n / (n - 1).clamp_min(1)
                    running_mean.mul_(1 - self.momentum).add_(self.momentum * level.detach())
                    running_var.mul_(1 - self.momentum).add_(self.momentum * unbiased)
            else:
                level, variance = running_mean, running_var
            gain = scale * (variance + self.eps).rsqrt()
            kernel, offset = gain[:, None] * kernel, gain * (offset - level) + shift
        return kernel, offset


def _compose(weight: Tensor, kernel: Tensor, stride: int) -> Tensor:
    """Kernel of a convolution after another one whose outputs are ``stride`` frames apart. Shape [n, taps]."""
    outer, inner = weight.shape[-1], kernel.shape[-1]
    device = weight.device
    where = stride * torch.arange(outer, device=device)[:, None] + torch.arange(inner, device=device)
    taps = torch.arange(stride * (outer - 1) + inner, device=device)
    place = (where.unsqueeze(-1) == taps).to(weight.dtype)  # [outer, inner, taps]
    return torch.einsum("nck,ci,kit->nt", weight, kernel, place)


class CourseEncoder(nn.Module):
    """Embedding of the time course of each ROI.

    Every frame is normalised over ROIs; convolutions, max pooling and two linear layers follow. Kernels and pools
    shrink if the window is too short for them.
    """

    def __init__(self, n_frames: int, embedding: int, kernel: int) -> None:
        super().__init__()
        kernels = [kernel]
        n = (n_frames - kernel) // 2 + 1
        for _ in range(2):
            kernels.append(min(8, n))
            n -= kernels[-1] - 1
        self.convolutions = LinearConvolutions((32, 32, 16), tuple(kernels))
        self.pool = min(16, n)
        self.n_pools = n // self.pool
        self.embed = nn.Sequential(Linear(16 * self.n_pools, 32), nn.LeakyReLU(0.2), Linear(32, embedding))

    def forward(self, bold: Tensor, alive: Tensor, step: StepContext | None = None) -> Tensor:
        """Embed time courses. Shapes: bold [B, T, P], alive [B, P]; returns [B, P, d]."""
        live = alive.to(bold.dtype).unsqueeze(1)
        share = live / live.sum(-1, keepdim=True)
        centred = bold - (share * bold).sum(-1, keepdim=True)
        course = live * centred * ((share * centred.square()).sum(-1, keepdim=True) + 1e-5).rsqrt()
        kernel, offset = self.convolutions(course, step)
        windows = course.transpose(1, 2).unfold(-1, kernel.shape[-1], 2)[:, :, : self.pool * self.n_pools]
        y = linear(windows.contiguous(), kernel)  # [B, P, positions, channels]
        pooled = y.unflatten(2, (self.n_pools, self.pool)).amax(3) + offset
        return self.embed(pooled.transpose(2, 3).flatten(2))


@dataclass(frozen=True)
class DeCISettings(BoldSettings):
    """Settings of DeCI, as published for the shortest scans of ABIDE (120 frames).

    Attributes
    ----------
    width : int
        Width of the embedding of each ROI's time course, which is also the length of the drift kernels.
    layers : int
        Number of blocks; each subtracts its drift and its cycle from the remainder of the previous block.
    dropout : float
        Share of the hidden values dropped in training.
    """

    learning_rate: LearningRate = setting(1e-3, choice(3e-4, 1e-3, 3e-3))
    width: Width = 64
    layers: Layers = setting(1, choice(1, 2))
    dropout: ShareBelowOne = setting(0.2, choice(0.0, 0.2, 0.5))


class CausalConvolution(nn.Module):
    """Depthwise causal convolution along the last axis, one kernel for each ROI, initialised as the running mean.

    It is written as a product with a triangular matrix for each ROI, which is fastest for a stack of runs.
    """

    def __init__(self, n_rois: int, width: int) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.full((n_rois, width), 1.0 / width))  # by lag
        self.bias = nn.Parameter(torch.zeros(n_rois))

    def forward(self, x: Tensor) -> Tensor:
        """Compute out_i = bias + sum over lags k <= i of kernel_k x_{i-k}. Shape [B, P, d] in and out."""
        d = x.shape[-1]
        band = F.pad(self.kernel.flip(-1), (0, d - 1)).unfold(-1, d, 1)  # row s holds the weights of out_{d-1-s}
        return torch.einsum("bpj,pij->bpi", x, band.flip(-2)) + self.bias[:, None]


class Cycle(nn.Module):
    """The periodic part: a gated linear map and an MLP, each added to its input and normalised."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.gate, self.update = (
            Chain(Linear(width, 2 * width), Dropout(dropout), nn.GELU(), Linear(2 * width, width)) for _ in range(2)
        )
        self.mix = Linear(width, width)
        self.norm_mixed, self.norm_updated = LayerNorm(width, eps=1e-6), LayerNorm(width, eps=1e-6)

    def forward(self, x: Tensor, step: StepContext | None = None) -> Tensor:
        """Extract the cycle from embeddings. Shape [B, P, d] in and out."""
        mixed = self.norm_mixed(x + self.mix(self.gate(x, step).sigmoid() * x))
        return self.norm_updated(mixed + self.update(mixed, step))


class DeCIBlock(nn.Module):
    """Split an embedding into drift, cycle and remainder."""

    def __init__(self, n_rois: int, width: int, dropout: float) -> None:
        super().__init__()
        self.drift = CausalConvolution(n_rois, width)
        self.dropout = Dropout(dropout)
        self.cycle = Cycle(width, dropout)

    def forward(self, x: Tensor, step: StepContext | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Split embeddings x, shape [B, P, d]. Shapes: returns [B, P, d]."""
        drift = self.dropout(self.drift(x), step)
        cycle = self.cycle(x - drift, step)
        return drift, cycle, x - drift - cycle


class DeCINetwork(nn.Module):
    """A linear embedding of each ROI's time course, blocks of drift and cycle, and linear classifiers of their means.

    The mean over ROIs of a linear score is the score of the mean, so the classifiers read pooled drifts and cycles.
    ROIs without signal are left out of the mean. The windows of a scan are averaged in the same way.
    """

    def __init__(self, shape: InputShape, s: DeCISettings) -> None:
        super().__init__()
        self.bold_windows = s.bold_windows
        self.embed = Linear(shape.n_frames // s.bold_windows, s.width)
        self.blocks = nn.ModuleList(DeCIBlock(shape.n_rois, s.width, s.dropout) for _ in range(s.layers))
        self.classify = Linear(2 * s.layers * s.width, 1)

    def forward(self, scans: Scans, step: StepContext | None = None) -> Output:
        """Compute logits and representations of scans."""
        bold = split_windows(scans.bold, self.bold_windows)
        centred = bold - bold.mean(1, keepdim=True)
        course = centred * (centred.square().mean(1, keepdim=True) + 1e-5).rsqrt()
        remainder = self.embed(course.transpose(1, 2).contiguous())  # [B, P, d]
        share = repeat_for_windows(scans.alive, self.bold_windows).to(remainder.dtype)
        share = (share / share.sum(-1, keepdim=True)).unsqueeze(1)  # [B, 1, P]
        pooled = []
        for block in self.blocks:
            drift, cycle, remainder = block(remainder, step)
            pooled += [(share @ drift).squeeze(1), (share @ cycle).squeeze(1)]
        representation = average_windows(torch.cat(pooled, -1), self.bold_windows)
        return Output(self.classify(representation).squeeze(-1), representation)


@method(
    "deci",
    family="brain networks",
    needs={"bold"},
    provenance=follow_paper(
        "its binary loss compares every prediction with the labels of the whole batch, its gradients accumulate over "
        "steps, and its checkpoint is chosen on the fold whose score is reported"
    ),
    reference="DeCI, IEEE TMI 2026, arXiv 2602.08262",
)
class DeCI(BoldMethod):
    """Separates drift and cycle in the BOLD series of each ROI; ROIs stay independent until scores are averaged."""

    settings: DeCISettings
    network_class = DeCINetwork
    peak_matrices_per_scan = 32.0

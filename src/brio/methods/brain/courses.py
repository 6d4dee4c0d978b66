"""Embeddings of the time courses of ROIs: the three convolutions of FBNETGEN, folded into one."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...training import StepContext
from ..layers import Linear, linear
from .bold_windows import repeat_for_windows


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
        """Compute kernel and offset of the whole; in training with the statistics of this batch.

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
    shrink where the window is too short for them.
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
        """Embed time courses.

        Shapes: bold [B, T, P], alive [B, P]; returns [B, P, d].
        """
        live = alive.to(bold.dtype).unsqueeze(1)
        share = live / live.sum(-1, keepdim=True)
        centred = bold - (share * bold).sum(-1, keepdim=True)
        course = live * centred * ((share * centred.square()).sum(-1, keepdim=True) + 1e-5).rsqrt()
        kernel, offset = self.convolutions(course, step)
        windows = course.transpose(1, 2).unfold(-1, kernel.shape[-1], 2)[:, :, : self.pool * self.n_pools]
        y = linear(windows.contiguous(), kernel)  # [B, P, positions, channels]
        pooled = y.unflatten(2, (self.n_pools, self.pool)).amax(3) + offset
        return self.embed(pooled.transpose(2, 3).flatten(2))

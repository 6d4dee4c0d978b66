"""The course of an ROI -> an embedding: FBNETGEN's three convolutions, folded into one."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...training import StepContext
from ..layers import Linear, linear

__all__ = ["CourseEncoder", "LinearConvolutions"]


class LinearConvolutions(nn.Module):
    """Convolutions over time with batch norm after each and nothing between: together one convolution.

    Each layer is linear, so the whole is a convolution with a longer kernel, and the batch statistics of a layer follow
    from mean and covariance of stretches of the input, whatever the weights. Nothing but the last output is held: a
    tenth of the memory of layer after layer, and the same numbers. The first layer moves by two frames. Biases would
    be taken out by the norm that follows; there are none.

    Parameters
    ----------
    widths : ints
        Channels after each layer.
    kernels : ints
        Taps of each layer.
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

    def length(self, n_frames: int) -> int:
        """Positions of the output."""
        n = (n_frames - self.weights[0].shape[-1]) // 2 + 1
        return n - sum(w.shape[-1] - 1 for w in list(self.weights)[1:])

    def forward(self, x: Tensor, step: StepContext | None = None) -> tuple[Tensor, Tensor]:
        """The kernel and the offset of the whole, in training under the statistics of this batch.

        Parameters
        ----------
        x : Tensor, shape [B, T, P]

        Returns
        -------
        kernel : Tensor, shape [channels, taps]
            Of a convolution that moves by two frames.
        offset : Tensor, shape [channels]
        """
        if step is not None:
            share = step.real / (step.real.sum() * x.shape[-1])
            mean = torch.einsum("b,btp->t", share, x)
            gram = torch.einsum("btp,bsp->ts", x * share[:, None, None], x)
            count = step.real.sum() * x.shape[-1]
        kernel, offset = x.new_ones(1, 1), x.new_zeros(1)
        positions = x.shape[1]
        for i, (w, scale, shift) in enumerate(zip(self.weights, self.scales, self.shifts, strict=True)):
            stride = 2 if i else 1
            positions = (positions - w.shape[-1]) // 2 + 1 if i == 0 else positions - w.shape[-1] + 1
            offset = w.sum(-1) @ offset
            kernel = _composed(w, kernel, stride)
            taps = kernel.shape[-1]
            running_mean, running_var = getattr(self, f"running_mean_{i}"), getattr(self, f"running_var_{i}")
            if step is not None:
                # stretches of the input that the layer's positions see: windows along the diagonal of the Gram matrix
                here = mean.unfold(0, taps, 2)[:positions].mean(0)
                pairs = gram.unfold(0, taps, 2).unfold(1, taps, 2).diagonal(dim1=0, dim2=1)[..., :positions].mean(-1)
                level = kernel @ here + offset
                variance = ((kernel @ (pairs - here[:, None] * here)) * kernel).sum(-1).clamp_min(0)
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


def _composed(weight: Tensor, kernel: Tensor, step: int) -> Tensor:
    """Kernel of a convolution after another one whose outputs lie ``step`` frames apart. Shape [n, taps]."""
    outer, inner = weight.shape[-1], kernel.shape[-1]
    device = weight.device
    where = step * torch.arange(outer, device=device)[:, None] + torch.arange(inner, device=device)
    taps = torch.arange(step * (outer - 1) + inner, device=device)
    place = (where.unsqueeze(-1) == taps).to(weight.dtype)  # [outer, inner, taps]
    return torch.einsum("nck,ci,kit->nt", weight, kernel, place)


class CourseEncoder(nn.Module):
    """Embedding of each ROI's course: every frame normalised over ROIs, convolutions, max pooling, two linear layers.

    Kernels and pools shrink where the window is too short for them.
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
        self.pools = n // self.pool
        self.embed = nn.Sequential(Linear(16 * self.pools, 32), nn.LeakyReLU(0.2), Linear(32, embedding))

    def forward(self, bold: Tensor, alive: Tensor, step: StepContext | None = None) -> Tensor:
        """Embeddings [B, P, d] of courses [B, T, P]; an ROI without signal (``alive`` 0) has a flat course."""
        live = alive.to(bold.dtype).unsqueeze(1)
        share = live / live.sum(-1, keepdim=True)
        centred = bold - (share * bold).sum(-1, keepdim=True)
        course = live * centred * ((share * centred.square()).sum(-1, keepdim=True) + 1e-5).rsqrt()
        kernel, offset = self.convolutions(course, step)
        stretches = course.transpose(1, 2).unfold(-1, kernel.shape[-1], 2)[:, :, : self.pool * self.pools]
        y = linear(stretches.contiguous(), kernel)  # [B, P, positions, channels]
        pooled = y.unflatten(2, (self.pools, self.pool)).amax(3) + offset
        return self.embed(pooled.transpose(2, 3).flatten(2))

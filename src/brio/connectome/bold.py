"""BOLD windows of one length: the rule shared by all methods that read time series instead of connectomes.

Scans differ in repetition time and in length, and both reveal the site. Every scan is therefore interpolated linearly
to frames ``tr`` seconds apart, and its middle ``frames`` are used, or several windows of so many frames, spread evenly
over the scan. A scan that is too short is extended by its mirror image at both ends. Nothing is learned from data.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..settings import require


@dataclass(frozen=True)
class BoldRule:
    """Length and repetition time of the BOLD windows that a method reads."""

    frames: int = 100  # frames of a window
    tr: float | None = 2.0  # seconds between its frames; None keeps each scan's own frames
    windows: int = 1

    def __post_init__(self) -> None:
        require(self.frames >= 8, "bold_frames", self.frames, "at least 8")
        require(self.windows >= 1, "bold_windows", self.windows, "at least 1")
        require(self.tr is None or self.tr > 0, "bold_tr", self.tr, "above 0, or none for the scans' own frames")


def bold_positions(n_frames: int, tr: float | None, rule: BoldRule) -> Tensor:
    """Compute where the frames of the windows lie in a scan.

    Shapes: returns [windows * frames].
    """
    ratio = 1.0 if rule.tr is None or tr is None else rule.tr / tr
    length = int((n_frames - 1) / ratio + 1e-9) + 1
    room, last = length - rule.frames, rule.windows - 1
    starts = [room * k // last for k in range(rule.windows)] if last and room > 0 else [room // 2] * rule.windows
    at = (torch.tensor(starts)[:, None] + torch.arange(rule.frames)).flatten()
    if length > 1:
        at = at.remainder(2 * (length - 1))
        at = torch.minimum(at, 2 * (length - 1) - at)
    else:
        at = torch.zeros_like(at)
    return (at.double() * ratio).clamp_max(n_frames - 1)


def interpolate_frames(x: Tensor, position: Tensor) -> Tensor:
    """Interpolate a scan linearly at fractional positions.

    Shapes: x [..., T, P], position [n]; returns [..., n, P].
    """
    before = position.floor().long().clamp_max(x.shape[-2] - 1)
    after = (before + 1).clamp_max(x.shape[-2] - 1)
    share = (position - before).to(x.dtype).unsqueeze(-1)
    return x.index_select(-2, before) * (1 - share) + x.index_select(-2, after) * share

"""BOLD of one length: the rule shared by every method that reads time series instead of connectomes.

Scans differ in repetition time and length, and both give the site away. A scan is read on one clock (linear
interpolation to ``tr`` seconds), and its middle ``frames`` are taken; a scan that is shorter goes on as its own mirror
image at both ends. Nothing is learned, so the rule is the same inside and outside a fold.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..settings import require

__all__ = ["BoldRule", "bold_positions", "bold_window"]


@dataclass(frozen=True)
class BoldRule:
    """Length and clock of the BOLD a method reads.

    Attributes
    ----------
    frames : int
        Frames of the window.
    tr : float or None
        Seconds between its frames; None takes a scan's own frames as they are.
    """

    frames: int = 100
    tr: float | None = 2.0

    def __post_init__(self) -> None:
        require(self.frames >= 8, "bold_frames", self.frames, "at least 8")
        require(self.tr is None or self.tr > 0, "bold_tr", self.tr, "above 0, or none for the scans' own frames")


def bold_positions(n_frames: int, tr: float | None, rule: BoldRule) -> Tensor:
    """Where in a scan the frames of the window lie, counted in the scan's own frames. Shape [frames], float64.

    Examples
    --------
    Five frames of 3 s hold seven frames of 2 s; eight are asked for, so one is mirrored.

    >>> bold_positions(5, 3.0, BoldRule(frames=8, tr=2.0)).mul(3).round().int().tolist()  # in seconds
    [2, 0, 2, 4, 6, 8, 10, 12]
    """
    ratio = 1.0 if rule.tr is None or tr is None else rule.tr / tr
    length = int((n_frames - 1) / ratio + 1e-9) + 1
    at = torch.arange(rule.frames) + (length - rule.frames) // 2
    if length > 1:
        at = at.remainder(2 * (length - 1))
        at = torch.minimum(at, 2 * (length - 1) - at)
    else:
        at = torch.zeros_like(at)
    return (at.double() * ratio).clamp_max(n_frames - 1)


def bold_window(x: Tensor, position: Tensor) -> Tensor:
    """Frames at fractional positions, by linear interpolation.

    Parameters
    ----------
    x : Tensor, shape [..., T, P]
    position : Tensor, shape [frames]

    Returns
    -------
    Tensor, shape [..., frames, P]
    """
    before = position.floor().long().clamp_max(x.shape[-2] - 1)
    after = (before + 1).clamp_max(x.shape[-2] - 1)
    share = (position - before).to(x.dtype).unsqueeze(-1)
    return x.index_select(-2, before) * (1 - share) + x.index_select(-2, after) * share

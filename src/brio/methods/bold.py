"""Settings of methods that read BOLD of one length."""

from __future__ import annotations

from dataclasses import dataclass

from ..training import NeuralSettings

__all__ = ["BoldSettings"]


@dataclass(frozen=True)
class BoldSettings(NeuralSettings):
    """Settings of methods that read BOLD; the rule itself is :class:`brio.connectome.BoldRule`.

    Attributes
    ----------
    bold_frames : int
        Frames of the window, taken from the middle of the scan; shorter scans are mirrored at their ends.
    bold_tr : float or None
        Seconds between frames, to which scans are interpolated; ``none`` takes their own frames as they are.
    """

    epochs: int = 80
    patience: int | None = 25
    bold_frames: int = 100
    bold_tr: float | None = 2.0

"""Settings that several methods share."""

from __future__ import annotations

from dataclasses import dataclass

from ..training import NeuralSettings

__all__ = ["BaselineSettings", "BoldSettings"]


@dataclass(frozen=True)
class BaselineSettings(NeuralSettings):
    """Settings of a network that the paper compares with: fewer epochs than BRIO, which trains in two stages."""

    epochs: int = 80
    patience: int | None = 25


@dataclass(frozen=True)
class BoldSettings(BaselineSettings):
    """Settings of methods that read BOLD; the rule itself is :class:`brio.connectome.BoldRule`.

    Attributes
    ----------
    bold_frames : int
        Frames of the window, taken from the middle of the scan; shorter scans are mirrored at their ends.
    bold_tr : float or None
        Seconds between frames, to which scans are interpolated; ``none`` takes their own frames as they are.
    """

    bold_frames: int = 100
    bold_tr: float | None = 2.0

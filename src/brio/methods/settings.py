"""Settings that several methods share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..domains import Domain
from ..training import NeuralSettings

__all__ = ["BoldSettings"]


@dataclass(frozen=True)
class BoldSettings(NeuralSettings):
    """Settings of methods that read BOLD; the rule itself is :class:`brio.connectome.BoldRule`.

    Attributes
    ----------
    bold_frames : int
        Frames of a window; shorter scans are mirrored at their ends.
    bold_windows : int
        Windows of a scan, spread evenly over it; one lies in the middle. As many as ``bold_frames`` goes into the
        longest scan, rounded up, use all frames: 3 for scans of up to 300 frames. It is a number and not "all", since
        the longest scan may be one of the test site.
    bold_tr : float or None
        Seconds between frames, to which scans are interpolated; ``none`` takes their own frames as they are.
    """

    bold_frames: Annotated[int, Domain(8, 10_000)] = 100
    bold_windows: Annotated[int, Domain(1, 1_000)] = 3
    bold_tr: Annotated[float, Domain(0.01, 100)] | None = 2.0

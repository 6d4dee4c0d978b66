"""Settings that several methods share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..domains import Domain
from ..training import NeuralSettings


@dataclass(frozen=True)
class BoldSettings(NeuralSettings):
    """Settings of methods that read BOLD; the rule itself is :class:`brio.connectome.BoldRule`."""

    bold_frames: Annotated[int, Domain(8, 10_000)] = 100  # frames of a window; shorter scans are mirrored at their ends
    bold_windows: Annotated[int, Domain(1, 1_000)] = 3
    bold_tr: Annotated[float, Domain(0.01, 100)] | None = 2.0

"""Settings of penalised linear models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ...domains import GridSize, Positive
from ...settings import check_domains, require


@dataclass(frozen=True)
class LinearSettings:
    """Settings of a penalised linear model."""

    least_penalty: Positive = 0.1
    largest_penalty: Positive = 10.0
    penalties: GridSize = 5
    choose_by: Literal["validation", "source-sites"] = "validation"
    dead_rois: Literal["source-mean", "zero"] = "source-mean"  # what the edges of an ROI without signal hold

    def __post_init__(self) -> None:
        check_domains(self)
        rule = "at least the least penalty"
        require(self.largest_penalty >= self.least_penalty, "largest_penalty", self.largest_penalty, rule)

    @property
    def grid(self) -> np.ndarray:
        """Penalties to choose from, before they are scaled. Shape [penalties]."""
        return np.logspace(np.log10(self.least_penalty), np.log10(self.largest_penalty), self.penalties)

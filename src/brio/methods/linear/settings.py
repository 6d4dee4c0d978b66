"""Settings of penalised linear models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ...domains import GridSize, Positive
from ...settings import check_domains, require

__all__ = ["LinearSettings"]


@dataclass(frozen=True)
class LinearSettings:
    """Settings of a penalised linear model.

    Attributes
    ----------
    least_penalty, largest_penalty : float
        Ends of the grid of penalties, as multiples of the mean squared norm of the centred features of a source scan,
        so that the same grid serves any atlas and estimator.
    penalties : int
        Number of penalties in the grid, evenly spaced in the logarithm. Of penalties with the same score the strongest
        is chosen.
    choose_by : {"validation", "source-sites"}
        The penalty with the best AUC on the validation scans, as every other method chooses; or with the best mean
        AUC over inner folds, in each of which one source site is withheld. A closed-form model can afford the latter,
        which is less noisy.
    dead_rois : {"source-mean", "zero"}
        What the edges of an ROI without signal hold.
    """

    least_penalty: Positive = 0.1
    largest_penalty: Positive = 10.0
    penalties: GridSize = 5
    choose_by: Literal["validation", "source-sites"] = "validation"
    dead_rois: Literal["source-mean", "zero"] = "source-mean"

    def __post_init__(self) -> None:
        check_domains(self)
        rule = "at least the least penalty"
        require(self.largest_penalty >= self.least_penalty, "largest_penalty", self.largest_penalty, rule)

    @property
    def grid(self) -> np.ndarray:
        """Penalties to choose from, before they are scaled. Shape [penalties]."""
        return np.logspace(np.log10(self.least_penalty), np.log10(self.largest_penalty), self.penalties)

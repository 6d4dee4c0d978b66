"""A method of your own, complete: gated connection profiles.

brio methods --load my_method.py
brio run COHORT --load my_method.py --method gated-profiles --method ridge --seeds 3 --out results
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from brio.authoring import (
    Batch,
    Dropout,
    InputShape,
    NeuralMethod,
    NeuralSettings,
    Output,
    RunState,
    Scans,
    Stage,
    StepContext,
    build_profiles,
    choice,
    classification_loss,
    log_uniform,
    method,
    setting,
)


@dataclass(frozen=True)
class GatedProfilesSettings(NeuralSettings):
    """Settings: a default for each, and a space to tune it over where that is worthwhile."""

    epochs: int = 60
    patience: int | None = 20
    learning_rate: float = setting(1e-3, log_uniform(3e-4, 3e-3))
    dropout: float = setting(0.5, choice(0.2, 0.5, 0.8))
    width: int = 32


class GatedProfiles(nn.Module):
    """A network for ONE run: scans in, a logit and the representation that the classifier reads out."""

    def __init__(self, shape: InputShape, s: GatedProfilesSettings) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(shape.n_rois))
        self.embed = nn.Linear(shape.n_rois, s.width)
        self.dropout = Dropout(s.dropout)  # drops the same entries whether a run trains alone or in a stack
        self.classify = nn.Linear(s.width, 1)

    def forward(self, scans: Scans, state: RunState, step: StepContext | None = None) -> Output:
        """Score B scans; ``step`` is the training step, None at inference."""
        states = self.embed(self.dropout(build_profiles(scans, state), step)).relu()  # [B, P, width]
        pooled = (self.gate.softmax(0)[:, None] * states).sum(1)
        return Output(self.classify(pooled).squeeze(-1), pooled)


@method("gated-profiles", family="mine", provenance="written for this example", reference="you")
class GatedProfilesMethod(NeuralMethod):
    """Connection profiles of ROIs, each weighted by a learned gate."""

    Settings = GatedProfilesSettings
    settings: GatedProfilesSettings

    def network(self, shape: InputShape) -> nn.Module:
        return GatedProfiles(shape, self.settings)

    def loss(self, out: Output, batch: Batch, state: RunState, stage: Stage) -> Tensor:
        return classification_loss(out.logit, batch)

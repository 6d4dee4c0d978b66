"""Settings of BRIO: the paper's values; fields marked (ours) are not given there, or replace what is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from ...connectome import BlockRule
from ...settings import (
    BlockLength,
    Count,
    Domain,
    Epochs,
    Layers,
    LearningRate,
    Positive,
    PositiveShare,
    Share,
    Temperature,
    Weight,
    Width,
    choice,
    require,
    setting,
)
from ...training import NeuralSettings

Variant = Literal["full", "w/o RS", "w/o TR", "w/o SM", "w/o SF", "w/o QG"]


@dataclass(frozen=True)
class BrioSettings(NeuralSettings):
    """Settings of BRIO. Fields marked (ours) are not given in the paper; the documentation page
    on decisions says why each has its value.
    """

    learning_rate: LearningRate = 3e-4
    patience: Epochs | None = None
    cell_batch: Annotated[int, Domain(1, 1_024)] = 1
    cloud: Annotated[int, Domain(1, 1_024)] = 8
    J: Annotated[int, Domain(1, 512)] = 4  # number of connectome factors
    d_e: Width = 16  # widths of ROI embeddings, hidden layers and factors
    d_h: Width = 64
    d_t: Width = 16
    d_mlp: Width = 32  # hidden width of the factor mapping
    d_qk: Width = 32  # width of factor queries and ROI keys
    layers: Layers = 2  # signed layers of the encoder
    temperature: Temperature = 0.10  # of the similarities between factor queries and ROI keys
    assignment_iterations: Count = 60  # log-domain iterations of the balanced assignment
    rho_g: PositiveShare = 0.20  # share of partners each ROI selects into the support S
    T_w: Annotated[int, Domain(0, 100_000)] = 20  # epochs of supervised warm-up (ours)
    M: Annotated[int, Domain(1, 100_000)] = 2
    K: Count = 8  # re-estimates of each scan at a refresh (ours)
    epsilon: Temperature = 0.1  # entropic regularisation of all transport terms (ours)
    sinkhorn_iterations: Count = 30  # iterations of each transport problem (ours)
    lambda_env: Weight = setting(4.0, choice(0.5, 1.0, 2.0, 4.0, 8.0))
    eps_w: Positive = 1e-6  # stabilisers of Eqs. (13) and (16) (ours)
    eps_s: Positive = 1e-6
    eps_q: Positive = 1e-6
    roi_scale: Positive = 1.0  # standard deviation of the ROI embeddings at the start (ours)
    descriptors: Literal["standardised", "raw"] = "standardised"
    mlp_bias: bool = True  # biases in the factor mapping's MLP (ours)
    sites: Literal["own", "shuffled"] = "own"
    variant: Variant = "full"
    block_scale: Annotated[float, Domain(0, 100, above=True)] = 1.0
    block_length: BlockLength | None = None  # A fixed block length instead of the fold-level estimate
    block_subjects: Count = 128  # constants of the block-length rule
    block_signals: Count = 24
    block_products: Count = 48
    tau_ac: PositiveShare = 0.10
    largest_lag: Annotated[int, Domain(2, 10_000)] = 30
    block_quantile: Share = 0.75
    l_min: Count = 2
    l_max: Count = 30

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            0 <= self.T_w < self.epochs,
            "T_w",
            self.T_w,
            f"0 or more and below epochs ({self.epochs}); warm-up and epochs are set together",
        )
        require(self.cloud >= self.cell_batch, "cloud", self.cloud, f"at least cell_batch ({self.cell_batch})")
        require(self.l_max >= self.l_min, "l_max", self.l_max, f"at least l_min ({self.l_min})")
        fits = self.block_length is None or self.block_scale == 1
        require(fits, "block_scale", self.block_scale, "1 where block_length is given")

    @property
    def block_rule(self) -> BlockRule:
        return BlockRule(
            self.block_subjects,
            self.block_signals,
            self.block_products,
            self.tau_ac,
            self.largest_lag,
            self.block_quantile,
            self.l_min,
            self.l_max,
        )

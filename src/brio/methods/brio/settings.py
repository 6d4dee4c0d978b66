"""Settings of BRIO: the paper's values where it gives them, ours where it is silent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...connectome import BlockRule
from ...settings import require, setting
from ...spaces import choice
from ...training import NeuralSettings

__all__ = ["BrioSettings", "Variant"]

Variant = Literal["full", "w/o RS", "w/o TR", "w/o SM", "w/o SF", "w/o QG"]


@dataclass(frozen=True)
class BrioSettings(NeuralSettings):
    """Settings of BRIO. Fields marked (ours) are not given in the paper; the documentation page
    on decisions says why each has its value.

    Attributes
    ----------
    J : int
        Number of connectome factors.
    d_e, d_h, d_t : int
        Widths of ROI embeddings, hidden layers and factors.
    d_mlp : int
        Hidden width of the factor mapping.
    d_qk : int
        Width of factor queries and ROI keys.
    layers : int
        Signed layers of the encoder.
    temperature : float
        Of the similarities between factor queries and ROI keys.
    assignment_iterations : int
        Log-domain iterations of the balanced assignment.
    rho_g : float
        Share of partners each ROI selects into the support S.
    T_w : int
        Epochs of supervised warm-up (ours).
    M : int
        Optimisation steps between qualification refreshes (ours).
    K : int
        Re-estimates of each scan at a refresh (ours).
    epsilon : float
        Entropic regularisation of all transport terms (ours).
    sinkhorn_iterations : int
        Iterations of each transport problem (ours).
    lambda_env : float
        Weight of the alignment loss (ours).
    eps_w, eps_s, eps_q : float
        Stabilisers of Eqs. (13) and (16) (ours).
    roi_scale : float
        Standard deviation of the ROI embeddings at the start (ours).
    descriptors : {"standardised", "raw"}
        How the local connectivity of an ROI, Eq. (5), enters phi_in: each of its three numbers standardised with mean
        and SD over the source scans, or as it is, as up to version 0.1.0 (ours).
    mlp_bias : bool
        Biases in the factor mapping's MLP (ours).
    variant : str
        Full qualification or one of the ablations: without re-estimation support (``w/o RS``), task relevance
        (``w/o TR``), strength modulation (``w/o SM``), weights that favour supported factors (``w/o SF``), or any
        qualification guidance (``w/o QG``). See :func:`~brio.methods.brio.qualification.variant_profile`.
    block_scale : float
        Factor on the estimated block length, before it is rounded (ours; its sensitivity study takes 0.5 and 2).
    block_length : float or None
        A fixed block length instead of the fold-level estimate.
    block_subjects, block_signals, block_products, tau_ac, largest_lag, block_quantile, l_min, l_max
        Constants of the block-length rule.
    """

    learning_rate: float = 3e-4
    patience: int | None = None
    cell_batch: int = 1
    J: int = 4
    d_e: int = 16
    d_h: int = 64
    d_t: int = 16
    d_mlp: int = 32
    d_qk: int = 32
    layers: int = 2
    temperature: float = 0.10
    assignment_iterations: int = 60
    rho_g: float = 0.20
    T_w: int = 20
    M: int = 18
    K: int = 8
    epsilon: float = 0.1
    sinkhorn_iterations: int = 30
    lambda_env: float = setting(0.5, choice(0.1, 0.25, 0.5, 1.0, 2.0))
    eps_w: float = 1e-6
    eps_s: float = 1e-6
    eps_q: float = 1e-6
    roi_scale: float = 1.0
    descriptors: Literal["standardised", "raw"] = "standardised"
    mlp_bias: bool = True
    variant: Variant = "full"
    block_scale: float = 1.0
    block_length: float | None = None
    block_subjects: int = 128
    block_signals: int = 24
    block_products: int = 48
    tau_ac: float = 0.10
    largest_lag: int = 30
    block_quantile: float = 0.75
    l_min: int = 2
    l_max: int = 30

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = [
            "J",
            "d_e",
            "d_h",
            "d_t",
            "d_mlp",
            "d_qk",
            "layers",
            "assignment_iterations",
            "M",
            "K",
            "sinkhorn_iterations",
        ]
        counts += ["block_subjects", "block_signals", "block_products", "l_min"]
        for name in counts:
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ["temperature", "epsilon", "eps_w", "eps_s", "eps_q", "roi_scale", "tau_ac", "block_scale"]:
            require(getattr(self, name) > 0, name, getattr(self, name), "above 0")
        require(
            0 <= self.T_w < self.epochs,
            "T_w",
            self.T_w,
            f"0 or more and below epochs ({self.epochs}); warm-up and epochs are set together",
        )
        require(0 < self.rho_g <= 1, "rho_g", self.rho_g, "above 0 and at most 1")
        require(self.lambda_env >= 0, "lambda_env", self.lambda_env, "0 or more")
        require(0 <= self.block_quantile <= 1, "block_quantile", self.block_quantile, "between 0 and 1")
        require(self.largest_lag >= 2, "largest_lag", self.largest_lag, "at least 2")
        require(self.l_max >= self.l_min, "l_max", self.l_max, f"at least l_min ({self.l_min})")
        fixed = self.block_length
        require(fixed is None or fixed >= 1, "block_length", fixed, "at least 1 frame, or none for the estimate")
        scale = self.block_scale
        require(fixed is None or scale == 1, "block_scale", scale, "1 where block_length is given")

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

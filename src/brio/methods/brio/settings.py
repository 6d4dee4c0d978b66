"""Settings of BRIO: the paper's values, except for fields marked (ours), which it omits or gives differently."""

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from ... import settings
from ...connectome import BlockRule
from ...settings import choice, require, setting
from ...training import NeuralSettings

Variant = Literal["full", "w/o RS", "w/o TR", "w/o SM", "w/o SF", "w/o QG"]


@dataclass(frozen=True)
class BrioSettings(NeuralSettings):
    """Settings of BRIO. Fields marked (ours) are not in the paper, or differ from it; the documentation
    page on decisions says why each has its value.

    Attributes
    ----------
    J : int
        Number of connectome factors.
    d_e, d_h, d_t : int
        Widths of the ROI embeddings (``d_e``), the hidden layers (``d_h``) and the factors (``d_t``).
    d_mlp : int
        Hidden width of the factor mapping.
    d_qk : int
        Width of factor queries and ROI keys.
    layers : int
        Number of signed layers in the encoder.
    temperature : float
        Temperature of the similarities between factor queries and ROI keys.
    assignment_iterations : int
        Number of log-domain iterations of the balanced assignment.
    rho_g : float
        Share of partners that each ROI selects for the support S.
    cloud : int
        Number of scans of each source site and class that are aligned: those of the batch (``cell_batch``) and, without
        gradient, those of the latest steps; fewer if the site has fewer scans of the class (ours).
    T_w : int
        Number of epochs of supervised warm-up (ours).
    M : int
        Number of epochs between qualification refreshes; the paper counts optimisation steps (ours).
    K : int
        Number of re-estimates of each scan at a refresh (ours).
    epsilon : float
        Entropic regularisation of all transport terms (ours).
    sinkhorn_iterations : int
        Number of iterations for each transport problem (ours).
    lambda_env : float
        Weight of the alignment loss (ours).
    eps_w, eps_s, eps_q : float
        Stabilisers of Eqs. (13) and (16) (ours).
    roi_scale : float
        Standard deviation of the ROI embeddings at initialisation (ours).
    descriptors : {"standardised", "raw"}
        How the local connectivity of an ROI, Eq. (5), enters phi_in: with each of its three numbers standardised by its
        mean and SD over the source scans, or unchanged, as in the first version of the method (ours).
    mlp_bias : bool
        Whether the MLP of the factor mapping has biases (ours).
    sites : {"own", "shuffled"}
        Site names of the source scans in training: their own or, to check whether alignment depends on them, names
        that are shuffled among the source scans of each class (ours).
    variant : str
        Full qualification or one of the ablations: without re-estimation support (``w/o RS``), task relevance
        (``w/o TR``), strength modulation (``w/o SM``), weights that favour supported factors (``w/o SF``), or any
        qualification guidance (``w/o QG``). See :func:`~brio.methods.brio.qualification.variant_profile`.
    block_scale : float
        Factor by which the estimated block length is multiplied before rounding (ours; the sensitivity study uses 0.5
        and 2).
    block_length : float or None
        Fixed block length that replaces the estimate for each fold.
    block_subjects, block_signals, block_products, tau_ac, largest_lag, block_quantile, l_min, l_max
        Constants of the block-length rule.
    """

    learning_rate: settings.LearningRate = 3e-4
    patience: settings.Epochs | None = None
    cell_batch: settings.BatchSize = 1
    cloud: settings.BatchSize = 8
    J: Annotated[int, Meta(ge=1, le=512)] = 4
    d_e: settings.Width = 16
    d_h: settings.Width = 64
    d_t: settings.Width = 16
    d_mlp: settings.Width = 32
    d_qk: settings.Width = 32
    layers: settings.Layers = 2
    temperature: settings.Temperature = 0.10
    assignment_iterations: settings.Count = 60
    rho_g: settings.PositiveShare = 0.20
    T_w: Annotated[int, Meta(ge=0, le=100_000)] = 20
    M: Annotated[int, Meta(ge=1, le=100_000)] = 2
    K: settings.Count = 8
    epsilon: settings.Temperature = 0.1
    sinkhorn_iterations: settings.Count = 30
    lambda_env: settings.Weight = setting(4.0, choice(0.5, 1.0, 2.0, 4.0, 8.0))
    eps_w: settings.Positive = 1e-6
    eps_s: settings.Positive = 1e-6
    eps_q: settings.Positive = 1e-6
    roi_scale: settings.Positive = 1.0
    descriptors: Literal["standardised", "raw"] = "standardised"
    mlp_bias: bool = True
    sites: Literal["own", "shuffled"] = "own"
    variant: Variant = "full"
    block_scale: Annotated[float, Meta(gt=0, le=100)] = 1.0
    block_length: settings.BlockLength | None = None
    block_subjects: settings.Count = 128
    block_signals: settings.Count = 24
    block_products: settings.Count = 48
    tau_ac: settings.PositiveShare = 0.10
    largest_lag: Annotated[int, Meta(ge=2, le=10_000)] = 30
    block_quantile: settings.Share = 0.75
    l_min: settings.Count = 2
    l_max: settings.Count = 30

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.T_w < self.epochs, "T_w", self.T_w, f"0 or more and below epochs ({self.epochs})")
        require(self.cloud >= self.cell_batch, "cloud", self.cloud, f"at least cell_batch ({self.cell_batch})")
        require(self.l_max >= self.l_min, "l_max", self.l_max, f"at least l_min ({self.l_min})")
        fits = self.block_length is None or self.block_scale == 1
        require(fits, "block_scale", self.block_scale, "1 if block_length is given")

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

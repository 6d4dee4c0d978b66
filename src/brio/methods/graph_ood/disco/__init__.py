"""DiSCO: several experts, each with its own subgraph, weighted by a sparse gate."""

from .experts import ExpertMasks, GraphExperts, keep_regions, sample_masks
from .gate import ExpertGate, describe_experts, entmax, gate_loss
from .method import DiSCO, DiSCONetwork, DiSCOOutput, DiSCOSettings, excess_correlation, keep_rate_loss

__all__ = [
    "DiSCO",
    "DiSCONetwork",
    "DiSCOOutput",
    "DiSCOSettings",
    "ExpertGate",
    "ExpertMasks",
    "GraphExperts",
    "describe_experts",
    "entmax",
    "excess_correlation",
    "gate_loss",
    "keep_rate_loss",
    "keep_regions",
    "sample_masks",
]

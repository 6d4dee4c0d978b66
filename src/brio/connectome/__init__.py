"""Connectomes: the FC estimator Psi, block length, re-estimation, the propagation support S and harmonisation."""

from .block_length import BlockRule, clip_block_length
from .bold import BoldRule
from .combat import Combat, fit_combat
from .connectomes import Connectomes
from .edges import find_live_edges, read_edges
from .fc import fill_dead, psi
from .harmonisation import (
    HarmonisationRule,
    HarmonisedConnectomes,
    Harmoniser,
    fit_harmoniser,
    harmonise_connectomes,
    require_covariates,
)
from .log_euclidean import log_connectome
from .resampling import ReestimateRequest, reestimate
from .residuals import Residualiser, fit_residualiser
from .support import edge_cut, source_mean, source_strength, sym_top

__all__ = [
    "BlockRule",
    "BoldRule",
    "Combat",
    "Connectomes",
    "HarmonisationRule",
    "HarmonisedConnectomes",
    "Harmoniser",
    "ReestimateRequest",
    "Residualiser",
    "clip_block_length",
    "edge_cut",
    "fill_dead",
    "find_live_edges",
    "fit_combat",
    "fit_harmoniser",
    "fit_residualiser",
    "harmonise_connectomes",
    "log_connectome",
    "psi",
    "read_edges",
    "reestimate",
    "require_covariates",
    "source_mean",
    "source_strength",
    "sym_top",
]

"""Connectomes: the FC estimator Psi, block length, re-estimation, the propagation support S and harmonisation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import export_lazily

if TYPE_CHECKING:
    from .block_length import BlockRule, clip_block_length
    from .bold import BoldRule
    from .combat import Combat, fit_combat
    from .connectomes import Connectomes
    from .edges import find_live_edges, read_edges
    from .fc import fill_dead, invert_fisher_z, psi
    from .harmonisation import HarmonisedConnectomes, Harmoniser, fit_harmoniser, harmonise_connectomes
    from .harmonisation_rule import HarmonisationRule, require_covariates
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
    "invert_fisher_z",
    "log_connectome",
    "psi",
    "read_edges",
    "reestimate",
    "require_covariates",
    "source_mean",
    "source_strength",
    "sym_top",
]

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "block_length": ("BlockRule", "clip_block_length"),
        "bold": ("BoldRule",),
        "combat": ("Combat", "fit_combat"),
        "connectomes": ("Connectomes",),
        "edges": ("find_live_edges", "read_edges"),
        "fc": ("fill_dead", "invert_fisher_z", "psi"),
        "harmonisation": ("HarmonisedConnectomes", "Harmoniser", "fit_harmoniser", "harmonise_connectomes"),
        "harmonisation_rule": ("HarmonisationRule", "require_covariates"),
        "log_euclidean": ("log_connectome",),
        "resampling": ("ReestimateRequest", "reestimate"),
        "residuals": ("Residualiser", "fit_residualiser"),
        "support": ("edge_cut", "source_mean", "source_strength", "sym_top"),
    },
)

"""Connectomes: the FC estimator Psi, block length, re-estimation, the propagation support S and harmonisation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import export_lazily

if TYPE_CHECKING:
    from .connectomes import BoldRule, Connectomes
    from .fc import (
        differentiate_log,
        fill_dead,
        find_live_edges,
        invert_fisher_z,
        log_connectome,
        read_edges,
        unfold_edges,
    )
    from .harmonisation import HarmonisedConnectomes, Harmoniser, fit_harmoniser, harmonise_connectomes
    from .harmonisation_rule import HarmonisationRule, require_covariates
    from .resampling import BlockRule, ReestimateRequest, clip_block_length
    from .support import edge_cut, source_mean, source_strength, sym_top

__all__ = ["BlockRule", "BoldRule", "Connectomes", "HarmonisationRule", "HarmonisedConnectomes"]
__all__ += ["Harmoniser", "ReestimateRequest", "clip_block_length", "differentiate_log", "edge_cut", "fill_dead"]
__all__ += ["find_live_edges", "fit_harmoniser", "harmonise_connectomes", "invert_fisher_z", "unfold_edges"]
__all__ += ["log_connectome", "read_edges", "require_covariates", "source_mean", "source_strength"]
__all__ += ["sym_top"]

__getattr__, __dir__ = export_lazily(__name__)

"""Diagnostics of fitted runs with everything frozen: pure functions without files or figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import export_lazily

if TYPE_CHECKING:
    from .discrepancy import (
        DEFAULT_REESTIMATES,
        PLACEMENTS,
        RepeatedMargins,
        SourceOutputs,
        collect_repeated_margins,
        estimate_source_block_length,
        estimate_window_connectomes,
        iterate_source_outputs,
        locate_window,
        measure_discrepancies,
        pair_divergences,
        predictive_variation,
        site_discrepancy,
    )
    from .factors import (
        RANKINGS,
        FactorEvidence,
        compute_contributions,
        gather_factor_evidence,
        global_qualification,
        rank_factors,
        retained_margin,
        roi_profile,
    )
    from .mismatch import (
        DELTA_AUC,
        discordance_interval,
        discordance_rate,
        mark_mismatches,
        mismatch_rates,
        spearman,
        spearman_interval,
    )
    from .propositions import check_proposition_1, check_proposition_2, contrast_stability, reweighting_gain

__all__ = [
    "DEFAULT_REESTIMATES",
    "DELTA_AUC",
    "PLACEMENTS",
    "RANKINGS",
    "FactorEvidence",
    "RepeatedMargins",
    "SourceOutputs",
    "check_proposition_1",
    "check_proposition_2",
    "collect_repeated_margins",
    "compute_contributions",
    "contrast_stability",
    "discordance_interval",
    "discordance_rate",
    "estimate_source_block_length",
    "estimate_window_connectomes",
    "gather_factor_evidence",
    "global_qualification",
    "iterate_source_outputs",
    "locate_window",
    "mark_mismatches",
    "measure_discrepancies",
    "mismatch_rates",
    "pair_divergences",
    "predictive_variation",
    "rank_factors",
    "retained_margin",
    "reweighting_gain",
    "roi_profile",
    "site_discrepancy",
    "spearman",
    "spearman_interval",
]

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "discrepancy": (
            "DEFAULT_REESTIMATES",
            "PLACEMENTS",
            "RepeatedMargins",
            "SourceOutputs",
            "collect_repeated_margins",
            "estimate_source_block_length",
            "estimate_window_connectomes",
            "iterate_source_outputs",
            "locate_window",
            "measure_discrepancies",
            "pair_divergences",
            "predictive_variation",
            "site_discrepancy",
        ),
        "factors": (
            "RANKINGS",
            "FactorEvidence",
            "compute_contributions",
            "gather_factor_evidence",
            "global_qualification",
            "rank_factors",
            "retained_margin",
            "roi_profile",
        ),
        "mismatch": (
            "DELTA_AUC",
            "discordance_interval",
            "discordance_rate",
            "mark_mismatches",
            "mismatch_rates",
            "spearman",
            "spearman_interval",
        ),
        "propositions": ("check_proposition_1", "check_proposition_2", "contrast_stability", "reweighting_gain"),
    },
)

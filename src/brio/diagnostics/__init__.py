"""Diagnostics: what can be said of fitted runs with everything frozen. Pure functions; no files, no figures."""

from .discrepancy import pair_divergences, predictive_variation, run_discrepancies, site_discrepancy
from .factors import (
    RANKINGS,
    FactorEvidence,
    contributions,
    factor_evidence,
    factor_ranking,
    global_qualification,
    retained_margin,
    roi_profile,
)
from .mismatch import (
    DELTA_AUC,
    discordance_interval,
    discordance_rate,
    mismatch_rates,
    mismatches,
    spearman,
    spearman_interval,
)
from .outputs import SourceAnswers, source_answers, source_block_length
from .propositions import contrast_stability, proposition_1, proposition_2, reweighting_gain
from .windows import POSITIONS, frame_window, windowed

__all__ = [
    "DELTA_AUC",
    "POSITIONS",
    "RANKINGS",
    "FactorEvidence",
    "SourceAnswers",
    "contrast_stability",
    "contributions",
    "discordance_interval",
    "discordance_rate",
    "factor_evidence",
    "factor_ranking",
    "frame_window",
    "global_qualification",
    "mismatch_rates",
    "mismatches",
    "pair_divergences",
    "predictive_variation",
    "proposition_1",
    "proposition_2",
    "retained_margin",
    "reweighting_gain",
    "roi_profile",
    "run_discrepancies",
    "site_discrepancy",
    "source_answers",
    "source_block_length",
    "spearman",
    "spearman_interval",
    "windowed",
]

"""Models that leave home: fit a method to all sites, save it, load it elsewhere, predict scans with it, explain it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import export_lazily

if TYPE_CHECKING:
    from .adaptation import Adaptation, PriorWidths, fit_adaptation
    from .evidence import CallRule, Evidence, choose_rule, gather_evidence, trace_risk
    from .explain import ModelExplanation, explain_model
    from .fit import adapt_model, add_evidence, complete_model, evaluate_model, fit_model, remove_fit_job
    from .folder import read_model, write_model
    from .known_scans import KnownScans
    from .model import Ensemble, Member, Model, TrainingFacts, check_atlas
    from .predict import ScanPredictions, predict_scans
    from .ranges import ScanRanges

__all__ = ["Adaptation", "PriorWidths", "fit_adaptation"]
__all__ += ["CallRule", "Evidence", "choose_rule", "gather_evidence", "trace_risk"]
__all__ += ["ModelExplanation", "explain_model"]
__all__ += ["adapt_model", "add_evidence", "complete_model", "evaluate_model", "fit_model", "remove_fit_job"]
__all__ += ["Ensemble", "Member", "Model", "TrainingFacts", "check_atlas", "read_model", "write_model"]
__all__ += ["KnownScans", "ScanPredictions", "ScanRanges", "predict_scans"]

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "adaptation": ("Adaptation", "PriorWidths", "fit_adaptation"),
        "evidence": ("CallRule", "Evidence", "choose_rule", "gather_evidence", "trace_risk"),
        "explain": ("ModelExplanation", "explain_model"),
        "fit": ("adapt_model", "add_evidence", "complete_model", "evaluate_model", "fit_model", "remove_fit_job"),
        "folder": ("read_model", "write_model"),
        "known_scans": ("KnownScans",),
        "model": ("Ensemble", "Member", "Model", "TrainingFacts", "check_atlas"),
        "predict": ("ScanPredictions", "predict_scans"),
        "ranges": ("ScanRanges",),
    },
)

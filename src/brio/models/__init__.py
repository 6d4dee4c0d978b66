"""Models for use at other sites: fit a method to all sites, save and load it, predict scans, explain the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import export_lazily

if TYPE_CHECKING:
    from .adaptation import PriorWidths, fit_adaptation
    from .evidence import choose_rule, trace_risk
    from .explain import explain_model
    from .fit import adapt_model, add_evidence, complete_model, evaluate_model, fit_model, remove_fit_job
    from .folder import read_model, write_model
    from .model import Member, Model
    from .predict import ScanPredictions, predict_scans

__all__ = ["Member", "Model", "PriorWidths", "ScanPredictions", "adapt_model", "add_evidence", "choose_rule"]
__all__ += ["complete_model", "evaluate_model", "explain_model", "fit_adaptation", "fit_model", "predict_scans"]
__all__ += ["read_model", "remove_fit_job", "trace_risk", "write_model"]

__getattr__, __dir__ = export_lazily(__name__)

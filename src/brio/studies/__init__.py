"""Studies: each table and figure of the paper, and beyond it, as arms to train and a finding to make from them."""

from . import (  # noqa: F401 - importing registers them
    ablation,
    agreement,
    alignment,
    comparison,
    efficiency,
    in_distribution,
    mismatch,
    plus,
    propositions,
    regions,
    retention,
    scan_length,
    sensitivity,
)
from .arms import Arm, arm
from .context import StudyContext
from .study import Finding, Study, list_studies, run_study

__all__ = ["Arm", "Finding", "Study", "StudyContext", "arm", "list_studies", "run_study"]

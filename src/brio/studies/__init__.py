"""Studies: each table and figure of the paper, and beyond it, as arms to train and something to find in them."""

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
from .bench import Bench
from .study import Finding, Study, known_studies, run_study

__all__ = ["Arm", "Bench", "Finding", "Study", "arm", "known_studies", "run_study"]

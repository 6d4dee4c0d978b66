"""Studies: each table and figure of the paper, and more, as arms to train and a finding derived from them."""

from . import (  # noqa: F401 - importing registers them
    ablation,
    adaptation,
    agreement,
    alignment,
    calibration,
    comparison,
    decision_curve,
    efficiency,
    in_distribution,
    labels,
    learning_curve,
    mismatch,
    permutation,
    propositions,
    regions,
    retention,
    retest,
    scan_length,
    sensitivity,
    subgroups,
)
from .context import Arm, StudyContext, make_arm
from .study import Finding, Study, list_studies, run_study

__all__ = ["Arm", "Finding", "Study", "StudyContext", "list_studies", "make_arm", "run_study"]

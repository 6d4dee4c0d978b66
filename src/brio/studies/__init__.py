"""Studies: the tables and figures of the paper, and others, as arms to train and findings derived from them."""

from . import (  # noqa: F401 - importing registers them
    agreement,
    calibration,
    comparison,
    efficiency,
    factors,
    participants,
    refits,
)
from .context import Arm, StudyContext, make_arm
from .study import Finding, Study, list_studies, run_study

__all__ = ["Arm", "Finding", "Study", "StudyContext", "list_studies", "make_arm", "run_study"]

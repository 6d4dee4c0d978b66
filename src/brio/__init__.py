"""Classify patients and controls from functional connectomes, at hospitals the model was not trained on.

>>> import brio
>>> cohort = brio.simulate(brio.Simulation(n_sites=5, per_class=6))
>>> result = brio.run(cohort, ["ridge"], device="cpu")
>>> list(result.table().index)
['ridge']
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import BrioError
from .lazy import export_lazily
from .version import __version__

if TYPE_CHECKING:
    from .api import Result, fit, import_cohort, load_model, predict, run, study, tune
    from .cohort import Atlas, AuditRules, Cohort, audit
    from .cohort.simulate import Simulation, simulate
    from .estimator import BrioClassifier
    from .protocol.splitters import LeaveOneSiteOut, SiteStratifiedKFold

__all__ = [
    "Atlas",
    "AuditRules",
    "BrioClassifier",
    "BrioError",
    "Cohort",
    "LeaveOneSiteOut",
    "Result",
    "Simulation",
    "SiteStratifiedKFold",
    "__version__",
    "audit",
    "fit",
    "import_cohort",
    "load_model",
    "predict",
    "run",
    "simulate",
    "study",
    "tune",
]

__getattr__, __dir__ = export_lazily(__name__)

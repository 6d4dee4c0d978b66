"""brio: patients from controls by their connectomes, at hospitals the model has not seen.

>>> import brio
>>> cohort = brio.simulate(brio.Simulation(n_sites=5, per_class=6))
>>> result = brio.run(cohort, ["ridge"], device="cpu")
>>> list(result.table().index)
['ridge']
"""

from .cohort import Atlas, AuditRules, Cohort, audit
from .cohort.simulate import Simulation, simulate
from .errors import BrioError
from .estimator import BrioClassifier
from .protocol import LeaveOneSiteOut, SiteStratifiedKFold
from .runs import Result, run
from .version import __version__

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
    "run",
    "simulate",
]

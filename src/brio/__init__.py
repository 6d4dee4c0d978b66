"""brio: patients from controls by their connectomes, at hospitals the model has not seen."""

from .cohort import Atlas, Cohort
from .errors import BrioError

__version__ = "0.1.0"
__all__ = ["Atlas", "BrioError", "Cohort", "__version__"]

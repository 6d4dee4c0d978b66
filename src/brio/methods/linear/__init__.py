"""Linear models, and controls that see no connectome."""

from . import ridge, logistic, tangent, log_ridge  # isort: skip # noqa: F401
from . import core_scaffold  # isort: skip # noqa: F401
from . import controls  # isort: skip # noqa: F401

"""Linear models, the plain perceptron beside them, and controls that look at no connectome."""

from . import ridge, logistic, svm, tangent  # isort: skip # noqa: F401
from . import mlp, core_scaffold  # isort: skip # noqa: F401
from . import controls  # isort: skip # noqa: F401

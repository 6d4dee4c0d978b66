"""Linear models, and controls that look at no connectome."""

from . import ridge  # noqa: F401

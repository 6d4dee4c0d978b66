"""BRIO plus: the paper's mechanism on a model with a closed solution."""

from .method import BrioPlus
from .settings import BrioPlusSettings

__all__ = ["BrioPlus", "BrioPlusSettings"]

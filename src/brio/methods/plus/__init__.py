"""BRIO plus: the paper's mechanism on a closed-form model that is ahead of the linear ones."""

from .method import BrioPlus
from .settings import BrioPlusSettings

__all__ = ["BrioPlus", "BrioPlusSettings"]

"""BRIO plus: kernel ridge regression on a chosen view, with factors and a penalty on what does not survive."""

from .method import BrioPlus
from .settings import BrioPlusSettings

__all__ = ["BrioPlus", "BrioPlusSettings"]

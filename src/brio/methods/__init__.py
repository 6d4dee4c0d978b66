"""Methods: one small file for each, and the registry that knows them by name."""

from .brio import Brio, BrioSettings
from .registry import entry, known_methods, make_method, method, variant
from .ridge import Ridge, RidgeSettings

__all__ = [
    "Brio",
    "BrioSettings",
    "Ridge",
    "RidgeSettings",
    "entry",
    "known_methods",
    "make_method",
    "method",
    "variant",
]

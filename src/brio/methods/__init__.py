"""Methods: one small file for each, and the registry that knows them by name.

The families register in the order in which tables list them.
"""

from . import linear, gnn, ood, graph_ood, brain  # isort: skip # noqa: F401
from .brio import Brio, BrioSettings
from .linear.ridge import Ridge, RidgeSettings
from .plus import BrioPlus, BrioPlusSettings
from .registry import find_method, list_methods, load_methods, make_method, method, present_name, variant

__all__ = [
    "Brio",
    "BrioPlus",
    "BrioPlusSettings",
    "BrioSettings",
    "Ridge",
    "RidgeSettings",
    "find_method",
    "list_methods",
    "load_methods",
    "make_method",
    "method",
    "present_name",
    "variant",
]

"""Methods: a file for each family or method, and the registry that knows them by name.

:mod:`brio.methods.catalogue` imports all families, in the order in which tables list them.
"""

from typing import TYPE_CHECKING

from ..lazy import export_lazily
from .registry import find_method, list_methods, load_methods, make_method, method, variant

if TYPE_CHECKING:
    from .brio import Brio, BrioSettings
    from .linear.ridge import Ridge
    from .plus import BrioPlus, BrioPlusSettings

__all__ = [
    "Brio",
    "BrioPlus",
    "BrioPlusSettings",
    "BrioSettings",
    "Ridge",
    "find_method",
    "list_methods",
    "load_methods",
    "make_method",
    "method",
    "variant",
]

__getattr__, __dir__ = export_lazily(__name__)

"""Names of a package that are imported when they are first used, so that nobody waits for torch who needs none.

A package whose modules take long to import lists its names three times: under ``TYPE_CHECKING`` for type checkers and
editors, in ``__all__`` for readers, and in the table given to :func:`export_lazily`. A test holds the three equal.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def export_lazily(
    package: str, modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make ``__getattr__`` and ``__dir__`` of a package (PEP 562) that import its modules at first use."""
    module_of = {name: module for module, names in modules.items() for name in names}

    def import_attribute(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        value = getattr(importlib.import_module(f"{package}.{module_of[name]}"), name)
        setattr(sys.modules[package], name, value)  # the next use finds it at once
        return value

    def list_attributes() -> list[str]:
        return sorted(sys.modules[package].__all__)

    return import_attribute, list_attributes

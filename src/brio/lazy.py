"""Names of a package that are imported at first use, so that commands that do not need torch do not wait for it.

A package with slow imports imports the names under ``TYPE_CHECKING``, where type checkers, editors and
:func:`export_lazily` read them, and lists them in ``__all__``.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any


def export_lazily(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make ``__getattr__`` and ``__dir__`` of a package (PEP 562) that import its modules at first use."""
    own = sys.modules[package]
    guarded = next(node for node in ast.parse(inspect.getsource(own)).body if isinstance(node, ast.If))
    imports = [node for node in guarded.body if isinstance(node, ast.ImportFrom)]
    module_of = {alias.name: node.module for node in imports for alias in node.names}

    def import_attribute(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        value = getattr(importlib.import_module(f"{package}.{module_of[name]}"), name)
        setattr(own, name, value)  # the next use finds it at once
        return value

    return import_attribute, lambda: sorted(own.__all__)

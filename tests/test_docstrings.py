"""Everything public is documented: a summary line, and a Parameters section where there is more than one can guess."""

import importlib
import inspect
import pkgutil
from types import ModuleType

import pytest

import brio


def modules() -> list[ModuleType]:
    """All modules but those that import Triton, and the command line, which documents its options itself."""
    names = [m.name for m in pkgutil.walk_packages(brio.__path__, "brio.")]
    skipped = ("brio.cli", "brio.__main__")
    return [importlib.import_module(n) for n in names if ".gpu." not in n and not n.startswith(skipped)]


def public_functions(module: ModuleType) -> list[tuple[str, object]]:
    """Functions of a module and methods of its classes that are public, and not an override of a documented method."""
    functions = []
    for name, thing in vars(module).items():
        if name.startswith("_") or getattr(thing, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(thing):
            functions.append((name, thing))
        elif inspect.isclass(thing) and not getattr(thing, "_is_protocol", False):
            for method, value in vars(thing).items():
                inherited = any(method in vars(base) for base in thing.__mro__[1:])
                function = getattr(value, "__func__", value)
                if not method.startswith("_") and not inherited and inspect.isfunction(function):
                    functions.append((f"{name}.{method}", function))
    return functions


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.__name__)
def test_functions_with_three_or_more_parameters_say_what_each_is(module):
    undocumented = []
    for name, function in public_functions(module):
        parameters = [p for p in inspect.signature(function).parameters if p not in ("self", "cls")]
        lines = inspect.cleandoc(function.__doc__ or "").splitlines()
        if len(parameters) >= 3 and "Parameters" not in lines:
            undocumented.append(name)
    assert not undocumented, f"{module.__name__}: no Parameters section: {', '.join(undocumented)}"


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.__name__)
def test_public_modules_and_functions_have_a_summary(module):
    assert (module.__doc__ or "").strip(), module.__name__
    missing = [name for name, function in public_functions(module) if not (function.__doc__ or "").strip()]
    assert not missing, f"{module.__name__}: no docstring: {', '.join(missing)}"

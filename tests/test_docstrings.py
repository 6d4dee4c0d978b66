"""Every public name has a summary line; what users import has numpydoc sections, and settings."""

import importlib
import inspect
import pkgutil
import re
from types import ModuleType

import pytest
import torch

import brio
import brio.authoring


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


SECTIONS = {"Parameters", "Returns", "Yields", "Raises", "Attributes", "Examples", "Notes", "References", "See Also"}


def users_names() -> dict[str, object]:
    """What users and authors of methods import: functions, classes and the public methods of these."""
    names = {}
    for package in (brio, brio.authoring):
        for name in package.__all__:
            thing = getattr(package, name)
            if inspect.isfunction(thing) or inspect.isclass(thing):
                names[f"{thing.__module__}.{thing.__qualname__}"] = thing
    return names


def find_sections(thing: object) -> set[str]:
    """Section titles of a docstring."""
    return SECTIONS & set(inspect.cleandoc(getattr(thing, "__doc__", None) or "").splitlines())


def describe_names(thing: object) -> set[str]:
    """Names that the Parameters or Attributes section of a docstring describes, one or several in a line."""
    lines = inspect.getdoc(thing).splitlines()
    entries = [match[1] for line in lines if (match := re.match(r"([*\w][*\w, ]*?)( : .*)?$", line))]
    return {name.strip(" *") for entry in entries for name in entry.split(",")}


@pytest.mark.parametrize(("name", "thing"), users_names().items())
def test_what_users_import_describes_each_parameter_and_has_an_example(name, thing):
    assert ">>> " in (thing.__doc__ or ""), f"{name}: no example"
    if inspect.isclass(thing) and issubclass(thing, torch.nn.Module) and "__init__" not in vars(thing):
        return  # made like the layer of torch that it names
    if inspect.isclass(thing) and issubclass(thing, Exception):
        return
    parameters = set(inspect.signature(thing).parameters) - {"self", "cls"}
    undescribed = parameters - describe_names(thing)
    assert not undescribed, f"{name}: not described: {', '.join(sorted(undescribed))}"


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.__name__)
def test_only_what_users_import_has_sections(module):
    users = users_names()
    with_sections = []
    for name, thing in vars(module).items():
        is_class, is_settings = inspect.isclass(thing), name.endswith(("Settings", "Rule", "Rules"))
        if getattr(thing, "__module__", None) != module.__name__ or not (is_class or inspect.isfunction(thing)):
            continue
        if is_settings or f"{module.__name__}.{name}" in users:
            continue  # 'brio settings' shows what the docstring of settings says of each
        functions = [v for v in vars(thing).values() if inspect.isfunction(v)] if is_class else []
        with_sections += [
            member.__qualname__
            for member in (thing, *functions)
            if find_sections(member) and member.__module__ == module.__name__
        ]
    assert not with_sections, f"{module.__name__}: sections on what users do not import: {', '.join(with_sections)}"


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.__name__)
def test_public_modules_and_functions_have_a_summary(module):
    assert (module.__doc__ or "").strip(), module.__name__
    missing = [name for name, function in public_functions(module) if not (function.__doc__ or "").strip()]
    assert not missing, f"{module.__name__}: no docstring: {', '.join(missing)}"

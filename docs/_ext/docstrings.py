"""What Sphinx needs to know about our docstrings.

References to names of brio are linked to their public page, are plain text where they have none, and an error where
there is no such name. A signature names a type by the module that defines it (``brio.cohort.cohort.Cohort``); the
reference documents it where users import it from (``brio.Cohort``).
"""

from __future__ import annotations

import importlib
import re
import sys
from typing import Any

from sphinx.util.nodes import make_refnode

PUBLIC_FIRST = ("brio", "brio.authoring")
"""Where a name is looked up before the room that holds it."""


def resolve(app: Any, env: Any, node: Any, contnode: Any) -> Any:
    """Resolve a reference that Sphinx could not.

    Returns
    -------
    A link to the public page of the object; its text alone where the object exists without a page of its own; None,
    which Sphinx reports, where there is no such object.
    """
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py":
        return None
    if "." in target and not target.startswith("brio.") and not target[:1].isupper():
        return None
    objects = env.get_domain("py").objects
    for candidate in _candidates(target, objects):
        if candidate in objects:
            entry = objects[candidate]
            document = node.get("refdoc", env.docname)
            return make_refnode(app.builder, document, entry.docname, entry.node_id, contnode, candidate)
    return contnode if _exists(target) else None


def _candidates(target: str, objects: Any) -> list[str]:
    """List the names under which an object may be documented: of users first, then of its room, then of any."""
    *modules, name = target.split(".")
    if modules and modules[0] == "brio":
        rooms = [".".join(modules[:n]) for n in range(len(modules), 0, -1)]
        return [f"{room}.{name}" for room in (*PUBLIC_FIRST, *rooms)]
    elsewhere = sorted((key for key in objects if key.startswith("brio.") and key.endswith(f".{target}")), key=len)
    return [*(f"{room}.{target}" for room in PUBLIC_FIRST), *elsewhere]


def _exists(target: str) -> bool:
    """Whether brio has an object: by its full path, or by a name in any module that is loaded."""
    path = target.split(".")
    if path[0] != "brio":
        loaded = [module for key, module in list(sys.modules.items()) if key.split(".")[0] == "brio"]
        return any(_reach(module, path) for module in loaded)
    for n in range(len(path), 0, -1):
        try:
            return _reach(importlib.import_module(".".join(path[:n])), path[n:])
        except ImportError:
            continue
    return False


def _reach(start: Any, path: list[str]) -> bool:
    """Whether attributes lead along a path."""
    for name in path:
        start = getattr(start, name, None)
    return start is not None


def skip_inherited(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what scikit-learn adds to every estimator."""
    return True if name.endswith("_request") or name == "get_metadata_routing" else None


def escape_bars(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Let ``|x|`` in a docstring mean the absolute value; reStructuredText would look for a substitution."""
    for i, line in enumerate(lines):
        parts = line.split("``")
        parts[::2] = [re.sub(r"\|(?=[^\s|][^|]*\|)", r"\\|", part) for part in parts[::2]]
        lines[i] = "``".join(parts)


def name_defaults(
    app: Any, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str, str | None] | None:
    """Write a default that a function makes as ``...``, which Sphinx can read, and a type without its domain.

    The page on configuration lists the domains of all settings.
    """
    if not signature:
        return None
    plain = re.sub(r"(?:~?typing\.)?Annotated\[(\w+), ~?(?:[\w.]*\.)?Domain\([^()]*\)\]", r"\1", signature)
    return plain.replace("<factory>", "..."), returns


def setup(app: Any) -> dict[str, Any]:
    """Register the handlers."""
    app.connect("missing-reference", resolve)
    app.connect("autodoc-skip-member", skip_inherited)
    app.connect("autodoc-process-signature", name_defaults)
    app.connect("autodoc-process-docstring", escape_bars, priority=900)  # after numpydoc
    return {"parallel_read_safe": True, "parallel_write_safe": True}

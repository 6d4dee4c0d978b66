"""References to names of brio: linked to their public page, plain text where they have none, an error where unknown.

A signature names a type by the module that defines it (``brio.cohort.cohort.Cohort``), the reference documents it
where users import it from (``brio.Cohort``).
"""

from __future__ import annotations

import importlib
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
    *modules, name = target.split(".")
    if modules and modules[0] != "brio" and not modules[0][:1].isupper():
        return None
    objects = env.get_domain("py").objects
    rooms = [".".join(modules[:n]) for n in range(len(modules), 0, -1)]
    for candidate in (f"{room}.{name}" for room in (*PUBLIC_FIRST, *rooms)):
        if candidate in objects:
            entry = objects[candidate]
            document = node.get("refdoc", env.docname)
            return make_refnode(app.builder, document, entry.docname, entry.node_id, contnode, candidate)
    return contnode if _exists(modules, name) else None


def _exists(modules: list[str], name: str) -> bool:
    """Whether brio has an object: by its full path, or by a bare name in any module that is loaded."""
    if not modules:
        return any(hasattr(module, name) for key, module in list(sys.modules.items()) if key.split(".")[0] == "brio")
    for n in range(len(modules) + 1, 0, -1):
        path = [*modules, name]
        try:
            found: Any = importlib.import_module(".".join(path[:n]))
        except ImportError:
            continue
        for attribute in path[n:]:
            found = getattr(found, attribute, None)
        return found is not None
    return False


def skip_inherited(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what scikit-learn adds to every estimator."""
    return True if name.endswith("_request") or name == "get_metadata_routing" else None


def setup(app: Any) -> dict[str, Any]:
    """Register the handlers."""
    app.connect("missing-reference", resolve)
    app.connect("autodoc-skip-member", skip_inherited)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

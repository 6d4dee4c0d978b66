"""What Sphinx needs to know about our docstrings.

References to names of brio are linked to their public page, are plain text where they have none, and an error where
there is no such name. A signature names a type by the module that defines it (``brio.cohort.cohort.Cohort``); the
reference documents it where users import it from (``brio.Cohort``).
"""

from __future__ import annotations

import re
import sys
from pydoc import locate
from typing import Any

from sphinx.util.nodes import make_refnode

PUBLIC = ("brio", "brio.authoring")


def resolve(app: Any, env: Any, node: Any, contnode: Any) -> Any:
    """Resolve a reference that Sphinx could not: a link, plain text, or None, which Sphinx reports."""
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py":
        return None
    name = target.rsplit(".", 1)[-1] if target.startswith("brio.") else target
    objects = env.get_domain("py").objects
    for candidate in (f"{module}.{name}" for module in PUBLIC):
        if candidate in objects:
            entry = objects[candidate]
            document = node.get("refdoc", env.docname)
            return make_refnode(app.builder, document, entry.docname, entry.node_id, contnode, candidate)
    is_ours = exists(target) if target.startswith("brio.") else is_imported(target)
    return contnode if is_ours else None


def exists(target: str) -> bool:
    """Return whether brio has an object; a function may hide the module of its name, which defines others."""
    module, _, name = target.rpartition(".")
    return hasattr(sys.modules.get(module), name) or locate(target) is not None


def is_imported(name: str) -> bool:
    """Return whether a module of brio has a name, as annotations use it that are not evaluated (``Path``)."""
    return any(name in vars(module) for key, module in sys.modules.items() if key.split(".")[0] == "brio")


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
    plain = re.sub(r"(?:~?typing\.)?Annotated\[(\w+), ~?(?:[\w.]*\.)?Meta\([^()]*\)\]", r"\1", signature)
    return plain.replace("<factory>", "..."), returns


def setup(app: Any) -> dict[str, Any]:
    """Register the handlers."""
    app.connect("missing-reference", resolve)
    app.connect("autodoc-skip-member", skip_inherited)
    app.connect("autodoc-process-signature", name_defaults)
    app.connect("autodoc-process-docstring", escape_bars, priority=900)  # after numpydoc
    return {"parallel_read_safe": True, "parallel_write_safe": True}

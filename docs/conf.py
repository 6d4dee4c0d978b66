"""Configuration of the documentation site. ``make docs`` builds it into ``build/docs``."""

from __future__ import annotations

import shutil
import sys
from importlib.metadata import files
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

import brio  # noqa: E402

project = "brio"
author = "The brio developers"
copyright = "The brio developers"
version = release = brio.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "myst_parser",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "docstrings",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
highlight_language = "none"  # plain blocks are commands
templates_path = ["_templates"]
exclude_patterns = ["examples/**", "gallery/**", "result_pages/**", "promises_counts.md", "cluster_hours.md"]
exclude_patterns += ["api/generated/settings.md", "api/generated/commands.md", "api/generated/examples/**"]
nitpicky = True
nitpick_ignore_regex = [
    ("py:obj", r"typing\.Annotated\[.*"),  # numpydoc splits a domain at its comma
    ("py:class", r"participant_id"),  # the column that a domain in an annotation names
    ("py:class", r"Module|Tensors?"),  # of torch, in docstrings that networks inherit and in names for types
    ("py:class", r"(numpy|np|torch|nn|pd|pandas|sklearn|pathlib|collections|typing|abc|types|matplotlib)\b.*"),
    ("py:class", r"(dict|list|tuple)\[.*"),
]
# API reference: every name that users and authors of methods import
autosummary_generate = True
autosummary_ignore_module_all = False
autosummary_imported_members = True
autodoc_default_options = {"member-order": "bysource"}
autodoc_preserve_defaults = True
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"
python_maximum_signature_line_length = 100
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

# Markdown
myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath", "fieldlist"]
myst_heading_anchors = 3
myst_dmath_double_inline = True

# Equations: one script without fonts, copied from a package at build time, so that pages read without a network
mathjax_path = "tex-svg-full.js"
mathjax3_config = {
    "tex": {"macros": {"bm": ["\\boldsymbol{#1}", 1]}, "tags": "none"},
    "options": {"enableMenu": False},
}

# Gallery: every example is executed, and one that fails stops the build
sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"plot_.*\.py",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "remove_config_comments": True,
    "download_all_examples": False,
    "show_signature": False,
    "backreferences_dir": "api/generated/examples",  # for "Examples using ..." on pages of the API
    "doc_module": ("brio",),
    "inspect_global_variables": False,
    "plot_gallery": True,
    "write_computation_times": False,
    "reset_modules": ("matplotlib",),
    "image_scrapers": ("matplotlib",),
    "capture_repr": ("_repr_html_", "__repr__"),
}

html_theme = "pydata_sphinx_theme"
html_title = f"brio {release}"
html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["brio.css"]
html_show_sourcelink = False
html_copy_source = False
html_sidebars = {"index": []}
html_context = {"default_mode": "auto"}  # light or dark as the system asks
html_theme_options = {
    "logo": {"image_light": "_static/logo.svg", "image_dark": "_static/logo.svg", "text": html_title},
    "navbar_end": ["theme-switcher"],
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def write_references(app: Any) -> None:
    """Write the lists of all settings and of all commands that two pages include."""
    from command_reference import format_commands

    from brio.formatting import format_table
    from brio.jobs.spec import list_settings

    lines: list[str] = []
    for heading, group in list_settings().items():
        rows = [[f"`{one.key}`", one.default or "by method", one.values, one.meaning] for one in group]
        lines += [f"### {heading.capitalize()}", format_table(["setting", "default", "values", "meaning"], rows)]
    folder = HERE / "api" / "generated"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("settings", "\n\n".join(lines) + "\n"), ("commands", format_commands())):
        (folder / f"{name}.md").write_text(text, encoding="utf-8")


def copy_mathjax(app: Any, error: Exception | None) -> None:
    """Put MathJax beside the pages."""
    if error is None and app.builder.format == "html":
        script = next(f for f in files("sphinx-mathjax-offline") or () if f.name == "tex-svg-full.js")
        shutil.copyfile(script.locate(), Path(app.outdir) / "_static" / script.name)


def setup(app: Any) -> None:
    """Connect what is ours."""
    app.connect("builder-inited", write_references)
    app.connect("build-finished", copy_mathjax)

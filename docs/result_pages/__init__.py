"""The result pages of the documentation, generated from the stored results in ``evidence/``.

A page is a template of its name in ``templates/`` and a module of its name, which computes what is special to it. A
template knows the names of its module and of :mod:`.evidence`, which reads files, :mod:`.comparisons`, which tests, and
:mod:`.markdown`, which formats with :mod:`brio.formatting`. Lines that start with ``%%`` are statements of Jinja;
paragraphs are wrapped freely.
"""

from __future__ import annotations

import builtins
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.ext import Extension

from brio import formatting
from brio.studies.context import display_name

from . import comparisons, evidence, forest, markdown

__all__ = ["draw_figures", "fill_readme", "generate_pages", "render_page"]

TEMPLATES = Path(__file__).parent / "templates"
GROUPS = {
    "Unseen sites": {
        "unseen-sites": "All methods",
        "labels": "Other labels",
        "in-distribution": "Known sites",
        "permutation": "Permuted labels",
        "learning-curve": "More sites or participants",
        "harmonisation": "ComBat",
    },
    "BRIO and its parts": {
        "brio-plus": "BRIO plus",
        "ablation": "Ablation",
        "sensitivity": "K, J and block length",
        "stability": "Stability",
        "factors": "Factors",
        "scan-length": "Shorter scans",
    },
    "Trust and use": {
        "subgroups": "Subgroups",
        "calibration": "Calibration",
        "decision-curve": "Decision curve",
        "prediction-intervals": "Prediction intervals",
        "adaptation": "Local adaptation",
        "federation": "Sites that share no scans",
    },
    "Speed and reproduction": {
        "benchmarks": "Compared with other code",
        "speed": "Time and memory",
        "growth": "Growth",
        "reproducibility": "Repeated runs",
        "level": "Level of tests",
    },
}
"""Short titles of the pages by group, in the order of the index. The last page lists the comparisons of all others."""
PAGES = [name for pages in GROUPS.values() for name in pages]
WITH_VERDICTS = (
    "unseen-sites",
    "in-distribution",
    "ablation",
    "sensitivity",
    "stability",
    "factors",
    "scan-length",
    "speed",
)
"""Pages with verdicts on claims of the paper."""
WITH_FIGURES = ("prediction-intervals", "growth")
"""Pages with figures that are not stored with a study."""
BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"


def load_page(name: str) -> Any:
    """Import the module of a page."""
    return import_module(f".{name.replace('-', '_')}", __name__)


class EmptyLines(Extension):
    """Keep the empty lines after statements, which separate blocks and which Jinja would otherwise remove."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        """Insert an empty comment before each empty line."""
        return re.sub(r"^(%%.*\n)(?=\n)", r"\1{##}", source, flags=re.MULTILINE)


@cache
def make_environment() -> Environment:
    """Create the Jinja environment shared by all pages."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        line_statement_prefix="%%",
        keep_trailing_newline=True,
        extensions=[EmptyLines],
    )
    environment.globals |= vars(builtins) | {"display_name": display_name}
    for module in (formatting, markdown, evidence, comparisons):
        environment.globals |= vars(module)
    environment.globals["draw"] = forest.draw
    return environment


def render_page(name: str, **values: Any) -> str:
    """Return the text of a page."""
    template = make_environment().get_template(f"{name}.md")
    title, rest = template.render(vars(load_page(name)) | values).lstrip().split("\n", 1)
    return markdown.set_signs(markdown.reflow(f"{title}\n\n{markdown.GENERATED}\n\n{rest}"))


def judge_claims() -> list[tuple[str, ...]]:
    """Return page, claim, measured result and verdict for every claim of the paper."""
    return [(name, *verdict) for name in WITH_VERDICTS for verdict in load_page(name).judge_claims()]


def generate_pages() -> dict[str, str]:
    """Return the text of every page and figure, by file name."""
    titles = {name: (TEMPLATES / f"{name}.md").read_text(encoding="utf-8").splitlines()[0][2:] for name in PAGES}
    pages = {"index.md": render_page("index", groups=GROUPS, titles=titles, verdicts=judge_claims())}
    pages |= {f"{name}.md": render_page(name) for name in PAGES}
    return pages | {f"figures/{name}": figure for name, figure in forest.FIGURES.items()}


def draw_figures() -> dict[str, Any]:
    """Draw the figures that are not stored with a study, by file name."""
    return {file: draw() for page in WITH_FIGURES for file, draw in load_page(page).FIGURES.items()}


def fill_readme(text: str) -> str:
    """Insert the small table of results between the two markers of the README; return it unchanged without markers."""
    if BEGIN not in text:
        return text
    before, rest = text.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    values = vars(load_page("index")) | {"verdicts": judge_claims(), "page": "docs/results/index.md"}
    headline = make_environment().get_template("headline.md").render(values)
    return f"{before}{BEGIN}\n\n{markdown.set_signs(markdown.reflow(headline))}\n{END}{after}"

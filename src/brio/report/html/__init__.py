"""The self-contained HTML page of a report, and what all pages are made of: templates, style sheets, scripts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from ...errors import escape_controls
from ...formatting import (
    format_count,
    format_interval,
    format_number,
    format_p,
    format_percent,
    format_points,
    join_names,
    typeset,
)

if TYPE_CHECKING:
    from jinja2 import Environment


FILTERS: dict[str, Callable[..., str]] = {
    "percent": lambda share: typeset(format_percent(share)),
    "points": lambda difference: typeset(format_points(difference)),
    "interval": lambda ends: typeset(format_interval(ends)),
    "difference_interval": lambda ends: typeset(format_interval(ends, format_points)),
    "p_value": lambda p: typeset(format_p(p)),
    "number": lambda value: typeset(format_number(value)),
    "count": format_count,
    "names": join_names,
}
"""Filters of the template: the formats of :mod:`brio.formatting`, with the signs of a printed page."""


def fill_template(name: str, context: dict[str, Any], styles: Sequence[str], scripts: Sequence[str]) -> str:
    """Fill a template with its variables, style sheets and scripts."""
    folder = resources.files("brio.report.html")
    css, script = (
        "\n".join(folder.joinpath(file).read_text(encoding="utf-8") for file in files) for files in (styles, scripts)
    )
    return _make_environment().get_template(name).render(**context, css=css, script=script) + "\n"


@functools.cache
def _make_environment() -> Environment:
    """Make the environment of all templates; it keeps them compiled, which takes longer than to fill them."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("brio.report.html", "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: escape_controls(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= FILTERS
    return environment

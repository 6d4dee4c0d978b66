"""The self-contained HTML page of a report, and what all pages share: templates, style sheets, scripts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from ...errors import escape_controls
from ...formatting import (
    MISSING,
    escape_markdown,
    format_count,
    format_detectable,
    format_interval,
    format_number,
    format_p,
    format_percent,
    format_points,
    format_range,
    format_whole,
    join_names,
    state_p,
    tie_units,
    typeset,
)
from ...protocol.calibration import WHOLE_COEFFICIENT
from ...version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment


FORMATS: dict[str, Callable[..., str]] = {
    "percent": format_percent,
    "whole": format_whole,
    "whole_interval": lambda ends: format_interval(ends, format_whole),
    "points": format_points,
    "detectable": format_detectable,
    "interval": format_interval,
    "difference_interval": lambda ends: format_interval(ends, format_points),
    "number_interval": lambda ends: format_interval(ends, format_number, WHOLE_COEFFICIENT),
    "p_value": format_p,
    "stated_p": state_p,
    "number": format_number,
    "range": lambda ends, digits=0: format_range(ends[0], ends[1], digits) if ends else MISSING,
}
"""Filters of templates: the formats of :mod:`brio.formatting`; pages have them with the signs of a printed page."""


def typeset_formats() -> dict[str, Callable[..., str]]:
    """Return the filters with the signs of a printed page."""
    return {name: lambda *values, write=write: typeset(write(*values)) for name, write in FORMATS.items()}


def fill_template(name: str, context: dict[str, Any], styles: Sequence[str] = (), scripts: Sequence[str] = ()) -> str:
    """Fill a template with its variables, style sheets and scripts."""
    folder = resources.files("brio.report.html")
    css, script = (
        "\n".join(folder.joinpath(file).read_text(encoding="utf-8") for file in files) for files in (styles, scripts)
    )
    template = make_environment(name.endswith(".html.j2")).get_template(name)
    return template.render(**context, version=__version__, css=css, script=script).strip() + "\n"


@functools.cache
def make_environment(is_page: bool) -> Environment:
    """Make the environment of the templates of pages or of Markdown; it keeps them compiled, which takes long."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    def finish(value: Any) -> Any:
        if type(value) is not str:
            return value
        return tie_units(escape_controls(value)) if is_page else escape_controls(value)

    environment = Environment(
        loader=PackageLoader("brio.report.html", "."),
        autoescape=is_page,
        undefined=StrictUndefined,
        finalize=finish,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= typeset_formats() if is_page else FORMATS
    environment.filters |= {"count": format_count, "names": join_names, "markdown": escape_markdown, "typeset": typeset}
    return environment

"""Texts about models for readers: templates in Markdown and plain text, and the function that fills them."""

from __future__ import annotations

import functools
import re
from typing import Any

from ... import formatting


def fill_text(name: str, **context: Any) -> str:
    """Fill a template.

    An indented line of the template continues the line before, and several empty lines become one, so that a template
    looks like the text that it produces.
    """
    text = _make_environment().get_template(name).render(context)
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"\n +", " ", text)).strip() + "\n"


@functools.cache
def _make_environment() -> Any:
    """Make the environment of the templates; it keeps them compiled."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__name__, "."), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "name": formatting.escape_markdown,
        "code": formatting.format_code,
        "count": formatting.format_count,
        "number": formatting.format_number,
        "percent": formatting.format_percent,
        "p_value": formatting.format_p,
        "signed": formatting.format_signed,
        "share": lambda share, digits=0: f"{share:.{digits}%}",
    }
    return environment

"""The page of ``brio explain``: the text of an explanation with its figures."""

from __future__ import annotations

import base64
import re
from pathlib import Path

from ..formatting import typeset
from .html import fill_template
from .html.page import render_markdown

OPEN_ROWS = 60
_FIGURE = re.compile(r'<p>!<a href="(\w+\.png)">([^<]*)</a></p>')  # what is left of an image in Markdown


def render_explanation_page(text: str, folder: Path) -> str:
    """Render an explanation as one HTML page that needs no network and no other file; figures are in the folder."""

    def embed(match: re.Match[str]) -> str:
        data = base64.b64encode((folder / match[1]).read_bytes()).decode()
        return f'<figure class="figure"><img src="data:image/png;base64,{data}" alt="{match[2]}"></figure>'

    body = _FIGURE.sub(embed, render_markdown(typeset(text), OPEN_ROWS))
    context = {"title": text.splitlines()[0].removeprefix("# "), "body": body}
    return fill_template("explanation.html.j2", context, ("report.css", "report_media.css", "explanation.css"))

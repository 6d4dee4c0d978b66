"""Text in Markdown as HTML, with its tables and images."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import PurePath
from typing import Any

from ...formatting import typeset

MAX_OPEN_ROWS = 8
"""Longer tables are folded."""


def encode_image(name: str, content: bytes) -> str:
    """Encode the content of a PNG or SVG file as a data URL; scripts inside an image do not run."""
    kind = {".svg": "svg+xml", ".png": "png"}[PurePath(name).suffix]
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def render_markdown(text: str, open_rows: int | None = MAX_OPEN_ROWS, images: Mapping[str, str] | None = None) -> str:
    """Render Markdown as HTML with typographic signs, and fold tables of more than ``open_rows`` rows (None: no table).

    HTML in the text is escaped. ``images`` has the data URL of each image by its name; an image that it lacks is a
    ``KeyError``. Without ``images``, an image of the text becomes a link, because it may need a network.
    """
    from markdown_it import MarkdownIt

    def show_text(_: Any, tokens: Sequence[Any], k: int, *__: Any) -> str:
        return html.escape(typeset(tokens[k].content))

    def show_image(_: Any, tokens: Sequence[Any], k: int, *__: Any) -> str:
        assert images is not None
        return f'<img src="{images[tokens[k].attrs["src"]]}" alt="{html.escape(tokens[k].content)}">'

    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    markdown.add_render_rule("text", show_text)
    markdown.add_render_rule("image", show_image)
    rendered = (markdown if images is not None else markdown.disable("image")).render(text)
    return re.sub(r"<table>.*?</table>", lambda match: _wrap_table(match[0], open_rows), rendered, flags=re.DOTALL)


def _wrap_table(table: str, open_rows: int | None) -> str:
    """Fold a long table; on narrow screens, where rows are cards, every cell has the heading of its column."""
    headings = cycle(re.sub(r"<[^>]+>", "", heading) for heading in re.findall(r"<th[^>]*>(.*?)</th>", table))
    table = re.sub(r"<td", lambda _: f'<td data-label="{next(headings)}"', table)
    scrollable = f'<div class="scroll cards" tabindex="0" role="region" aria-label="Table">{table}</div>'
    n_rows = table.count("<tr>") - 1
    if open_rows is None or n_rows <= open_rows:
        return scrollable
    return f'<details class="printed"><summary>Table, {n_rows} rows</summary>{scrollable}</details>'

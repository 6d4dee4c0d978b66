"""The page of ``brio explain``: the text of an explanation with its figures."""

from __future__ import annotations

import re
from pathlib import Path

from .html import fill_template
from .html.markdown import encode_image, render_markdown


def render_explanation_page(text: str, folder: Path) -> str:
    """Render an explanation as one HTML page that needs no network and no other file; figures are in the folder."""
    images = {path.name: encode_image(path.name, path.read_bytes()) for path in folder.glob("*.png")}
    body = render_markdown(text, None, images)
    title = re.sub(r"<[^>]+>", "", body.split("</h1>")[0])
    context = {"title": title, "body": body}
    return fill_template("explanation.html.j2", context, ("report.css", "report_media.css", "explanation.css"))

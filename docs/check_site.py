"""Check the built site: links inside it lead somewhere, and no page loads anything from a network.

python docs/check_site.py build/docs
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}
"""Elements that fetch what they name, and the attribute that names it."""

NETWORK = re.compile(r"^(https?:)?//")
SPLIT_TAG = re.compile(r"\\begin\{split\}(?:(?!\\end\{split\}).)*\\tag\{", re.DOTALL)
LOST_FIGURE = re.compile(r"<p>!\w")
CSS_NETWORK = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"])\s*((?:https?:)?//[^'\")\s]+)")


class Page(HTMLParser):
    """What one page links to, loads and offers as anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the anchors, links and loaded files of one element."""
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        attribute = LOADED.get(tag, "")
        if values.get(attribute) and values.get("rel") not in (
            "canonical",
            "author",
            "prev",
            "next",
            "index",
            "search",
        ):
            self.loaded.append(values[attribute])


def _pages(site: Path) -> list[Path]:
    """Return the pages, without the templates that a theme leaves among its static files."""
    return [path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts]


def check(site: Path) -> list[str]:
    """Return what is wrong with a built site, one sentence each."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in _pages(site)}
    problems = []
    for path, page in pages.items():
        name, text = path.relative_to(site), path.read_text(encoding="utf-8")
        if SPLIT_TAG.search(text):
            problems.append(f"{name}: an equation of several lines has a tag; write it as an equation environment")
        if LOST_FIGURE.search(text):
            problems.append(f"{name}: a figure became its caption; does its file exist?")
        for target in page.loaded:
            if NETWORK.match(target):
                problems.append(f"{name}: loads {target} from a network")
        for target in (*page.links, *page.loaded):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            file = file / "index.html" if file.is_dir() else file
            if not file.is_file():
                problems.append(f"{name}: {target} does not exist")
            elif parts.fragment and file in pages and unquote(parts.fragment) not in pages[file].anchors:
                if name.parts[0] == "_modules":  # source pages name all objects of a file by one of its public modules
                    continue
                problems.append(f"{name}: {target} has no such anchor")
    for sheet in sorted(site.rglob("*.css")):
        for address in CSS_NETWORK.findall(sheet.read_text(encoding="utf-8")):
            problems.append(f"{sheet.relative_to(site)}: loads {address} from a network")
    return problems


def main() -> None:
    """Print problems and fail, or say how many pages are in order."""
    site = Path(sys.argv[1]).resolve()
    problems = check(site)
    for line in problems:
        print(line)
    n_pages = len(_pages(site))
    print(f"{n_pages} pages, {len(problems)} problems: {site / 'index.html'}")
    sys.exit(1 if problems or not n_pages else 0)


if __name__ == "__main__":
    main()
